"""Aliases: one document each, what is refused of it, what ends with a move and what stays, and the moves."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model_store import moves as moves_module
from model_store.alias import (
    ALIAS_BYTES_MAX,
    BEFORE_MAX,
    DENIED_MAX,
    PARTS,
    Alias,
    Beside,
    canary_promoted,
    denied_labels,
    denying,
    parse_alias,
    render_alias,
    with_canary,
    with_shadow,
    without_canary,
    without_shadow,
)
from model_store.documents import render_sealed
from model_store.errors import (
    AliasNotFound,
    BadNames,
    BadSplit,
    Conflict,
    Corrupt,
    ModelNotFound,
    NothingToRollBack,
    StoreUnreadable,
    VersionInUse,
    VersionNotFound,
)
from model_store.migrating import OldStore
from model_store.moves import MOVES_BYTES_MAX, SPLIT, Cause, Move, parse_moves, render_move
from model_store.store import Store
from tests.alias_helpers import deny, file_of, split
from tests.conftest import together
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
WHOLE = Alias(3, (1, 2), Beside(2, 1000), Beside(1, PARTS), ("a", "ä"), 17)
SET = ("label::0", "not of this version")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    for _ in range(3):
        store.publish("m", DRAFT)
    store.promote("m", 1, "stable")
    return store


def told(store: Store, alias: str = "latest") -> list[tuple[Any, ...]]:
    """What the moves of an alias say: what was done, from where to where, and who did it."""
    found = [move for move in store.moves("m") if move.alias == alias]
    return [(move.action, move.from_version, move.to_version, move.who) for move in found]


@pytest.mark.parametrize(
    "alias", [Alias(1), WHOLE, Alias(3, canary=Beside(2, PARTS - 1), shadow=Beside(2, 1), serial=1)]
)
def test_an_alias_is_what_was_written(alias: Alias) -> None:
    assert parse_alias(render_alias(alias), "there") == alias


def test_a_document_that_was_damaged_is_refused() -> None:
    whole = render_alias(WHOLE)
    for i in range(len(whole)):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            with pytest.raises(Corrupt):
                parse_alias(damaged, "there")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 0),
        ("version", "1"),
        ("before", [0]),
        ("before", [1] * (BEFORE_MAX + 1)),
        ("before", 1),
        ("canary", 2),
        ("canary", {"version": 2}),
        ("canary", {"version": 2, "parts": 0}),
        ("canary", {"version": 2, "parts": PARTS}),
        ("canary", {"version": 3, "parts": 5}),
        ("shadow", {"version": 2, "parts": PARTS + 1}),
        ("shadow", {"version": 2, "parts": 5, "more": 1}),
        ("denied", "a"),
        ("denied", [1]),
        ("denied", ["b", "a"]),
        ("denied", ["a", "a"]),
        ("denied", [""]),
        ("serial", -1),
        ("serial", True),
        ("more", 1),
    ],
)
def test_what_is_no_alias_is_refused(field: str, value: object) -> None:
    with pytest.raises(Corrupt):
        parse_alias(render_sealed({**WHOLE.fields(), field: value}), "there")
    short = WHOLE.fields()
    if short.pop(field, None) is not None:
        with pytest.raises(Corrupt, match=f"a field '{field}'"):
            parse_alias(render_sealed(short), "there")


@pytest.mark.parametrize(
    ("canary", "shadow", "fault"),
    [
        ((2, 0), None, "canary: expected 1 to 9999 of 10000 parts, found 0"),
        ((2, PARTS), None, "canary: expected 1 to 9999 of 10000 parts, found 10000"),
        ((2, -1), None, "found -1"),
        ((2, 5), (1, PARTS + 1), "shadow: expected 1 to 10000 of 10000 parts, found 10001"),
        ((3, 5), None, "canary: expected another version than the alias names, found 3"),
        (None, (3, 5), "shadow: expected another version"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(
    store: Store, canary: tuple[int, int] | None, shadow: tuple[int, int] | None, fault: str
) -> None:
    before = store.alias("m")
    with pytest.raises(BadSplit, match=fault):
        split(store, "m", canary, shadow)
    assert store.alias("m") == before


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ([""], "empty name"),
        (["a\nb"], "control characters"),
        (["a" * 4097], "longer name"),
        ([f"label {i}" for i in range(DENIED_MAX + 1)], f"at most {DENIED_MAX} denied labels, found 10001"),
        ([f"{i:04d}" + "ä" * 1000 for i in range(200)], f"at most {ALIAS_BYTES_MAX} bytes"),
    ],
)
def test_what_no_label_can_be_called_is_not_denied(store: Store, names: list[str], fault: str) -> None:
    with pytest.raises(BadNames, match=fault):
        deny(store, "m", names)
    assert store.alias("m").denied == ()


def test_the_most_labels_are_kept(store: Store) -> None:
    most = [f"label {i}" for i in range(DENIED_MAX)]
    deny(store, "m", most)
    assert store.alias("m").denied == denied_labels(most) == tuple(sorted(most))


def test_what_is_not_there_is_not_changed(store: Store) -> None:
    with pytest.raises(VersionNotFound):
        split(store, "m", (4, 10))
    with pytest.raises(VersionNotFound):
        store.promote("m", 4, "new")
    for alias, model, error in (("none", "m", AliasNotFound), ("latest", "n", ModelNotFound)):
        with pytest.raises(error):
            deny(store, model, SET, alias)
        with pytest.raises(error):
            split(store, model, None, (1, 5), alias)
        with pytest.raises(error):
            store.rollback(model, alias)
        with pytest.raises(error):
            store.delete_alias(model, "none")
    assert store.info("m").aliases == {"latest": 3, "stable": 1}
    assert store.versions("n") == ()


def test_moves_end_canary_and_shadow_and_what_is_denied_stays(store: Store) -> None:
    deny(store, "m", SET)

    def put() -> None:
        split(store, "m", (1, 1000), (2, PARTS))
        assert store.info("m").documents["latest"].others == (1, 2)

    def alone() -> int:
        alias = store.alias("m")
        assert (alias.others, alias.denied) == ((), SET)
        return alias.version

    put()
    store.rollback("m")
    assert alone() == 3  # the canary ends, the alias stays
    put()
    store.promote("m", 3)  # what it names already
    assert alone() == 3
    put()
    store.publish("m", DRAFT)
    assert alone() == 4
    put()
    store.publish("m", DRAFT, latest=False)  # which moves no alias
    assert store.alias("m").others == (1, 2)
    store.change_alias("m", "latest", "promoted", canary_promoted("m", "latest"))
    assert alone() == 1
    store.rollback("m")
    assert alone() == 4
    with pytest.raises(Conflict, match="expected a version, or a canary"):
        store.change_alias("m", "latest", "promoted", canary_promoted("m", "latest"))
    assert store.alias("m", "stable").denied == ()


def test_a_step_back_leads_back_beside_a_shadow_alone(store: Store) -> None:
    split(store, "m", None, (1, PARTS))
    store.rollback("m")
    assert (store.alias("m").version, store.alias("m").others) == (2, ())
    store.promote("m", 3, "fresh")
    split(store, "m", None, (1, PARTS), "fresh")
    with pytest.raises(NothingToRollBack, match="of fresh"):
        store.rollback("m", "fresh")
    assert store.alias("m", "fresh").shadow == Beside(1, PARTS)


def test_versions_that_answer_for_an_alias_stay(store: Store) -> None:
    store.delete_alias("m", "stable")
    split(store, "m", (2, 10), (1, 10))
    for version, user in ((1, "shadow of latest"), (2, "canary of latest"), (3, "latest")):
        with pytest.raises(VersionInUse, match=f"expected no alias to name it, found {user}"):
            store.delete("m", version)
    split(store, "m", (2, 10))
    store.delete("m", 1)
    assert store.versions("m") == (2, 3)


def test_an_alias_goes_with_all_that_it_was(store: Store) -> None:
    deny(store, "m", SET, "stable")
    split(store, "m", (3, 10), None, "stable")
    store.delete_alias("m", "stable")
    store.promote("m", 1, "stable")
    assert store.alias("m", "stable")._replace(serial=0) == Alias(1)
    deny(store, "m", SET)
    store.delete_model("m")
    store.publish("m", DRAFT)
    assert store.alias("m")._replace(serial=0) == Alias(4)


def test_a_damaged_alias_is_told_and_begins_anew_when_it_is_promoted(store: Store) -> None:
    deny(store, "m", SET)
    whole = file_of(store, "m").read_bytes()
    file_of(store, "m").write_bytes(whole[:-9])
    info = store.info("m")
    assert (info.aliases, info.broken_aliases) == ({"stable": 1}, ("latest",))
    for call in (
        lambda: deny(store, "m", ()),
        lambda: split(store, "m", (2, 5)),
        lambda: store.rollback("m"),
        lambda: store.open("m"),
        lambda: store.delete("m", 1),
    ):
        with pytest.raises(Corrupt, match="m: alias latest"):
            call()
    assert store.publish("m", DRAFT).version == 4  # nobody knows what the alias denies: it is not moved
    assert store.info("m").broken_aliases == ("latest",)
    store.promote("m", 2)
    assert store.alias("m")._replace(serial=0) == Alias(2)
    assert told(store)[-1] == ("promoted", None, 2, "")


def test_latest_without_a_document_names_the_highest_version_and_stays_there(store: Store) -> None:
    for change, canary in (
        (lambda: split(store, "m", (2, 10)), Beside(2, 10)),
        (lambda: store.promote("m", 3), None),
        (lambda: None, None),
    ):
        file_of(store, "m").unlink()
        change()
        store.publish("m", DRAFT, latest=False)
        assert (store.alias("m").version, store.alias("m").canary) == (3, canary)
        store.delete("m", max(store.versions("m")))


def test_of_many_who_change_an_alias_at_once_none_is_lost(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(2):
        store.publish("m", DRAFT)

    def add(name: str) -> None:
        Store(tmp_path).change_alias("m", "latest", "denied", denying(lambda before: {*before, name}))

    names = [f"label {i}" for i in range(8)]
    together(*(partial(add, name) for name in names), lambda: split(Store(tmp_path), "m", (1, 10)))
    alias = store.alias("m")
    assert (alias.denied, alias.canary) == (tuple(names), Beside(1, 10))
    assert [move.id for move in store.moves("m")] == list(range(1, 12))
    assert alias.serial == 11


def test_who_is_overtaken_all_the_time_is_told(store: Store) -> None:
    def change(alias: Alias) -> Alias:
        store.promote("m", 1 if alias.version == 2 else 2, "stable")
        return alias._replace(shadow=Beside(3, 5))

    with pytest.raises(Conflict, match="expected to change stable, found it changed 16 times"):
        store.change_alias("m", "stable", SPLIT, change)


def test_every_change_is_told_once(store: Store) -> None:
    alice = Cause("alice", "because", "job-1", {"promoted": True})
    store.promote("m", 2, "stable", alice)
    store.promote("m", 2, "stable", alice)  # where it is already: no move
    assert told(store, "stable") == [("promoted", None, 1, ""), ("promoted", 1, 2, "alice")]
    last = store.moves("m")[-1]
    assert (last.why, last.job, last.verdict) == ("because", "job-1", {"promoted": True})
    deny(store, "m", ["b", "a" * 100])
    assert store.moves("m")[-1].verdict == {"denied": 2, "added": ["a" * 80, "b"], "removed": []}
    split(store, "m", (2, 1000))
    assert store.moves("m")[-1].verdict == {"canary": {"version": 2, "weight": 0.1}, "shadow": None}
    split(store, "m")
    assert store.moves("m")[-1].verdict is None
    store.note_refusal("m", "latest", 1, Cause("rule"))
    store.rollback("m", cause=Cause("bob"))
    store.delete_alias("m", "stable")
    assert told(store)[3:] == [
        ("denied", 3, 3, ""),
        ("split", 3, 3, ""),
        ("split", 3, 3, ""),
        ("refused", 3, 1, "rule"),
        ("rolled-back", 3, 2, "bob"),
    ]
    assert told(store, "stable")[-1] == ("removed", 2, None, "")
    ids = [move.id for move in store.moves("m")]
    assert ids == sorted(set(ids))
    store.delete_model("m", Cause("carol"))
    assert told(store)[-1] == ("removed", 2, None, "carol")
    Store(store.root, by=Cause("trainer")).publish("m", DRAFT)
    assert told(store)[-1] == ("published", None, 4, "trainer")


def test_texts_of_a_move_are_bounded(store: Store) -> None:
    store.promote("m", 2, "stable", Cause("w" * 1000, "why\n\x00" * 1000, "j" * 1000))
    move = store.moves("m")[-1]
    assert (len(move.who), len(move.why), move.job) == (128, 1024, "j" * 64)
    assert move.why.isprintable()


def test_the_moves_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_store import alias_writing

    for module in (moves_module, alias_writing):
        monkeypatch.setattr(module, "MOVES_BYTES_MAX", 2000)
    for number in range(60):
        store.promote("m", 1 + number % 2, "other", Cause(f"user {number}"))
        assert (store.root / "models/m/moves").stat().st_size < 2500
    found = store.moves("m")
    assert [move.who for move in found] == [f"user {number}" for number in range(60 - len(found), 60)]
    assert found[-1].id == store.alias("m", "other").serial == 64


def move_line(number: int, alias: str, to: int | None) -> bytes:
    return render_move(Move(number, alias, "promoted", None, to, 0.0, f"number {number}", "", None, None))


def test_a_move_counts_once_its_document_is_there() -> None:
    now = {"a": Alias(1, serial=4), "b": Alias(2, serial=2)}

    def found(*lines: bytes) -> list[int]:
        return [move.id for move in parse_moves(b"".join(lines), now.get)]

    a, b = move_line(4, "a", 1), move_line(2, "b", 2)
    assert found(b, a) == [2, 4]
    assert found(b, a, move_line(5, "b", 3)) == [2, 4]  # its writer died before the document was renamed
    assert found(b, a, move_line(5, "a", None), move_line(6, "b", None)) == [
        2,
        4,
    ]  # nor was the model removed
    assert found(b, a, move_line(5, "c", None)) == [2, 4, 5]
    assert found(b, move_line(3, "c", 9), move_line(3, "c", 7), a) == [2, 3, 4]  # the number was taken again
    assert parse_moves(b + move_line(3, "c", 9) + move_line(3, "c", 7) + a, now.get)[1].to_version == 7
    assert found(b, b"\0\0\0\n", b"[]\n", b'{"id": 3}\n', a, b'{"id": 9, "ali') == [2, 4]


def test_what_was_cut_off_or_damaged_hides_no_move(store: Store) -> None:
    file = store.root / "models" / "m" / "moves"
    for tail in (b'{"id": 5, "alias": "stab', b"\0" * 40, b"\n\n", json.dumps({"id": 99}).encode()):
        before = told(store, "stable")
        file.write_bytes(file.read_bytes() + tail)
        assert told(store, "stable") == before
        store.promote("m", 1 + store.alias("m", "stable").version % 3, "stable")
        assert told(store, "stable")[:-1] == before
    file.unlink()
    store.promote("m", 1, "stable")
    assert [move.id for move in store.moves("m")] == [store.alias("m", "stable").serial]
    assert len(file.read_bytes()) < MOVES_BYTES_MAX


def old_store(store: Store) -> dict[str, Alias]:
    """Make the aliases of a model those of before 0.1.0; return what they are."""
    home = store.root / "models" / "m"
    wanted = {
        "latest": Alias(3, (1, 2), Beside(2, 1000), None, SET),
        "stable": Alias(1, (), None, Beside(2, 5)),
        "old": Alias(2, (1,)),
    }
    for alias in ("latest", "stable"):
        file_of(store, "m", alias).unlink()
    (home / "moves").unlink()
    for part in ("splits", "denied"):
        (home / part).mkdir()
    for name, alias in wanted.items():
        named = {"version": alias.version, "history": list(alias.before)}
        (home / "aliases" / name).write_bytes(render_sealed(named))
        canary, shadow = alias.canary or (None, 0), alias.shadow or (None, 0)
        beside = {"canary": canary[0], "weight": canary[1], "shadow": shadow[0], "share": shadow[1]}
        stable = alias.version if alias.others else 1  # a split of another version did not count
        beside = beside if alias.others else {**beside, "canary": 3, "weight": 5}
        (home / "splits" / name).write_bytes(render_sealed({"stable": stable, **beside}))
    (home / "denied" / "latest").write_bytes(render_sealed({"labels": list(SET)}))
    return wanted


def test_a_store_of_an_earlier_release_is_migrated_once(store: Store) -> None:
    wanted = old_store(store)
    for call in (
        lambda: store.models(),
        lambda: store.open("m"),
        lambda: store.publish("m", DRAFT),
        lambda: deny(store, "m", ()),
    ):
        with pytest.raises(StoreUnreadable, match="xylem models migrate"):
            call()
    assert OldStore(store.root, by=Cause("alice")).migrate() == ["m"]
    found = store.info("m").documents
    assert {name: alias._replace(serial=0) for name, alias in found.items()} == wanted
    assert {move.who for move in store.moves("m")} == {"alice"}
    assert OldStore(store.root).migrate() == []
    assert {entry.name for entry in (store.root / "models" / "m").iterdir()} == {
        *("aliases", "lock", "moves", "versions")
    }
    assert store.publish("m", DRAFT).version == 4


def test_a_migration_may_die_at_any_renaming(store: Store) -> None:
    class Dying(QuickFileSystem):
        left = 0

        def rename(self, source: Path, target: Path) -> None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            super().rename(source, target)

    wanted, fs = old_store(store), Dying()
    for number in range(1, 12):
        fs.left = number
        try:
            OldStore(store.root, fs=fs).migrate()
        except KeyboardInterrupt:
            with pytest.raises(StoreUnreadable):
                store.models()
        else:
            break
    assert {n: alias._replace(serial=0) for n, alias in store.info("m").documents.items()} == wanted


CHANGES: list[tuple[Callable[[], Any], str]] = [
    (lambda: with_canary(2, 0), "weight: expected a multiple of 0.0001 above 0 and below 1, found 0"),
    (lambda: with_canary(2, 1), "found 1"),
    (lambda: with_canary(2, 0.12345), "found 0.12345"),
    (lambda: with_canary(2, 0.1, 0.8), "weights that add up to 1, found 0.1 and 0.8"),
    (lambda: with_shadow(2, 1.1), "share: expected a multiple of 0.0001 above 0 and at most 1"),
]


@pytest.mark.parametrize(("change", "fault"), CHANGES)
def test_parts_that_do_not_fit_are_refused(change: Callable[[], Any], fault: str) -> None:
    with pytest.raises(BadSplit, match=fault):
        change()


def test_canary_and_shadow_come_and_go_by_themselves() -> None:
    alias = Alias(1)
    for change in (with_canary(2, 0.1, 0.9), with_shadow(3, 1), without_canary):
        alias = change(alias)
    assert alias == Alias(1, shadow=Beside(3, PARTS))
    assert without_shadow(alias) == Alias(1)
