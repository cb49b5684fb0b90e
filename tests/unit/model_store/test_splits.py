"""Splits in a store: what is refused, what ends them, and who does not know of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_store.aliases import Alias, render_alias
from model_store.errors import (
    AliasNotFound,
    BadSplit,
    Conflict,
    Corrupt,
    ModelNotFound,
    NothingToRollBack,
    VersionInUse,
    VersionNotFound,
)
from model_store.splits import PARTS, Split, parse_split, render_split
from model_store.store import Store
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
CANARY = Split(3, 2, 1000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    for _ in range(3):
        store.publish("m", DRAFT)
    return store


@pytest.mark.parametrize(
    "split", [CANARY, Split(3, None, 0, 1, PARTS), Split(3, 2, 1, 1, 1), Split(1, 2, PARTS - 1, 2, 5)]
)
def test_a_split_is_what_was_written(split: Split) -> None:
    assert parse_split(render_split(split), "there") == split


@pytest.mark.parametrize(
    ("split", "fault"),
    [
        (Split(3), "expected a canary or a shadow, found neither"),
        (Split(3, 2, 0), "canary: expected 1 to 9999 of 10000 parts, found 0"),
        (Split(3, 2, PARTS), "canary: expected 1 to 9999 of 10000 parts, found 10000"),
        (Split(3, 2, -1), "found -1"),
        (Split(3, None, 5, 1, 5), "canary: expected a version for its 5 of 10000 parts, found none"),
        (Split(3, 2, 5, 1, PARTS + 1), "shadow: expected 1 to 10000 of 10000 parts, found 10001"),
        (Split(3, 3, 5), "canary: expected another version than the alias names, found 3"),
        (Split(3, None, 0, 3, 5), "shadow: expected another version"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(store: Store, split: Split, fault: str) -> None:
    with pytest.raises(BadSplit, match=fault):
        store.put_split("m", "latest", split)
    with pytest.raises(Corrupt):
        parse_split(render_split(split), "there")
    assert store.split("m") is None


def test_what_is_not_a_split_is_refused() -> None:
    whole = render_split(CANARY)
    for i in range(len(whole)):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            with pytest.raises(Corrupt):
                parse_split(damaged, "there")
    for body in (b"{}", b'{"stable": 1, "canary": "2", "weight": 1, "shadow": null, "share": 0}'):
        with pytest.raises(Corrupt):
            parse_split(body, "there")


def test_versions_that_are_not_there(store: Store) -> None:
    with pytest.raises(VersionNotFound):
        store.put_split("m", "latest", Split(3, 4, 10))
    with pytest.raises(Conflict, match="expected latest to name 2, found 3"):
        store.put_split("m", "latest", Split(2, 1, 10))
    with pytest.raises(AliasNotFound):
        store.put_split("m", "stable", CANARY)
    with pytest.raises(AliasNotFound):
        store.end_split("m", "stable")
    with pytest.raises(ModelNotFound):
        store.end_split("n", "latest")
    assert not (store.root / "models" / "m" / "splits").exists() or store.info("m").splits == {}


def test_moves_end_a_split(store: Store) -> None:
    def put() -> None:
        store.put_split("m", "latest", Split(store.alias("m").version, 1, 1000))
        assert store.info("m").splits["latest"].canary == 1

    put()
    assert store.rollback("m") == 3  # the canary ends, the alias stays
    assert store.split("m") is None
    put()
    store.end_split("m", "latest")
    assert store.split("m") is None
    put()
    store.promote("m", 3)  # what it names already
    assert store.split("m") is None
    put()
    store.publish("m", DRAFT)
    assert (store.alias("m").version, store.split("m")) == (4, None)
    put()
    store.publish("m", DRAFT, latest=False)  # which moves no alias
    assert store.split("m") == Split(4, 1, 1000)
    store.promote("m", 1)
    assert (store.alias("m").version, store.split("m")) == (1, None)
    assert store.rollback("m") == 4
    assert store.split("m") is None


def test_a_step_back_leads_back_beside_a_shadow_alone(store: Store) -> None:
    store.put_split("m", "latest", Split(3, None, 0, 1, PARTS))
    assert store.rollback("m") == 2
    assert store.split("m") is None
    store.promote("m", 3, "fresh")
    store.put_split("m", "fresh", Split(3, None, 0, 1, PARTS))
    with pytest.raises(NothingToRollBack):
        store.rollback("m", "fresh")
    assert store.split("m", "fresh") is not None


def test_versions_of_a_split_stay(store: Store) -> None:
    store.put_split("m", "latest", Split(3, 2, 10, 1, 10))
    for version, user in ((1, "shadow of latest"), (2, "canary of latest"), (3, "latest")):
        with pytest.raises(VersionInUse, match=f"expected no alias to name it, found {user}"):
            store.delete("m", version)
    store.end_split("m", "latest")
    store.delete("m", 1)
    assert store.versions("m") == (2, 3)
    store.put_split("m", "latest", CANARY)
    assert store.delete_model("m") == (2, 3)
    store.publish("m", DRAFT)
    assert store.split("m") is None


def test_a_writer_that_knows_of_no_splits(store: Store) -> None:
    """It moves the alias and leaves the split: which does not count, and never comes back into force."""
    store.put_split("m", "latest", CANARY)
    file = store.root / "models" / "m" / "aliases" / "latest"
    file.write_bytes(render_alias(Alias(1, (3,))))
    assert store.split("m") is None
    assert store.info("m").splits == {}
    store.delete("m", 2)
    store.rollback("m")
    assert (store.alias("m").version, store.split("m")) == (3, None)


def test_a_damaged_split_leaves_the_alias(store: Store) -> None:
    before = store.watch().generation()
    store.put_split("m", "latest", CANARY)
    put = store.watch().generation()
    (store.root / "models" / "m" / "splits" / "latest").write_bytes(b"half")
    assert before != put
    assert store.watch().generation() not in (before, put)
    info = store.info("m")
    assert (info.aliases, info.splits, info.broken_splits) == ({"latest": 3}, {}, ("latest",))
    with pytest.raises(Corrupt, match="m: split of latest"):
        store.split("m")
    store.end_split("m", "latest")
    assert store.info("m").broken_splits == ()


def test_latest_without_a_file_gets_one_first(store: Store) -> None:
    (store.root / "models" / "m" / "aliases" / "latest").unlink()
    store.put_split("m", "latest", CANARY)
    store.publish("m", DRAFT, latest=False)
    assert (store.alias("m").version, store.split("m")) == (3, CANARY)
