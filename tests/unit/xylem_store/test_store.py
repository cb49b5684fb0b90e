"""The store's own behaviour; faults, damage and races are in tests/crash."""

import dataclasses
import errno
import io
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import together
from tests.helpers.alias_helpers import deny, file_of, split
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem_store import errors, staging
from xylem_store.alias import BEFORE_MAX, Alias
from xylem_store.identifiers import VERSION_MAX
from xylem_store.reading import ModelInfo
from xylem_store.store import Store

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", fs=QuickFileSystem())


@pytest.fixture
def store(empty: Store) -> Store:
    """A store with m@1."""
    empty.publish("m", DRAFT)
    return empty


def test_publish_and_open(empty: Store) -> None:
    manifest = empty.publish("m", DRAFT)
    assert (manifest.model, manifest.version, manifest.n_labels) == ("m", 1, 3)
    assert empty.manifest("m", 1) == manifest
    model = empty.open("m")
    assert model.manifest == manifest
    for name, array in DRAFT.arrays().items():
        found = model.arrays[name]
        np.testing.assert_array_equal(found, array)
        assert type(found) is np.ndarray
        assert not found.flags.writeable
    assert model.ensemble._fields == DRAFT.ensemble._fields
    assert empty.publish("m", DRAFT).version == empty.resolve("m") == empty.resolve("m", "2") == 2
    assert empty.models() == [ModelInfo("m", (1, 2), {"latest": empty.alias("m")})]


def test_what_is_not_there(empty: Store) -> None:
    assert (empty.models(), empty.collect()) == ([], [])
    with pytest.raises(errors.ModelNotFound, match="found none named 'm'"):
        empty.open("m")
    assert not empty.root.exists()
    empty.publish("m", DRAFT)
    with pytest.raises(errors.VersionNotFound, match="m: expected one of its versions, found 2"):
        empty.open("m", 2)
    for read in (empty.verify, empty.manifest):
        with pytest.raises(errors.VersionNotFound):
            read("m", 2)
    with pytest.raises(errors.AliasNotFound, match="m: expected an alias, found 'stable'"):
        empty.open("m", "stable")
    for call in (empty.open, empty.rollback, lambda name: empty.delete(name, 1), empty.resolve):
        with pytest.raises(errors.ModelNotFound):
            call("other")
    assert not (empty.root / "models" / "other").exists()


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../m",
        "a/b",
        "/etc",
        "A",
        "a b",
        "-a",
        "_a",
        "a\x00",
        "a\n",
        "é",
        "a" * 64,
        7,
        None,
    ],
    ids=ascii,
)
def test_bad_names_are_refused_before_any_path_is_built(
    name: str, empty: Store, tmp_path: Path
) -> None:
    for call, *more in (
        *(
            (call,)
            for call in (empty.open, empty.versions, empty.alias, empty.resolve, empty.rollback)
        ),
        *((call, 1) for call in (empty.manifest, empty.verify, empty.promote, empty.delete)),
        (empty.publish, DRAFT),
        (lambda name: empty.import_(io.BytesIO(), name),),
    ):
        with pytest.raises(errors.InvalidName):
            call(name, *more)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "ref", [0, -1, True, 1.0, "0", "01", "1" * 10, "", "..", "1/..", VERSION_MAX + 1], ids=ascii
)
def test_bad_refs_are_refused(ref: int, store: Store) -> None:
    with pytest.raises(errors.InvalidName):
        store.open("m", ref)
    with pytest.raises(errors.InvalidName):
        store.promote("m", 1, str(ref) if isinstance(ref, int) else ref)  # type: ignore[arg-type]


def test_history_is_bounded(store: Store) -> None:
    store.publish("m", DRAFT)
    for number in range(BEFORE_MAX + 5):
        store.promote("m", 1 + number % 2)
    assert len(store.alias("m").before) == BEFORE_MAX


def test_an_alias_that_is_damaged_can_be_removed(store: Store) -> None:
    store.promote("m", 1, "stable")
    file_of(store, "m", "stable").write_bytes(b"damaged")
    assert store.models()[0].broken_aliases == ("stable",)
    store.delete_alias("m", "stable")
    assert store.models()[0].broken_aliases == ()


def test_a_deleted_version_stays_readable_for_who_has_it_open(store: Store) -> None:
    model = store.open("m")
    store.publish("m", DRAFT)
    store.delete("m", 1)
    np.testing.assert_array_equal(model.ensemble.dense, DRAFT.ensemble.dense)
    assert not list((store.root / "staging").iterdir())


def test_a_draft_that_breaks_the_format_is_not_written(empty: Store) -> None:
    parent = DRAFT.ensemble.parent.copy()
    parent[1] = 2
    bad = dataclasses.replace(DRAFT, ensemble=DRAFT.ensemble._replace(parent=parent))
    with pytest.raises(errors.Corrupt, match=r"ensemble\.parent\.npy\[1\]"):
        empty.publish("m", bad)
    with pytest.raises(errors.Corrupt, match="all numbers finite"):
        empty.publish("m", dataclasses.replace(DRAFT, metrics={"P@1": float("nan")}))
    with pytest.raises(errors.Corrupt, match="no extra array labels/utf8"):
        empty.publish("m", dataclasses.replace(DRAFT, extra={"labels/utf8": np.zeros(1)}))
    assert not empty.root.exists()


