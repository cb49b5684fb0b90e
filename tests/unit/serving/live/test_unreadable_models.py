"""What cannot be read of one model, and what lies about in a store:
other models are served and followed.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import serving, settings_of
from tests.helpers.small_models import small_draft

from xylem.admin.jobs.data import DataRoot
from xylem.base.errors import Unavailable
from xylem.serving.live.models import LiveModels, ModelUnavailable
from xylem_store.manifest import Manifest
from xylem_store.store import Store

NOBODY = 65534
DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that any user may enter."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    for directory, _, _ in os.walk(path, onerror=None):
        Path(directory).chmod(0o755)
    shutil.rmtree(path)


def as_nobody(
    action: Callable[[Callable[[], object]], Any], between: Callable[[], object] = int
) -> Any:
    """Do what a user does who may not read everything; root, as whom the tests may run, reads all.

    action   is given a function that waits until this process has done `between`; it returns JSON
    """
    (paused, pause), (begun, begin), (reading, writing) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            found = action(lambda: (os.write(pause, b"."), os.read(begun, 1)))
            os.write(pause, b".")
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        finally:
            os._exit(1)
    for end in (pause, writing):
        os.close(end)
    os.read(paused, 1)
    between()
    os.write(begin, b".")
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (paused, begun, begin):
        os.close(end)
    return json.loads(said)


Fault = Callable[[Path], object]


def closed(*names: str) -> Fault:
    return lambda models: models.joinpath(*names).chmod(0)


def made(directory: bool, *names: str) -> Fault:
    """Something that nobody can read, under no name of ours."""

    def make(models: Path) -> None:
        path = models.joinpath(*names)
        path.mkdir() if directory else path.write_bytes(b"b0VIM 8.2")
        path.chmod(0)

    return make


def instead(directory: bool, *names: str) -> Fault:
    """A directory where a file was, or a file where a directory was."""

    def make(models: Path) -> None:
        path = models.joinpath(*names)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.mkdir() if directory else path.write_bytes(b"")

    return make


def linked(*names: str) -> Fault:
    """A link that leads nowhere, in the place of what was there."""

    def make(models: Path) -> None:
        instead(False, *names)(models)
        path = models.joinpath(*names)
        path.unlink()
        path.symlink_to(models / "nowhere")

    return make


STRAY: dict[str, Fault] = {
    "lost+found": made(True, "lost+found"),
    "a file": made(False, "README"),
    "a hidden directory": made(True, ".snapshot"),
    "a link to nowhere": lambda models: (models / "gone").symlink_to(models / "nowhere"),
    "an empty directory": lambda models: (models / "empty").mkdir(),
    "an editor's file": made(False, "bad", "aliases", ".latest.json.swp"),
    "a copy of an alias": made(False, "bad", "aliases", "latest.json~"),
    "a directory of aliases": made(True, "bad", "aliases", "lost+found"),
    "a file of versions": made(False, "bad", "versions", "7"),
    "a directory of versions": made(True, "bad", "versions", "lost+found"),
    "a link of versions": lambda models: (models / "bad" / "versions" / "7").symlink_to("nowhere"),
    "a file of a model": made(False, "bad", ".label_info.swp"),
}
"""What has no name of ours, or is nothing that we make under that name: it is passed over."""

BROKEN: dict[str, Fault] = {
    "the model": closed("bad"),
    "its versions": closed("bad", "versions"),
    "its aliases": closed("bad", "aliases"),
    "an alias": closed("bad", "aliases", "latest.json"),
    "a directory for an alias": instead(True, "bad", "aliases", "latest.json"),
    "a link for an alias": linked("bad", "aliases", "latest.json"),
    "the version": closed("bad", "versions", "1"),
    "its manifest": closed("bad", "versions", "1", "manifest.json"),
    "a directory for a manifest": instead(True, "bad", "versions", "1", "manifest.json"),
    "a link for a manifest": linked("bad", "versions", "1", "manifest.json"),
    "its arrays": closed("bad", "versions", "1", "arrays"),
    "a file for the arrays": instead(False, "bad", "versions", "1", "arrays"),
    "an array": closed("bad", "versions", "1", "arrays", "labels.utf8.npy"),
}
"""What makes that the model cannot be served: it is named, and nothing else is."""


def live_of(store: Path) -> LiveModels[Manifest]:
    return LiveModels(Store(store), lambda model: model.manifest, openings_max=9, seconds_max=60)


def status_of(live: LiveModels[Manifest]) -> dict[str, Any]:
    status = live.status()
    return {
        "served": {
            f"{model}@{alias}": found.version
            for model, alias in live.aliases
            if (found := live.resident(model, alias)) is not None
        },
        "failures": sorted({failure.model for failure in status.failures}),
        "store_error": status.store_error,
        "ready": live.ready,
    }


def publish(root: Path) -> Store:
    store = Store(root / "store")
    for name in ("bad", "good", "zone"):
        store.publish(name, DRAFT)
    return store


@pytest.mark.parametrize("fault", [*STRAY.values(), *BROKEN.values()], ids=[*STRAY, *BROKEN])
def test_others_are_served_at_the_start(root: Path, fault: Fault) -> None:
    store = publish(root)
    fault(store.root / "models")

    def look(_: object) -> dict[str, Any]:
        live = live_of(store.root)
        live.look()
        return status_of(live)

    served = {"bad@latest": 1} if fault in STRAY.values() else {}
    failures = [] if served else ["bad"]
    others = {"good@latest": 1, "zone@latest": 1}
    expected = {
        "served": {**served, **others},
        "failures": failures,
        "store_error": None,
        "ready": True,
    }
    assert as_nobody(look) == expected


@pytest.mark.parametrize("fault", [*STRAY.values(), *BROKEN.values()], ids=[*STRAY, *BROKEN])
def test_others_are_followed_later_and_what_was_served_stays(root: Path, fault: Fault) -> None:
    store = publish(root)

    def look(pause: Callable[[], object]) -> dict[str, Any]:
        live = live_of(store.root)
        live.look()
        pause()
        live.look()
        return status_of(live)

    def change() -> None:
        fault(store.root / "models")
        store.publish("good", DRAFT)

    found = as_nobody(look, change)
    assert found["served"] == {"bad@latest": 1, "good@latest": 2, "zone@latest": 1}
    assert found["store_error"] is None and found["ready"]
    assert found["failures"] in ([], ["bad"])


def test_a_model_that_can_be_read_again_is_served(root: Path) -> None:
    store = publish(root)
    home = store.root / "models" / "bad"
    home.chmod(0)

    def look(pause: Callable[[], object]) -> list[dict[str, Any]]:
        live = live_of(store.root)
        live.look()
        before = status_of(live)
        with pytest.raises(ModelUnavailable, match="bad"):
            live.version_of("bad", "latest")
        pause()
        live.look()
        return [before, status_of(live)]

    before, after = as_nobody(look, lambda: home.chmod(0o755))
    assert before["failures"] == ["bad"] and "bad@latest" not in before["served"]
    assert after["failures"] == [] and after["served"]["bad@latest"] == 1


def test_the_command_lists_them(root: Path) -> None:
    store = publish(root)
    for name, fault in {**STRAY, "": BROKEN["its versions"]}.items():
        if name != "a link of versions":
            fault(store.root / "models")
    infos = as_nobody(
        lambda _: [(info.name, str(info.fault or "")) for info in Store(store.root).models()]
    )
    assert [name for name, _ in infos] == ["bad", "good", "zone"]
    assert "versions" in infos[0][1] and [fault for _, fault in infos[1:]] == ["", ""]


async def test_readyz_names_the_model(root: Path) -> None:
    store = publish(root)
    BROKEN["a directory for an alias"](store.root / "models")  # which root cannot read either
    async with serving(settings_of(store.root)) as (_, client):
        found = (await client.get("/readyz")).json()
        body = {"instances": [{"indices": [], "values": []}]}
        refused = await client.post("/v1/models/bad/predict", json=body)
    assert found["status"] == "ready" and [each["model"] for each in found["failures"]] == ["bad"]
    assert found["failures"][0]["ref"] == "latest"
    assert found["failures"][0]["detail"] == "the alias's file is damaged"
    assert sorted(each["model"] for each in found["models"]) == ["good", "zone"]
    assert (refused.status_code, refused.json()["code"]) == (503, "model-unavailable")


def test_a_data_directory_is_listed_without_what_cannot_be_read(root: Path) -> None:
    data = root / "data"
    (data / "more").mkdir(parents=True)
    (data / "more" / "rows.jsonl").write_text("{}")
    made(True, "lost+found")(data)
    made(False, "more", "closed.jsonl")(data)
    (data / "gone").symlink_to("nowhere")
    listed = as_nobody(lambda _: [file.name for file in DataRoot(data, 1000).list()])
    assert listed == ["more/closed.jsonl", "more/rows.jsonl"]
    data.chmod(0)

    def refused(_: object) -> str:
        with pytest.raises(Unavailable) as error:
            DataRoot(data, 1000).list()
        return str(error.value)

    assert "data directory" in as_nobody(refused)
