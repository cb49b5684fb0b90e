"""From an upload to a promoted version and back, with the Python client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import xylem
from tests.servers import KEY, ServerProcess, wait_for

SECONDS = 240.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    store, data = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("data")
    with ServerProcess(store, jobs=1, job_nice=0, data_dir=data, admin_key=KEY) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[xylem.Client]:
    with xylem.Client(server.url, key=KEY) as made:
        yield made


@pytest.fixture(scope="module")
def trained(client: xylem.Client) -> xylem.Client:
    """The client, once there are data files and two versions of `pairs`: for tests that need some."""
    client.upload("train.jsonl", rows(240))
    client.upload("valid.jsonl", rows(80))
    for seed in (0, 1):
        job = client.train("pairs", "label-tree", "train.jsonl", seed=seed)
        assert client.wait(job.id, SECONDS).state == "succeeded"
    return client


def rows(n: int, shift: int = 0) -> bytes:
    """Lines of a data set in which a word means a label."""
    words = ("red", "green", "blue", "black")
    found = (
        {"text": f"a {words[(i + shift) % 4]} thing {i % 7}", "labels": [words[i % 4]]} for i in range(n)
    )
    return "".join(json.dumps(row) + "\n" for row in found).encode()


def train(client: xylem.Client, **fields: Any) -> xylem.Job:
    job = client.train("things", "label-tree", "train.jsonl", valid="valid.jsonl", **fields)
    return client.wait(job.id, SECONDS)


def test_an_upload_becomes_a_version_that_is_promoted_measured_against_and_rolled_back(
    client: xylem.Client, server: ServerProcess, tmp_path: Path
) -> None:
    assert client.upload("train.jsonl", rows(240)).bytes == len(rows(240))
    client.upload("valid.jsonl", rows(80))
    assert {"train.jsonl", "valid.jsonl"} <= {file.name for file in client.data_files()}

    first = train(client, thresholds={"method": "ofo"})
    assert (first.state, first.version) == ("succeeded", 1), (first.error, server.log())
    rule = {"alias": "latest", "if": [{"metric": "P@1", "least_change": -0.2}]}
    second = train(client, seed=1, promotion=rule)
    assert second.promotion is not None
    assert (second.version, second.promotion.promoted) == (2, True)
    client.upload("train.jsonl", rows(240, shift=1))
    third = train(client, promotion=rule)
    assert third.promotion is not None
    assert (third.version, third.promotion.promoted) == (3, False)
    assert "not enough" in third.promotion.reasons[0]
    wait_for(lambda: client.predict("things", ["red"]).version == 2)

    changes = client.history("things")["changes"]
    told = [(one["action"], one["to_version"], one["job"]) for one in changes]
    assert told[:2] == [("refused", 3, third.id), ("promoted", 2, second.id)]
    assert told[2:] in ([("published", 1, first.id)], [("promoted", 1, first.id)])
    moved = client.rollback("things", "latest", reason="a try")
    assert (moved["version"], moved["previous_version"]) == (1, 2)
    assert client.predict("things", ["red"]).version == 1
    client.promote("things", 2, reason="and back")
    assert client.predict("things", ["red"]).version == 2
    assert [one["why"] for one in client.history("things")["changes"]][:2] == ["and back", "a try"]

    archive = tmp_path / "things.tar"
    client.export_archive("things", archive, version=2)
    assert client.import_archive("copy", archive)["version"] == 1
    assert client.predict("copy", ["red"]).version == 1
    assert client.call("DELETE", "/v1/admin/models/things/versions/3")["versions"] == [3]
    with pytest.raises(xylem.ProblemError, match="409 version-in-use"):
        client.call("DELETE", "/v1/admin/models/things/versions/2")
    assert client.call("DELETE", "/v1/admin/models/copy", confirm="copy")["model"] == "copy"


def batch_job(client: xylem.Client, file: Path, data: str, **options: Any) -> tuple[xylem.Job, bytes]:
    """A job of batch predictions that has succeeded, and its result."""
    job = client.wait(client.batch_job("pairs", data, **options).id, SECONDS)
    assert job.state == "succeeded", job.error
    client.download_result(job.id, file)
    return job, file.read_bytes()


def test_a_batch_job_answers_a_file_and_its_result_comes_in_parts(
    trained: xylem.Client, server: ServerProcess, tmp_path: Path
) -> None:
    trained.upload("rows.jsonl", rows(500) + b"no json\n")
    job, whole = batch_job(trained, tmp_path / "result.jsonl", "rows.jsonl", top_r=1)
    assert job.result is not None
    assert (job.result["lines"], job.result["bad"], len(whole.splitlines())) == (501, 1, 501)
    given = {"authorization": f"Bearer {KEY}", "range": "bytes=100-199"}
    status, _, part = server.exchange("GET", f"/v1/admin/jobs/{job.id}/result", **given)
    assert (status, part) == (206, whole[100:200])


def test_a_batch_job_for_an_alias_keeps_to_what_it_denies(trained: xylem.Client, tmp_path: Path) -> None:
    trained.upload("few.jsonl", rows(8))
    denied = "/v1/admin/models/pairs/aliases/latest/denied"
    trained.call("PUT", denied, labels=["red"])
    found = {}
    try:
        for version in (None, 1):
            _, result = batch_job(trained, tmp_path / "few", "few.jsonl", version=version, top_r=4)
            found[version] = {
                one["label"] for line in result.splitlines() for one in json.loads(line)["labels"]
            }
    finally:
        trained.call("DELETE", denied)
    assert found == {None: {"green", "blue", "black"}, 1: {"red", "green", "blue", "black"}}


def test_events_follow_a_job_to_its_end_after_which_it_is_neither_cancelled_nor_retried(
    trained: xylem.Client,
) -> None:
    job = trained.train("pairs", "label-tree", "train.jsonl")
    states = [event.data["state"] for event in trained.events(job.id)]
    assert states[-1] == "succeeded"
    assert "phase" in trained.log(job.id)
    for call in (trained.cancel, trained.retry):
        with pytest.raises(xylem.ProblemError, match="409 job-conflict"):
            call(job.id)


def test_the_same_idempotency_key_is_the_same_job(trained: xylem.Client) -> None:
    first, again = (trained.tune("pairs", "valid.jsonl", idempotency_key="once") for _ in range(2))
    assert first.id == again.id
    with pytest.raises(xylem.ProblemError, match="409 idempotency-conflict"):
        trained.tune("pairs", "train.jsonl", idempotency_key="once")