def test_foreign_files_are_passed_over(store: Store) -> None:
    home = store.root / "models"
    for path in (
        "README",
        "m/versions/README",
        "m/aliases/.nfs0001",
        "m/versions/1/arrays/more.npy",
    ):
        (home / path).write_text("x")
    for path in ("Not A Model", "m/versions/007", "m/versions/tmp", "empty"):
        (home / path).mkdir()
    (home / "m" / "versions" / "2").symlink_to(home / "m" / "versions" / "1")
    assert store.models() == [ModelInfo("m", (1,), {"latest": store.alias("m")})]
    store.verify("m", 1)
    store.watch().look()


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "staging").write_text("")
    for root, fault in (
        (tmp_path / "odd", "expected to write, found .* Not a directory"),
        (tmp_path / "file", "expected a directory, found a file"),
        (tmp_path / "file" / "store", "expected .* to be a directory, in which the store is made"),
        (tmp_path / "no" / "parent", "expected .* to be a directory, in which the store is made"),
    ):
        for call in (Store(root).prepare, lambda root=root: Store(root).publish("m", DRAFT)):
            with pytest.raises(errors.StoreUnwritable, match=fault):
                call()
        assert Store(root).models() == []


def test_reading_writes_nothing(store: Store) -> None:

    class ReadOnly(QuickFileSystem):
        def refuse(self, *_: object) -> int:
            raise OSError(errno.EROFS, "read-only")

        create = mkdir = rename = unlink = rmdir = lock = refuse  # type: ignore[assignment]

    readers = Store(store.root, fs=ReadOnly())
    readers.open("m")
    readers.verify("m", 1)
    readers.models()
    readers.watch().look()
    with pytest.raises(errors.StoreUnwritable, match="read-only"):
        readers.publish("m", DRAFT)


def test_an_alias_that_moves_while_its_version_is_deleted(store: Store) -> None:

    class Slow(QuickFileSystem):
        def read(self, path: Path | str, bytes_max: int) -> bytes:
            if str(path).endswith("/1/manifest.json"):
                store.publish("m", DRAFT)
                store.delete("m", 1)
            return super().read(path, bytes_max)

    assert Store(store.root, fs=Slow()).open("m").manifest.version == 2


def test_threads_publish_at_once(empty: Store) -> None:
    found = together(*[lambda: empty.publish("m", DRAFT).version] * 8)
    assert (sorted(found), empty.resolve("m")) == (list(range(1, 9)), 8)


def test_collect_leaves_the_living(store: Store) -> None:
    with staging.stage(QuickFileSystem(), store.root) as living:
        dead = store.root / "staging" / "dead"
        (dead / "version" / "arrays").mkdir(parents=True)
        (dead / "version" / "arrays" / "x.npy").write_text("x")
        (store.root / "staging" / "file").write_text("x")
        assert {path.name for path in store.collect()} == {"dead", "file"}
        assert list((store.root / "staging").iterdir()) == [living]
        store.publish("m", DRAFT)
        assert living.is_dir()
    assert store.collect() == []


def test_a_lock_that_is_held_too_long(store: Store) -> None:
    home = store.root / "models" / "m"
    with (
        staging.locked(QuickFileSystem(), home),
        pytest.raises(errors.StoreUnwritable, match=r"expected its lock within 0\.05 s"),
        staging.locked(QuickFileSystem(), home, seconds=0.05),
    ):
        pass
    with staging.locked(QuickFileSystem(), home, seconds=0):
        pass


def test_all_numbers_used(store: Store) -> None:
    versions = store.root / "models" / "m" / "versions"
    (versions / "1").rename(versions / str(VERSION_MAX))
    with pytest.raises(errors.StoreUnwritable, match="all numbers used"):
        store.publish("m", DRAFT)


def test_a_step_back_may_lead_further_back(store: Store) -> None:
    for _ in range(4):
        store.publish("m", DRAFT)
    assert store.rollback("m", to=3).version == 3
    assert store.alias("m")._replace(serial=0) == Alias(3, (1, 2))
    assert store.rollback("m", to=3).version == 3
    for gone in (4, 5, 9):
        with pytest.raises(
            errors.NothingToRollBack, match=f"expected version {gone} among the earlier ones"
        ):
            store.rollback("m", to=gone)
    store.delete("m", 2)
    with pytest.raises(errors.NothingToRollBack):
        store.rollback("m", to=2)
    last = store.rollback("m")
    assert (last.version, last.new_alias) == (1, store.alias("m"))
    with pytest.raises(
        errors.NothingToRollBack, match="m: expected an earlier version of latest, found none"
    ):
        store.rollback("m")


def test_every_change_is_seen(empty: Store) -> None:
    empty.prepare()
    watch = empty.watch()
    assert watch.look() is watch.look() is False
    for change in (
        *[lambda: empty.publish("m", DRAFT)] * 2,
        lambda: empty.promote("m", 1),
        lambda: empty.promote("m", 1, "stable"),
        lambda: split(empty, "m", (2, 500), alias="stable"),
        lambda: split(empty, "m", alias="stable"),
        lambda: deny(empty, "m", ["label::1"], "stable"),
        lambda: empty.delete("m", 2),
        lambda: empty.publish("n", DRAFT),
        lambda: empty.delete_alias("m", "stable"),
    ):
        change()
        assert watch.look() and not watch.look()
        assert list(watch.models.values()) == empty.models()


def test_a_store_that_is_gone_for_a_while(tmp_path: Path, store: Store) -> None:
    watch = store.watch()
    assert watch.look()
    store.root.rename(tmp_path / "elsewhere")
    with pytest.raises(
        errors.StoreUnreadable, match="expected the directory of the models, found none"
    ):
        watch.look()
    store.root.write_text("")
    with pytest.raises(
        errors.StoreUnreadable, match="expected the directory of the models, found a file"
    ):
        watch.look()
    store.root.unlink()
    (tmp_path / "elsewhere").rename(store.root)
    assert watch.look() is False and list(watch.models) == ["m"]
