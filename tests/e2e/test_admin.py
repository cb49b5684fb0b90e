"""Jobs, archives and keys over HTTP, what docs/admin.md does not show of them.

`test_docs_admin.py` trains, promotes, rolls back, copies and deletes as the page says.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.served_models import publish_model
from tests.helpers.servers import KEY, Connection, ServerProcess

import xylem
from xylem_store.store import Store

LABELS = {f"label::{i}" for i in range(11)}
ROW = b'{"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    store, data = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("data")
    publish_model(Store(store), "raw", "raw")
    with ServerProcess(store, jobs=1, job_nice=0, data_dir=data, admin_key=KEY) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[xylem.Client]:
    with xylem.Client(server.url, key=KEY) as made:
        made.upload("rows.jsonl", ROW * 500 + b"no json\n")
        yield made


def batch_job(client: xylem.Client, file: Path, **options: Any) -> tuple[xylem.Job, bytes]:
    """A job of batch predictions that has succeeded, and its result."""
    job = client.wait(client.batch_job("raw", "rows.jsonl", **options).id, 240)
    assert job.state == "succeeded", job.error
    client.download_result(job.id, file)
    return job, file.read_bytes()


def test_a_batch_job_answers_a_file_with_a_result_in_parts(
    client: xylem.Client, server: ServerProcess, tmp_path: Path
) -> None:
    job, whole = batch_job(client, tmp_path / "result.jsonl", top_r=1)
    assert job.result is not None
    assert (job.result["lines"], job.result["bad"], len(whole.splitlines())) == (501, 1, 501)
    given = {"authorization": f"Bearer {KEY}", "range": "bytes=100-199"}
    status, _, part = server.exchange("GET", f"/v1/admin/jobs/{job.id}/result", **given)
    assert (status, part) == (206, whole[100:200])
    n = len(whole)
    for wrong in ("bytes=", "bytes=9-3", "rows=0-1", "0-1", f"bytes={n}-", f"bytes={n}-{n + 1}"):
        status, headers, body = server.exchange(
            "GET", f"/v1/admin/jobs/{job.id}/result", **{**given, "range": wrong}
        )
        assert (status, headers["content-type"]) == (416, "application/problem+json"), wrong
        assert headers["content-range"] == f"bytes */{n}"
        assert json.loads(body)["code"] == "bad-range"


def test_a_batch_job_for_an_alias_keeps_to_what_it_denies(
    client: xylem.Client, tmp_path: Path
) -> None:
    denied = "/v1/admin/models/raw/aliases/latest/denied"
    client.call("PUT", denied, labels=["label::3"])
    found = {}
    try:
        for version in (None, 1):
            _, result = batch_job(client, tmp_path / "rows", version=version, top_r=11)
            first = json.loads(result.splitlines()[0])
            found[version] = {one["label"] for one in first["labels"]}
    finally:
        client.call("DELETE", denied)
    assert found == {None: LABELS - {"label::3"}, 1: LABELS}


def test_a_job_that_has_ended_is_neither_cancelled_nor_retried(
    client: xylem.Client,
) -> None:
    job = client.batch_job("raw", "rows.jsonl")
    assert [event.data["state"] for event in client.events(job.id)][-1] == "succeeded"
    assert "succeeded" in client.log(job.id)
    for call in (client.cancel, client.retry):
        with pytest.raises(xylem.ProblemError, match="409 job-conflict"):
            call(job.id)


def test_an_archive_comes_in_again_under_another_name(client: xylem.Client, tmp_path: Path) -> None:
    archive = tmp_path / "raw.tar"
    client.export_archive("raw", archive, version=1)
    assert client.import_archive("copy", archive)["version"] == 1
    row = json.loads(ROW)
    found, expected = (
        client.predict(name, [row]).predictions[0].labels for name in ("copy", "raw")
    )
    assert found == expected


def test_a_revoked_key_is_refused_by_the_other_replica_in_time(
    tmp_path: Path,
) -> None:
    publish_model(Store(tmp_path), "raw", "raw")
    body = {"instances": [{"indices": [1], "values": [1.0]}]}
    with (
        ServerProcess(tmp_path, admin_key=KEY, open_scopes="none", access_log=False) as here,
        ServerProcess(tmp_path, admin_key=KEY, open_scopes="none", access_log=False) as there,
        Connection(there.port) as connection,
    ):
        made = here.admin("POST", "/keys", {"name": "shop", "scopes": ["predict"]})[1]

        def ask(key: str = made["key"]) -> tuple[int, str | None]:
            given = {"authorization": f"Bearer {key}"}
            status, answer = connection.ask("POST", "/v1/models/raw/predict", body, **given)
            return status, answer.get("code")

        while ask() != (200, None):  # until the other replica knows it
            time.sleep(0.02)
        for _ in range(50):  # its head is remembered by now
            assert ask() == (200, None)
        assert here.admin("DELETE", f"/keys/{made['id']}")[1]["state"] == "revoked"
        began = time.monotonic()
        while (answer := ask()) == (200, None):
            assert time.monotonic() - began < 60
            time.sleep(0.01)
        print(f"refused after {time.monotonic() - began:.2f} s")
        assert answer == (401, "key-revoked")
        for _ in range(500):
            assert ask(f"{made['key'][:-1]}!") == (401, "unauthorized")
        logs = here.log() + there.log()
        assert made["key"] not in logs and KEY not in logs
