"""The watch tells every change, and reads nothing that did not change."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from model_store import watch
from model_store.errors import StoreUnreadable
from model_store.fs import Entry, Stamp
from model_store.store import Store
from tests.alias_helpers import deny, split
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
LONG_AGO_NS = 60 * 10**9


class CountingFileSystem(QuickFileSystem):
    """Counts what is read; `is_old`: all that is there changed a minute ago, by its times."""

    def __init__(self) -> None:
        self.n_reads = 0
        self.n_stamps = 0
        self.is_old = False
        self.frozen: Stamp | None = None

    def entries(self, path: Path) -> list[Entry]:
        self.n_reads += 1
        return super().entries(path)

    def read(self, path: Path, bytes_max: int) -> bytes:
        self.n_reads += 1
        return super().read(path, bytes_max)

    def stamp(self, path: Path) -> Stamp:
        self.n_stamps += 1
        found = self.frozen or super().stamp(path)
        return found._replace(changed_ns=found.changed_ns - LONG_AGO_NS) if self.is_old else found


@pytest.fixture
def fs() -> CountingFileSystem:
    return CountingFileSystem()


@pytest.fixture
def store(tmp_path: Path, fs: CountingFileSystem) -> Store:
    store = Store(tmp_path / "store", fs=fs)
    store.publish("m", DRAFT)
    return store


@pytest.mark.parametrize("is_old", [False, True])
def test_every_change_is_seen(store: Store, fs: CountingFileSystem, is_old: bool) -> None:
    fs.is_old = is_old
    watched, seen = store.watch(), [store.watch().generation()]
    assert watched.generation() == seen[0]
    for change in (
        lambda: store.publish("m", DRAFT),
        lambda: store.promote("m", 1),
        lambda: store.promote("m", 1, "stable"),
        lambda: split(store, "m", (2, 500), alias="stable"),
        lambda: split(store, "m", alias="stable"),
        lambda: deny(store, "m", ["label::1"], "stable"),
        lambda: store.delete("m", 2),
        lambda: store.publish("n", DRAFT),
        lambda: store.delete_alias("m", "stable"),
    ):
        time.sleep(0.02)  # more than a tick of the clock that files get their times of
        change()
        found = watched.generation()
        assert found != seen[-1]
        assert found == Store(store.root).watch().generation()
        seen.append(found)


def test_what_has_not_changed_is_not_read(store: Store, fs: CountingFileSystem) -> None:
    fs.is_old = True
    watched = store.watch()
    found = watched.generation()
    fs.n_reads = fs.n_stamps = 0
    assert watched.generation() == found
    assert (fs.n_reads, fs.n_stamps) == (0, 2 + 3)
    store.publish("n", DRAFT)
    fs.n_reads = 0
    watched.generation()
    assert fs.n_reads == 1 + 2 + 1  # the models; versions, aliases and the alias of the new one


def test_what_has_just_changed_is_read_again(store: Store, fs: CountingFileSystem) -> None:
    """Two changes within a tick of the clock leave one time."""
    fs.frozen = fs.stamp(store.root)
    watched = store.watch()
    before = watched.generation()
    store.promote("m", 1, "stable")
    assert watched.generation() != before
    fs.is_old = True
    before = watched.generation()
    store.promote("m", 1, "other")
    assert watched.generation() == before, "the times said that nothing changed: what is this test of?"


def test_a_thorough_look_sees_a_file_that_was_written_in_place(
    store: Store, fs: CountingFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.is_old = True
    watched = store.watch()
    before = watched.generation()
    alias = store.root / "models" / "m" / "aliases" / "latest.json"
    alias.chmod(0o644)
    alias.write_text("{}")
    assert watched.generation() == before
    now = time.monotonic()
    monkeypatch.setattr(watch.time, "monotonic", lambda: now + watch.THOROUGH_SECONDS)
    assert watched.generation() != before


def test_a_store_that_is_not_there(tmp_path: Path, store: Store, fs: CountingFileSystem) -> None:
    fs.is_old = True
    watched = store.watch()
    before = watched.generation()
    store.root.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnreadable, match="expected the directory of the models, found none"):
        watched.generation()
    store.root.write_text("")
    with pytest.raises(StoreUnreadable, match="expected the directory of the models, found a file"):
        watched.generation()
    store.root.unlink()
    (tmp_path / "elsewhere").rename(store.root)
    assert watched.generation() == before


def test_an_empty_store_has_no_generation(tmp_path: Path) -> None:
    assert Store(tmp_path).watch().generation() == ()
