"""Denied labels in a store: what is refused, what stays with an alias, what goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_store.denied import DENIED_BYTES_MAX, DENIED_MAX, denied_labels, parse_denied, render_denied
from model_store.documents import render_sealed
from model_store.errors import AliasNotFound, BadNames, Conflict, Corrupt, ModelNotFound
from model_store.names import build_names, nearest_name
from model_store.splits import Split
from model_store.store import Store
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
SET = ("label::0", "not of this version")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    for _ in range(3):
        store.publish("m", DRAFT)
    store.promote("m", 1, "stable")
    return store


def test_a_set_is_what_was_written() -> None:
    labels = denied_labels(["b", "a", "b", "ä"])
    assert labels == ("a", "b", "ä")
    assert parse_denied(render_denied(labels), "there") == labels


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ([""], "empty name"),
        (["a\nb"], "control characters"),
        (["a" * 4097], "longer name"),
        ([f"label {i}" for i in range(DENIED_MAX + 1)], f"at most {DENIED_MAX} denied labels, found 10001"),
        ([f"{i:04d}" + "ä" * 1000 for i in range(200)], f"at most {DENIED_BYTES_MAX} bytes"),
    ],
)
def test_what_no_label_can_be_called_is_refused(store: Store, names: list[str], fault: str) -> None:
    with pytest.raises(BadNames, match=fault):
        store.put_denied("m", "latest", names)
    assert store.denied("m") == ()


def test_the_most_labels_are_kept(store: Store) -> None:
    most = [f"label {i}" for i in range(DENIED_MAX)]
    assert store.put_denied("m", "latest", most) == store.denied("m") == tuple(sorted(most))


@pytest.mark.parametrize(
    "document",
    [
        {"labels": "a"},
        {"labels": [1]},
        {"labels": ["b", "a"]},
        {"labels": ["a", "a"]},
        {"labels": [""]},
        {"labels": ["a"], "more": 1},
        {},
    ],
)
def test_a_damaged_set_is_told_and_can_be_replaced(store: Store, document: dict[str, object]) -> None:
    store.put_denied("m", "latest", SET)
    file = store.root / "models/m/denied/latest"
    file.chmod(0o644)
    file.write_bytes(render_sealed(document))
    with pytest.raises(Corrupt):
        store.denied("m")
    info = store.info("m")
    assert (info.denied, info.broken_denied) == ({}, ("latest",))
    with pytest.raises(Corrupt):
        store.put_denied("m", "latest", SET, expected=())
    store.put_denied("m", "latest", SET)
    assert store.denied("m") == SET


def test_a_set_stays_with_its_alias(store: Store) -> None:
    before = store.watch().generation()
    store.put_denied("m", "latest", SET)
    assert store.watch().generation() != before
    store.put_split("m", "latest", Split(3, 2, 1000))
    store.promote("m", 2)
    store.publish("m", DRAFT)
    store.rollback("m")
    assert (store.denied("m"), store.denied("m", "stable")) == (SET, ())
    assert store.info("m").denied == {"latest": SET}
    store.put_denied("m", "latest", ())
    assert (store.denied("m"), store.info("m").denied) == ((), {})


def test_a_set_goes_with_its_alias_and_its_model(store: Store) -> None:
    store.put_denied("m", "stable", SET)
    store.delete_alias("m", "stable")
    store.promote("m", 1, "stable")
    assert store.denied("m", "stable") == ()
    store.put_denied("m", "stable", SET)
    store.delete_model("m")
    store.publish("m", DRAFT)
    store.promote("m", 4, "stable")
    assert store.denied("m", "stable") == ()


def test_of_two_who_change_a_set_none_is_lost(store: Store) -> None:
    before = store.denied("m")
    store.put_denied("m", "latest", ["label::1"], expected=before)
    with pytest.raises(Conflict, match="somebody has changed"):
        store.put_denied("m", "latest", ["label::2"], expected=before)
    assert store.denied("m") == ("label::1",)
    store.put_denied("m", "latest", ["label::2"], expected=("label::1",))
    assert store.denied("m") == ("label::2",)


def test_there_is_no_set_of_what_is_not_there(store: Store) -> None:
    for alias, model, error in (("none", "m", AliasNotFound), ("latest", "n", ModelNotFound)):
        with pytest.raises(error):
            store.denied(model, alias)
        with pytest.raises(error):
            store.put_denied(model, alias, SET)


def test_of_two_who_change_a_split_none_is_lost(store: Store) -> None:
    nothing = Split(3)
    store.put_split("m", "latest", Split(3, None, 0, 1, 5), expected=nothing)
    with pytest.raises(Conflict, match="somebody has changed it"):
        store.end_split("m", "latest", expected=nothing)
    with pytest.raises(Conflict, match="somebody has changed it"):
        store.put_split("m", "latest", Split(3, 2, 1000), expected=nothing)
    assert store.split("m") == Split(3, None, 0, 1, 5)
    store.put_split("m", "latest", Split(3, 2, 1000, 1, 5), expected=Split(3, None, 0, 1, 5))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("role::progam", "role::program"),
        ("role::programm", "role::program"),
        ("Role::program", "role::program"),
        ("role::pro", None),
        ("ärgr", "ärger"),
        ("x", None),
        ("something else", None),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(name: str, meant: str | None) -> None:
    table = build_names(["role::program", "role::plugin", "ärger", "use::editing"])
    assert nearest_name(table, name) == meant
