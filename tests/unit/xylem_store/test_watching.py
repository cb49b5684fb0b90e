"""A watch follows a store: at once by its journal, and by sweeps what no writer has noted."""

import os
import shutil
from pathlib import Path

import pytest
from tests.helpers.alias_helpers import file_of
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

import xylem_store.watching as watching_module
from xylem_store.errors import StoreUnreadable
from xylem_store.files import JOURNAL_BYTES_MAX
from xylem_store.identifiers import JOURNAL
from xylem_store.store import Store
from xylem_store.watching import StoreWatch

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)


class Counted(QuickFileSystem):
    """Counts the models that are looked at."""

    def __init__(self) -> None:
        self.n_stamped = 0

    def names(self, path: str) -> list[str]:
        self.n_stamped += 1
        return super().names(path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with the models a to d."""
    store = Store(tmp_path / "s", fs=Counted())
    for name in "abcd":
        store.publish(name, DRAFT)
    return store


def without_sweeps(store: Store, monkeypatch: pytest.MonkeyPatch) -> StoreWatch:
    """Return a watch that has looked once, and whose next sweep is far away."""
    monkeypatch.setattr(watching_module, "SWEEP_PART", 1e-12)
    monkeypatch.setattr(watching_module, "SWEEP_SECONDS_MAX", 1e6)
    watch = store.watch()
    assert watch.look()
    return watch


def stamped(store: Store) -> int:
    """Return how many models were looked at since the last call."""
    fs = store._files.fs
    assert isinstance(fs, Counted)
    n_stamped = fs.n_stamped
    fs.n_stamped = 0
    return n_stamped


def test_a_look_reads_only_what_writers_have_noted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = without_sweeps(store, monkeypatch)
    assert list(watch.models) == ["a", "b", "c", "d"]
    stamped(store)
    assert not watch.look() and stamped(store) == 0
    store.publish("b", DRAFT)
    store.publish("e", DRAFT)
    store.delete_model("c")
    assert watch.look() and stamped(store) == 3
    assert sorted(watch.models.values()) == store.models()
    assert not watch.look() and stamped(store) == 0


def test_a_model_that_is_copied_in_is_seen_by_a_sweep(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = Store(tmp_path / "other", fs=QuickFileSystem())
    other.publish("x", DRAFT)
    watch = without_sweeps(store, monkeypatch)
    shutil.copytree(other.root / "models" / "x", store.root / "models" / "x")
    shutil.rmtree(store.root / "models" / "a")
    assert not watch.look()
    watch._sweep_at = 0.0
    assert watch.look() and sorted(watch.models) == ["b", "c", "d", "x"]


def test_what_changes_by_hand_is_seen_by_a_sweep(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = without_sweeps(store, monkeypatch)
    file = file_of(store, "a")
    content = file.read_bytes()
    for changed in (content[:-5], content):
        file.write_bytes(changed)
        watch._sweep_at = 0.0
        assert watch.look()
        assert watch.models["a"].broken_aliases == (() if changed == content else ("latest",))


def test_a_change_within_the_same_tick_is_seen(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of a file are those of a clock that ticks slowly."""
    watch = without_sweeps(store, monkeypatch)
    file = file_of(store, "a")
    times = file.stat()
    content = file.read_bytes()
    monkeypatch.setattr(
        StoreWatch, "_fingerprint", lambda watch, name: watch._unsettled.add(name) or 1
    )
    file.write_bytes(b"x" * len(content))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    watch._sweep_at = 0.0
    watch.look()
    assert watch.models["a"].broken_aliases == ("latest",)
    file.write_bytes(content)
    watch._sweep_at = 0.0
    assert watch.look() and watch.models["a"].broken_aliases == ()


@pytest.mark.parametrize("fault", ["removed", "cut", "a directory", "other bytes"])
def test_a_journal_that_is_not_as_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    watch = without_sweeps(store, monkeypatch)
    journal = store.root / JOURNAL
    if fault == "removed":
        journal.unlink()
    elif fault == "cut":
        journal.write_bytes(b"")
    elif fault == "a directory":
        journal.unlink()
        journal.mkdir()
    else:
        with journal.open("ab") as file:
            file.write(b"../x\n\xff\n\nNot A Model\nb")
    watch.look()
    store.publish("b", DRAFT)
    watch.look()
    watch._sweep_at = 0.0
    watch.look()
    assert sorted(watch.models.values()) == store.models()


def test_a_long_journal_begins_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = without_sweeps(store, monkeypatch)
    with (store.root / JOURNAL).open("ab") as file:
        file.write(b"a\n" * (JOURNAL_BYTES_MAX // 2))
    store.publish("b", DRAFT)
    assert not (store.root / JOURNAL).exists()
    assert watch.look() and watch.models["b"].versions == (1, 2)
    store.publish("b", DRAFT)
    assert watch.look() and watch.models["b"].versions == (1, 2, 3)


def test_a_store_without_models_is_not_believed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = without_sweeps(store, monkeypatch)
    models = store.root / "models"
    models.rename(store.root / "elsewhere")
    watch._sweep_at = 0.0
    for _ in range(2):
        with pytest.raises(StoreUnreadable, match="is the disk still there"):
            watch.look()
    (store.root / "elsewhere").rename(models)
    watch.look()
    assert sorted(watch.models.values()) == store.models()
