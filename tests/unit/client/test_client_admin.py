"""Jobs, files, the registry and keys, against the promised routes; and that both
clients are one.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.stub_service import KEY, RESULT, StubService, running

import xylem
import xylem.errors
from xylem.base.errors import BadInput
from xylem_store.errors import StoreError

QUICK = xylem.Retries(times=3, first_seconds=0.01, seed=1)


@pytest.fixture
def service() -> StubService:
    return StubService()


@pytest.fixture
def client(service: StubService) -> Iterator[xylem.Client]:
    with running(service) as url, xylem.Client(url, KEY, retries=QUICK) as made:
        yield made


def test_a_training_from_its_submission_to_its_end(
    client: xylem.Client, service: StubService
) -> None:
    promotion = {"alias": "latest", "if": [{"metric": "P@5", "least_change": -0.2}]}
    options = {"parameters": {"trees": 3}, "seed": 0, "promotion": promotion}
    job = client.train("m", "label-tree", "train.jsonl.gz", **options)  # type: ignore[arg-type]
    assert (job.id, job.kind, job.state, job.is_ended) == ("job-0", "training", "queued", False)
    fields = {"model": "m", "trainer": "label-tree", "data": "train.jsonl.gz", **options}
    assert service.jobs["job-0"]["fields"] == fields
    looked = client.job("job-0")
    assert looked.progress == xylem.Progress("train", 1, 3, 1.5, None)
    done = client.wait("job-0", timeout=60)
    assert (done.state, done.version, done.promotion) == ("succeeded", 4, xylem.Promotion(True, []))
    assert client.retry("job-0").state == "queued"
    assert client.cancel("job-0").state == "cancelled"
    assert client.log("job-0") == "one line\nanother: é\n"
    expected = [xylem.ServerEvent("progress", {"done": i}, str(i)) for i in (1, 2, 3)]
    assert list(client.events("job-0")) == expected
    with pytest.raises(xylem.ProblemError, match="404 not-found"):
        client.job("job-9")


def test_a_submission_with_a_key_of_its_own_is_one_job(client: xylem.Client) -> None:
    first, again = (
        client.tune("m", "valid.jsonl", method="ofo", idempotency_key="k") for _ in range(2)
    )
    other = client.batch_job("m", "in.jsonl", top_r=3)
    assert first == again != other
    assert [job.id for job in client.jobs()] == ["job-0", "job-1"]
    assert [job.id for job in client.jobs(kind="batch", model="m")] == ["job-1"]
    assert client.jobs(state="failed") == []


def test_combinations_and_vocabularies_are_jobs(client: xylem.Client, service: StubService) -> None:
    client.combine("m", ["a", "b@2"], "valid.jsonl", vocabulary="v.ttl")
    client.set_vocabulary("m", "v.ttl", version=2)
    fields = {"model": "m", "members": ["a", "b@2"], "data": "valid.jsonl", "vocabulary": "v.ttl"}
    assert service.jobs["job-0"]["fields"] == fields
    assert service.jobs["job-1"]["fields"] == {"model": "m", "vocabulary": "v.ttl", "version": 2}
    assert [job.kind for job in client.jobs()] == ["combine", "vocabulary"]


def test_waiting_for_a_job_ends(client: xylem.Client, service: StubService) -> None:
    job = client.train("m", "ovr", "train.jsonl")
    service.jobs[job.id]["looks"] = 10
    with pytest.raises(xylem.WaitTimeout, match=r"to end in 0\.3 s, found it queued"):
        client.wait(job.id, timeout=0.3)


def test_a_broken_download_begins_again(
    client: xylem.Client, service: StubService, tmp_path: Path
) -> None:
    to = tmp_path / "result.jsonl"
    assert client.download_result("job-0", to) == len(RESULT)
    assert to.read_bytes() == RESULT
    assert service.n_results == 2
    assert not list(tmp_path.glob("*.part"))


def test_files_go_up_and_away(client: xylem.Client, service: StubService, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes(RESULT)
    assert client.upload("train.jsonl", file) == xylem.DataFile("train.jsonl", len(RESULT))
    client.upload("a b", b"bytes")
    assert service.files == {"train.jsonl": RESULT, "a b": b"bytes"}
    assert client.data_files() == [
        xylem.DataFile("train.jsonl", len(RESULT)),
        xylem.DataFile("a b", 5),
    ]
    client.delete_data("a b")
    assert list(service.files) == ["train.jsonl"]
    with pytest.raises(FileNotFoundError):
        client.upload("x", tmp_path / "none")


def test_archives_down_and_up(client: xylem.Client, service: StubService, tmp_path: Path) -> None:
    (tmp_path / "m.tar.part").write_bytes(b"of another version")
    assert client.export_archive("m", tmp_path / "m.tar", version=3) == 10_000
    service.archive = b""
    assert client.import_archive("m", tmp_path / "m.tar") == {"model": "m", "version": 9}
    assert service.archive == b"an archive" * 1000


def test_the_registry_and_other_calls(client: xylem.Client, service: StubService) -> None:
    client.promote("m", 3, reason="better")
    client.rollback("m", to=2)
    client.history("m")
    model = "/v1/admin/models/m"
    client.call("DELETE", f"{model}/versions/2", with_aliases=True, reason=None)
    client.call("GET", "/v1/admin/audit", limit=5)
    client.call("POST", "/v1/admin/keys", name="shop", scopes=["predict"], lifetime_seconds=None)
    assert service.seen == [
        ("POST", f"{model}/promote", {"version": 3, "alias": "latest", "reason": "better"}),
        ("POST", f"{model}/rollback", {"alias": "latest", "to": 2}),
        ("GET", f"{model}/history", None),
        ("DELETE", f"{model}/versions/2?with_aliases=true", None),
        ("GET", "/v1/admin/audit?limit=5", None),
        ("POST", "/v1/admin/keys", {"name": "shop", "scopes": ["predict"]}),
    ]


async def test_the_asynchronous_client_does_the_same(service: StubService, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(RESULT)
    with running(service) as url:
        async with xylem.AsyncClient(url, KEY, retries=QUICK) as client:
            await client.upload("train.jsonl", tmp_path / "train.jsonl")
            job = await client.train("m", "ovr", "train.jsonl")
            assert [event.id async for event in client.events(job.id)] == ["1", "2", "3"]
            assert (await client.wait(job.id, 60)).state == "succeeded"
            assert await client.download_result(job.id, tmp_path / "result") == len(RESULT)
            assert (tmp_path / "result").read_bytes() == RESULT
            assert await client.promote("m", 4) == {"done": True}
    assert service.files == {"train.jsonl": RESULT}


OTHERS = {"httpcore", "h11", "orjson", "pydantic", "asyncio"}
OURS = {
    "xylem.base",
    "xylem_store.errors",
    "xylem_store.store",
    "xylem_store.compiled",
    "numba",
    "numpy",
}


@pytest.mark.parametrize(("module", "put_off"), [("xylem", OTHERS | OURS), ("xylem.errors", OURS)])
def test_importing_a_module_imports_little(module: str, put_off: set[str]) -> None:
    command = [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert put_off.isdisjoint(done.stdout.split())


def test_every_public_name_can_be_had() -> None:
    assert all(getattr(xylem, name) is not None for name in dir(xylem))
    assert (xylem.errors.BadInput, xylem.errors.StoreError) == (BadInput, StoreError)
    for module in (xylem, xylem.errors):
        with pytest.raises(AttributeError, match="has no attribute 'nope'"):
            module.nope  # noqa: B018
