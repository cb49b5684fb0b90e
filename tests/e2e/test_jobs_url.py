"""`xylem jobs --url` and `xylem jobs` of the store tell the same; keys are rotated by both clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import xylem
from tests.conftest import Run
from tests.servers import ServerProcess

KEY = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("jobs_url")
    for name in ("store", "data"):
        (root / name).mkdir()
    (root / "data" / "rows.jsonl").write_text('{"text": "x", "labels": ["a"]}\n')
    return root / "store"


@pytest.fixture(scope="module")
def url(store: Path) -> Iterator[str]:
    """A server without a worker: jobs wait."""
    with ServerProcess(store, admin_key=KEY, data_dir=store.parent / "data", open_scopes="none") as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def job(url: str) -> Iterator[xylem.Job]:
    with xylem.Client(url, KEY) as client:
        yield client.train("m", "ovr", "rows.jsonl")


def test_a_server_tells_of_jobs_what_its_database_does(
    run_here: Run, url: str, store: Path, job: xylem.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XYLEM_KEY", KEY)

    def both(*arguments: str) -> list[dict[str, object]]:
        asked = (run_here("jobs", *arguments, *more, "--json", store=store) for more in ((), ("--url", url)))
        return [json.loads(done.stdout) for done in asked if done.returncode == 0]

    local, remote = both("list", "--model", "m", "--kind", "training", "--state", "queued")
    assert local == remote and job.id in str(remote)
    local, remote = both("show", job.id)
    assert local == remote and remote["state"] == "queued"
    local, remote = both("log", job.id)
    assert local == remote == {"id": job.id, "log": ""}
    assert "queued" in run_here("jobs", "list", "--url", url, store=store).stdout
    assert run_here("jobs", "log", job.id, "--url", url, store=store).stdout == ""
    cancelled = run_here("jobs", "cancel", job.id, "--url", url, store=store)
    assert (cancelled.returncode, "cancelled" in cancelled.stdout) == (0, True)
    local, remote = both("show", job.id)
    assert local == remote and remote["state"] == "cancelled"
    again = run_here("jobs", "retry", job.id, "--url", url, "--json", store=store)
    assert json.loads(again.stdout)["state"] == "queued"
    run_here("jobs", "cancel", job.id, store=store)
    assert job.id not in run_here("jobs", "list", "--state", "queued", "--url", url, store=store).stdout


def test_what_a_server_refuses_ends_the_command(
    run_here: Run, url: str, store: Path, job: xylem.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XYLEM_KEY", raising=False)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(f"{KEY}\n")
    bad.write_text("another-key-of-mine\n")
    for arguments, status, said in (
        (("show", job.id), 2, "401 unauthorized"),
        (("show", job.id, "--key-file", bad), 2, "401 unauthorized"),
        (("show", "0" * 24, "--key-file", good), 2, "404 job-not-found"),
        (("retry", job.id, "--key-file", good), 2, "409 job-conflict"),
        (("list", "--state", "odd", "--key-file", good), 2, "422 bad-request"),
        (("show", "..", "--key-file", good), 2, "expected a name"),
        (("list", "--store", store), 2, "--store: expected without --url"),
    ):
        done = run_here("jobs", *arguments, "--url", url, store=store)
        assert (done.returncode, said in done.stderr) == (status, True), done.stderr
        assert KEY not in done.stderr and "another-key" not in done.stderr
    done = run_here("jobs", "list", "--url", "ftp://127.0.0.1", store=store)
    assert (done.returncode, "--url: expected" in done.stderr) == (2, True), done.stderr


def test_feedback_shows_its_key(
    run_here: Run, url: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = json.dumps({"event_id": "e", "instance": {"text": "x"}, "labels": []})
    for key, said in (
        (KEY, "404 model-not-found"),
        ("another-key", "401 unauthorized"),
        ("two keys", "expected visible characters"),
    ):
        monkeypatch.setenv("XYLEM_KEY", key)
        done = run_here("feedback", "none", "--url", url, store=store, input=event)
        assert (done.returncode, said in done.stderr, key in done.stderr) == (2, True, False), done.stderr


def test_both_clients_rotate_a_key(url: str) -> None:
    with xylem.Client(url, KEY) as client:
        made = client.create_key("shop", ["predict"])
        following = client.rotate_key(made["id"], overlap_seconds=3600, lifetime_seconds=7200)
        assert following["scopes"] == ["predict"] and following["id"] != made["id"]
        listed = {key["id"]: key for key in client.keys()["keys"]}
        assert listed[made["id"]]["expires"] and listed[made["id"]]["state"] == "active"
        with xylem.Client(url, following["key"]) as shop:
            assert shop.models() == []
            with pytest.raises(xylem.ProblemError) as refused:
                shop.rotate_key(following["id"])
            assert refused.value.code == "scope-missing"

    async def main() -> None:
        async with xylem.AsyncClient(url, KEY) as there:
            last = await there.rotate_key(following["id"], overlap_seconds=0)
            await there.revoke_key(last["id"])
            with pytest.raises(xylem.ProblemError) as gone:
                await there.rotate_key(last["id"])
            assert (gone.value.status, gone.value.code) == (404, "key-not-found")

    asyncio.run(main())
