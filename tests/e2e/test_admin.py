"""From an upload to a promoted version and back, with the Python client; and another replica follows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import xylem
from tests.servers import ServerProcess, wait_for

KEY = "correct-horse-battery-staple"
SECONDS = 240.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("admin")
    for name in ("store", "data"):
        (root / name).mkdir()
    return root


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[ServerProcess]:
    with ServerProcess(home / "store", jobs=1, job_nice=0, data_dir=home / "data", admin_key=KEY) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[xylem.Client]:
    with xylem.Client(f"http://127.0.0.1:{server.port}", key=KEY) as made:
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
    lines = (
        f'{{"text": "a {words[(i + shift) % 4]} thing {i % 7}", "labels": ["{words[i % 4]}"]}}\n'
        for i in range(n)
    )
    return "".join(lines).encode()


def train(client: xylem.Client, **fields: Any) -> xylem.Job:
    job = client.train(
        "things", data="train.jsonl", valid="valid.jsonl", **{"trainer": "label-tree", **fields}
    )
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
    assert told == [("refused", 3, third.id), ("promoted", 2, second.id), ("published", 1, first.id)] or (
        told == [("refused", 3, third.id), ("promoted", 2, second.id), ("promoted", 1, first.id)]
    )
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
    with pytest.raises(xylem.ProblemError) as refused:
        client.call("DELETE", "/v1/admin/models/things/versions/2")
    assert (refused.value.status, refused.value.code) == (409, "version-in-use")
    assert client.call("DELETE", "/v1/admin/models/copy", confirm="copy")["model"] == "copy"


def test_a_batch_job_answers_a_file_and_its_result_comes_in_parts(
    trained: xylem.Client, server: ServerProcess, tmp_path: Path
) -> None:
    lines = rows(500) + b"no json\n"
    trained.upload("rows.jsonl", lines)
    job = trained.batch_job("pairs", "rows.jsonl", top_r=1)
    job = trained.wait(job.id, SECONDS)
    assert (job.state, job.result) == ("succeeded", {**(job.result or {}), "lines": 501, "bad": 1})
    file = tmp_path / "result.jsonl"
    trained.download_result(job.id, file)
    whole = file.read_bytes()
    assert len(whole.splitlines()) == 501
    url = f"http://127.0.0.1:{server.port}/v1/admin/jobs/{job.id}/result"
    headers = {"authorization": f"Bearer {KEY}", "range": "bytes=100-199"}
    part = httpx.get(url, headers=headers)
    assert (part.status_code, part.content) == (206, whole[100:200])


def test_a_batch_job_for_an_alias_keeps_to_what_it_denies(trained: xylem.Client, tmp_path: Path) -> None:
    trained.upload("few.jsonl", rows(8))
    denied = "/v1/admin/models/pairs/aliases/latest/denied"
    trained.call("PUT", denied, labels=["red"])
    try:
        found = {}
        for version in (None, 1):
            job = trained.wait(trained.batch_job("pairs", "few.jsonl", version=version, top_r=4).id, SECONDS)
            assert job.state == "succeeded", job.error
            trained.download_result(job.id, tmp_path / f"{version}.jsonl")
            lines = (tmp_path / f"{version}.jsonl").read_bytes().splitlines()
            found[version] = {label["label"] for line in lines for label in json.loads(line)["labels"]}
    finally:
        trained.call("DELETE", denied)
    assert found == {None: {"green", "blue", "black"}, 1: {"red", "green", "blue", "black"}}


def test_events_follow_a_job_to_its_end_and_a_cancelled_one_can_be_retried(trained: xylem.Client) -> None:
    job = trained.train("pairs", "label-tree", "train.jsonl")
    states = [event.data["state"] for event in trained.events(job.id)]
    assert states[-1] == "succeeded"
    ended = trained.job(job.id)
    assert "phase" in trained.log(job.id)
    with pytest.raises(xylem.ProblemError) as refused:
        trained.cancel(ended.id)
    assert refused.value.code == "job-conflict"
    with pytest.raises(xylem.ProblemError) as refused:
        trained.retry(ended.id)
    assert refused.value.code == "job-conflict"


def test_all_faults_of_a_request_are_told_at_once(trained: xylem.Client) -> None:
    with pytest.raises(xylem.ProblemError) as refused:
        trained.train("Things", "label-tre", "../etc/passwd", weights="float8", parameters={"trees": 3})
    paths = {fault.path for fault in refused.value.errors}
    assert {"model", "trainer", "data", "weights"} <= paths
    with pytest.raises(xylem.ProblemError) as refused:
        trained.train("pairs", "label-tree", "train.jsonl", parameters={"trees": 0, "tres": 2})
    assert {fault.path for fault in refused.value.errors} == {"parameters.trees", "parameters.tres"}


def test_the_same_idempotency_key_is_the_same_job(trained: xylem.Client) -> None:
    first = trained.tune("pairs", "valid.jsonl", idempotency_key="once")
    again = trained.tune("pairs", "valid.jsonl", idempotency_key="once")
    assert first.id == again.id
    with pytest.raises(xylem.ProblemError) as refused:
        trained.tune("pairs", "train.jsonl", idempotency_key="once")
    assert (refused.value.status, refused.value.code) == (409, "idempotency-conflict")


def test_an_upload_that_is_cut_off_leaves_nothing(
    client: xylem.Client, server: ServerProcess, home: Path
) -> None:
    def body() -> Iterator[bytes]:
        yield b"{}\n" * 100_000
        raise ConnectionAbortedError

    headers = {"authorization": f"Bearer {KEY}"}
    with pytest.raises(ConnectionAbortedError):
        httpx.put(f"http://127.0.0.1:{server.port}/v1/admin/data/cut.jsonl", content=body(), headers=headers)
    wait_for(lambda: not [path for path in (home / "data").iterdir() if path.name.startswith(".")])
    assert "cut.jsonl" not in [file.name for file in client.data_files()]


def test_a_promotion_is_served_by_another_replica(trained: xylem.Client, home: Path) -> None:
    with ServerProcess(home / "store") as other, xylem.Client(f"http://127.0.0.1:{other.port}") as there:
        for version in (1, 2, 1, 2):
            trained.promote("pairs", version)
            wait_for(lambda version=version: there.predict("pairs", ["red"]).version == version)  # type: ignore[misc]
