"""R2 and R21: the power goes, or a call fails, at every single operation of a writer."""

import errno
import io
import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.helpers.alias_helpers import deny, split
from tests.helpers.faulty_fs import Disk, FaultyFileSystem, QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem_store.alias import Alias
from xylem_store.errors import ModelNotFound, StoreUnreadable, StoreUnwritable
from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
DENIED = ("label::0", "of another version")
INFO = build_label_info([Subject("label::0", None, {"en": "zero"})])


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Stores with 0, 1 and 2 versions, and litter of a dead writer."""
    home = tmp_path_factory.mktemp("templates")
    found = {versions: home / str(versions) for versions in (0, 1, 2)}
    for versions, root in found.items():
        store, litter = Store(root, fs=QuickFileSystem()), root / "staging" / "abandoned"
        for _ in range(versions):
            store.publish("m", DRAFT)
        litter.mkdir(parents=True)
        (litter / "half").write_bytes(b"half")
    return found


@pytest.fixture(scope="module")
def tar(templates: dict[int, Path]) -> bytes:
    file = io.BytesIO()
    Store(templates[2]).export("m", 1, file)
    return file.getvalue()


WRITERS: dict[str, tuple[int, Callable[[Store, bytes], object], set[int], int]] = {
    # versions before, the call, what `latest` may be afterwards, and
    # what it is when the call returned
    "prepare": (0, lambda store, _: store.prepare(), {0}, 0),
    "first publish": (0, lambda store, _: store.publish("m", DRAFT), {0, 1}, 1),
    "publish": (1, lambda store, _: store.publish("m", DRAFT), {1, 2}, 2),
    "import": (1, lambda store, tar: store.import_(io.BytesIO(tar), "m"), {1, 2}, 2),
    "promote": (2, lambda store, _: store.promote("m", 1), {2, 1}, 1),
    "rollback": (2, lambda store, _: store.rollback("m"), {2, 1}, 1),
    "delete": (2, lambda store, _: store.delete("m", 1), {2}, 2),
    "delete all": (2, lambda store, _: store.delete_model("m"), {2, 0}, 0),
    "unalias": (
        2,
        lambda store, _: (store.promote("m", 1, "s"), store.delete_alias("m", "s")),
        {2},
        2,
    ),
    "label info": (
        1,
        lambda store, _: (store.put_label_info("m", INFO), store.delete_label_info("m")),
        {1},
        1,
    ),
    "deny": (2, lambda store, _: (deny(store, "m", DENIED), deny(store, "m", ())), {2}, 2),
    "split": (2, lambda store, _: split(store, "m", (1, 500)), {2}, 2),
    "canary promoted": (
        2,
        lambda store, _: (split(store, "m", (1, 500)), store.promote("m", 1)),
        {2, 1},
        1,
    ),
    "split ended": (2, lambda store, _: (split(store, "m", (1, 500)), store.rollback("m")), {2}, 2),
    "collect": (1, lambda store, _: store.collect(), {1}, 1),
}


def tell_the_same(store: Store, model: str) -> None:
    """The last move of each alias says what its document does."""
    last = {move.alias: move for move in store.moves(model)}
    for name, alias in store.info(model).documents.items():
        if alias.serial > 0:  # `latest` may have none
            assert (last[name].id, last[name].to_version) == (alias.serial, alias.version)


def latest(store: Store) -> int:
    """Return the version that is served, 0 for none, having verified it and all others."""
    for info in store.models():
        for version in info.versions:
            store.verify("m", version)
    found = store.label_info("m")  # whole, or not there
    assert found is None or found.head == INFO.head
    for info in store.models():
        assert not info.broken_aliases
        assert {alias.denied for alias in info.documents.values()} <= {(), DENIED}
        tell_the_same(store, info.name)
    try:
        return store.open("m").manifest.version
    except ModelNotFound:
        return 0


def linked(source: str, target: str) -> None:
    """Link a file that nobody writes to, and copy the one that is appended to."""
    (shutil.copy if source.endswith("/moves") else os.link)(source, target)


def chosen(operation: str, number: int, full: bool) -> bool:
    """Every operation in the full size; else one in seven of those that files take by the dozen."""
    by_the_dozen = operation not in (
        "rename",
        "fsync_dir",
        "mkdir",
        "rmdir",
        "lock",
        "read",
        "append",
    )
    return full or number % 7 == 0 or not by_the_dozen


sizes = pytest.mark.parametrize(
    "full", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["quick", "soak"]
)


def power_lost(
    template: Path, home: Path, write: Callable[[Store], object], *, full: bool = True
) -> Iterator[tuple[int, str, Store, bool]]:
    """The store that is found when the power goes before a call of a
    writer, or, last, after all of them.

    It goes in three ways; what is said of it: the number of the call, the way, and whether it was
    the last.
    """
    root, fs, rng = home / "during", FaultyFileSystem(), random.Random(7)
    shutil.copytree(template, root)
    disk = Disk(root, template)
    write(Store(root, fs=fs))
    for number in range(len(fs.log) + 1):
        at_end = number == len(fs.log)
        for how in (
            ("lost", "kept", "mixed") if at_end or chosen(fs.log[number][0], number, full) else ()
        ):
            after = home / f"{number}-{how}"
            disk.lose_power(after, how, rng)
            yield number, how, Store(after, fs=QuickFileSystem()), at_end
            shutil.rmtree(after)
        if not at_end:
            disk.apply(*fs.log[number])


@sizes
@pytest.mark.parametrize("what", WRITERS)
def test_power_lost_at_every_operation(
    what: str, full: bool, tmp_path: Path, templates: dict[int, Path], tar: bytes
) -> None:
    versions, write, allowed, done = WRITERS[what]
    found_after = power_lost(
        templates[versions], tmp_path, lambda store: write(store, tar), full=full
    )
    for number, how, store, at_end in found_after:
        found = latest(store)
        assert found in ({done} if at_end else allowed), (number, how)
        if how == "mixed" and (full or number % 3 == 0):
            published = store.publish("m", DRAFT).version
            assert published > max(found, 0)
            assert latest(store) == published
            store.collect()
            assert not list((store.root / "staging").iterdir())


@sizes
@pytest.mark.parametrize("what", WRITERS)
def test_each_call_fails_once(
    what: str, full: bool, tmp_path: Path, templates: dict[int, Path], tar: bytes
) -> None:
    versions, write, allowed, done = WRITERS[what]
    whole = FaultyFileSystem()
    shutil.copytree(templates[versions], tmp_path / "whole")
    write(Store(tmp_path / "whole", fs=whole), tar)
    refused = 0
    for number, (operation, _, _) in enumerate(whole.log):
        if not chosen(operation, number, full):
            continue
        root = tmp_path / str(number)
        shutil.copytree(templates[versions], root, copy_function=linked)
        error = (errno.ENOSPC, errno.EIO, errno.EACCES)[number % 3]
        may_be = allowed
        try:
            write(Store(root, fs=FaultyFileSystem(number, error)), tar)
            may_be = {done}
        except (StoreUnwritable, StoreUnreadable) as refusal:
            refused += 1
            assert str(root) in str(refusal)
        store = Store(root, fs=QuickFileSystem())
        found = latest(store)
        assert found in may_be, number
        assert store.publish("m", DRAFT).version > found
        store.collect()
        assert not list((root / "staging").iterdir())
        shutil.rmtree(root)
    assert refused >= {"collect": 1, "prepare": 2}.get(what, 10)


def test_power_lost_while_a_canary_is_promoted(tmp_path: Path, templates: dict[int, Path]) -> None:
    """Readers see the canary, or the alias moved: never the alias where it was
    without its canary.
    """
    template = tmp_path / "template"
    shutil.copytree(templates[2], template)
    store = Store(template, fs=QuickFileSystem())
    split(store, "m", (1, 500), (1, 100))
    deny(store, "m", DENIED)
    before, after = store.alias("m"), list[Alias]()
    for number, how, store, at_end in power_lost(
        template, tmp_path, lambda store: after.append(store.promote("m", 1).new_alias)
    ):
        found = store.alias("m")
        assert found in (after if at_end else [before, *after]), (number, how)
        tell_the_same(store, "m")
        store.promote("m", 2)  # and what a crash has left behind never comes back into force
        assert (store.alias("m").version, store.alias("m").split_versions) == (2, ()), (number, how)
        tell_the_same(store, "m")


def test_a_first_version_is_never_seen_without_denied_labels(
    tmp_path: Path, templates: dict[int, Path], tar: bytes
) -> None:
    digest = Store(templates[2]).manifest("m", 1).digest
    n_seen = 0
    for number, how, store, _ in power_lost(
        templates[0], tmp_path, lambda store: store.mirror(io.BytesIO(tar), "m", 1, digest, DENIED)
    ):
        for info in store.models():
            n_seen += 1
            assert info.documents["latest"].denied == DENIED, (number, how)
    assert n_seen > 1


def test_disk_full_says_what_was_needed(tmp_path: Path) -> None:
    class Full(FaultyFileSystem):
        def free_bytes(self, path: Path) -> int:
            return 1234

    with pytest.raises(
        StoreUnwritable, match=rf"expected about {DRAFT.needed_bytes():,} bytes.*found 1,234"
    ):
        Store(tmp_path / "s", fs=Full()).publish("m", DRAFT)
    assert not list((tmp_path / "s" / "staging").iterdir())


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.ENOMEM], ids=errno.errorcode.get)
def test_reading_fails_with_a_type(error: int, templates: dict[int, Path]) -> None:
    refused = 0
    for number in itertools.count():
        fs = FaultyFileSystem(number, error)
        store = Store(templates[2], fs=fs)
        try:
            store.models()
            store.watch().look()
            store.open("m")
        except StoreUnreadable:
            refused += 1
        if len(fs.log) <= number:
            break
    assert refused > 20
