"""Two replicas that follow an S3: what is pushed is served by both, whatever becomes of the S3."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import Command, answer
from tests.helpers.alias_helpers import deny
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.replicas import listens, reserved_ports, wait_until
from tests.helpers.served_models import publish_model
from tests.helpers.servers import ServerProcess, wait_for
from tests.helpers.small_models import small_draft

from xylem.admin.registry.follower import RemoteFollower
from xylem.admin.registry.remote import RemoteStore, RemoteVersion
from xylem_store.alias import Alias, promoted
from xylem_store.label_info import Subject, build_label_info
from xylem_store.remote_index import RemoteIndex, RemoteModel
from xylem_store.store import Store

MOTO = Path(__file__).resolve().parents[2] / ".venv-clients" / "bin" / "moto_server"
URL = "s3://models/xylem"
RAW = {"instances": [{"indices": [1, 2], "values": [1.0, 0.5]}]}
ADMIN = {"authorization": "Bearer correct-horse-battery-staple"}


class S3(NamedTuple):
    """A real S3 over HTTP, in a process of its own, which logs the requests."""

    process: subprocess.Popen[bytes]
    log: Path

    def requests(self) -> list[tuple[str, str, str]]:
        """Return the method, the path and the status of each request so far."""
        plain = re.sub(r"\x1b\[\d+m", "", self.log.read_text())
        return re.findall(r'"([A-Z]+) (\S+) HTTP/1\.1" (\d+)', plain)


@contextmanager
def running_s3(log: Path, port: int) -> Iterator[S3]:
    """Run an S3 until the block ends; skips where it is not installed."""
    if not MOTO.exists():
        pytest.skip("moto_server is not installed (make test-system does)")
    command = [MOTO, "-H", "127.0.0.1", "-p", str(port)]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL) as process,
    ):
        try:
            wait_until(lambda: process.poll() is None and listens(port))
            yield S3(process, log)
        finally:
            process.kill()


def environment_of(port: int) -> dict[str, str]:
    """By which clients find an S3 on a port; it is no secret who they say they are."""
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "correct-horse"}
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        **keys,
    }


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3]:
    with reserved_ports(1) as [port], running_s3(tmp_path / "requests.log", port) as server:
        for name, value in environment_of(port).items():
            monkeypatch.setenv(name, value)
        RemoteStore(URL)._fs.mkdir("models")
        yield server


def predict(server: ServerProcess, **options: Any) -> Any:
    status, found = server.ask("POST", "/v1/models/m/predict", {**RAW, **options})
    assert status == 200, found
    return found


def served(*servers: ServerProcess) -> list[int]:
    return [predict(server)["version"] for server in servers]


def test_what_is_pushed_is_served_and_the_store_may_go(
    s3: S3, tmp_path: Path, command: Command
) -> None:
    trained = Store(tmp_path / "trained")
    for seed in (1, 2, 3):
        publish_model(trained, "m", "raw", seed=seed)

    def pull(alias: str) -> tuple[int, str, str]:
        return command("models", "pull", f"m@{alias}", URL, "--json", store=tmp_path / "pulled")

    push = "models", "push", "m@1", URL, "--alias", "latest", "--json"
    assert answer(command(*push, store=trained.root))["aliases"] == ["latest"]
    assert answer(pull("latest"))["version"] == 1
    status, _, err = pull("stable")
    assert (status, "one of latest, found 'stable'" in err) == (2, True)
    remote = RemoteStore(URL)

    def move(version: RemoteVersion) -> None:
        remote.change("m", {"latest": promoted(version.version)}, version)

    options = {
        "store_remote": URL,
        "store_remote_poll_seconds": 0.2,
        "admin_key": ADMIN["authorization"][7:],
    }
    with (
        ServerProcess(tmp_path / "a", **options) as one,
        ServerProcess(tmp_path / "b", **options) as two,
    ):
        assert served(one, two) == [1, 1]
        move(remote.push(trained, "m", 2))
        wait_for(lambda: served(one, two) == [2, 2])
        status, problem = one.ask("POST", "/v1/admin/models/m/promote", {"version": 1}, **ADMIN)
        assert (status, problem["code"]) == (409, "conflict")
        assert f"follows {URL}" in problem["detail"]
        half = remote.push(trained, "m", 3)
        path = remote._version_path("m", half)
        remote._fs.pipe_file(path, remote._fs.cat_file(path)[:2000])
        move(half)
        wait_for(lambda: bool(one.events("remote_failed")) and bool(two.events("remote_failed")))
        assert served(one, two) == [2, 2]
        s3.process.kill()
        wait_for(lambda: len(one.events("remote_failed")) > 1)
        assert served(one, two) == [2, 2]
        assert "correct-horse" not in "".join(
            event["detail"] for event in one.events("remote_failed")
        )
        assert one.terminate() == two.terminate() == 0
    status, _, err = pull("latest")
    assert (status, f"{URL}: expected to read the index, found " in err) == (1, True)


def test_names_and_denied_labels_reach_running_replicas(
    s3: S3, tmp_path: Path, command: Command
) -> None:
    trained, pulled = Store(tmp_path / "trained"), Store(tmp_path / "pulled")

    def models(*arguments: str, store: Path = trained.root) -> tuple[int, str, str]:
        return command("models", *arguments, store=store)

    publish_model(trained, "m", "raw")
    trained.put_label_info("m", build_label_info([Subject("label::1", None, {"en": "dog"})]))
    deny(trained, "m", ["label::2"])
    assert len(answer(models("push", "m", URL, "--alias", "latest", "--json"))["label_info"]) == 64
    assert models("pull", "m@latest", URL, store=pulled.root)[0] == 0
    assert pulled.label_info_head("m") == trained.label_info_head("m") is not None
    options = {"store_remote": URL, "store_remote_poll_seconds": 0.2}
    with (
        ServerProcess(tmp_path / "a", **options) as one,
        ServerProcess(tmp_path / "b", **options) as two,
    ):

        def names(server: ServerProcess) -> dict[str, str | None]:
            labels = predict(server, top_r=11, language="en")["predictions"][0]["labels"]
            return {label["label"]: label["name"] for label in labels}

        assert names(one) == names(two)
        assert names(one)["label::1"] == "dog" and "label::2" not in names(one)
        denied = ("deny", "m", "--label", "label::3", "--url", URL)
        assert models(*denied)[:2] == (0, "m: latest denies 2 labels\n  label::2\n  label::3\n")
        wait_for(lambda: "label::3" not in names(one) and "label::3" not in names(two))
        status, _, err = models("deny", "m", "--label", "lable::3", "--url", URL)
        assert (status, "found 'lable::3'" in err) == (2, True)
        assert models(*denied, "--allow-again")[0] == 0
        wait_for(lambda: "label::3" in names(one) and "label::3" in names(two))
        trained.put_label_info("m", build_label_info([Subject("label::1", None, {"en": "hound"})]))
        assert models("push", "m", URL)[0] == 0
        wait_for(lambda: names(one)["label::1"] == names(two)["label::1"] == "hound")
        assert "label::2" not in names(one)


def test_conditions_are_the_servers(s3: S3) -> None:
    """What another has written since it was read, or made since it
    was not there, is not written over.
    """
    late, one, two = RemoteStore(URL), RemoteStore(URL), RemoteStore(URL)
    model = RemoteModel({"latest": Alias(1)}, {1: "0" * 64})
    assert late.index() == RemoteIndex()
    assert one._write(RemoteIndex(1, {"m": model}))
    assert not late._write(RemoteIndex(1, {"n": model}))
    assert two.index() == one.index()
    assert one._write(RemoteIndex(2, {"m": model}))
    assert not two._write(RemoteIndex(2, {"n": model}))
    assert two.index() == RemoteIndex(2, {"m": model})


@pytest.mark.parametrize("n_models", [1, 200])
def test_a_look_at_any_number_of_models_is_one_request(
    s3: S3, tmp_path: Path, n_models: int
) -> None:
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    draft = small_draft(n_labels=3, n_features=40, n_trees=1)
    digests = {f"m-{i}": store.publish(f"m-{i}", draft).digest for i in range(n_models)}
    idle = {
        name: RemoteModel({"latest": Alias(1)}, {1: digest}) for name, digest in digests.items()
    }
    remote = RemoteStore(URL)
    assert remote._write(RemoteIndex(1, idle))
    follower = RemoteFollower(RemoteStore(URL), store, poll_seconds=3600, keep=0)
    assert follower.look()
    before = len(s3.requests())
    assert all(follower.look() for _ in range(5))
    assert s3.requests()[before:] == [("GET", "/models/xylem/index.json", "304")] * 5
    remote.change("m-0", {"stable": promoted(1)}, remote.push(store, "m-0", 1))
    before = len(s3.requests())
    assert (
        follower.look()
    )  # what has changed is read once, and only the model that did is looked at
    assert s3.requests()[before:] == [("GET", "/models/xylem/index.json", "200")]
    assert store.info("m-0").aliases == {"latest": 1, "stable": 1}
