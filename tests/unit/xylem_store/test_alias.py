"""Aliases: one document each, what is refused of it, what ends with a
move and what stays, and the moves.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import together
from tests.helpers.alias_helpers import deny, file_of, split
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem_store import alias_writing, errors, moves as moves_module
from xylem_store.alias import (
    ALIAS_BYTES_MAX,
    BEFORE_MAX,
    DENIED_MAX,
    PARTS,
    Alias,
    TrafficShare,
    canary_promoted,
    denying,
    parse_alias,
    render_alias,
    with_canary,
    with_shadow,
)
from xylem_store.documents import render_sealed
from xylem_store.moves import MOVES_BYTES_MAX, SPLIT, Cause, Move, parse_moves, render_move
from xylem_store.store import Store

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
WHOLE = Alias(3, (1, 2), TrafficShare(2, 1000), TrafficShare(1, PARTS), ("a", "ä"), 17)
SET = ("label::0", "not of this version")
NAMES = [f"label {i}" for i in range(DENIED_MAX + 1)]


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


def test_a_document_is_what_was_written_and_damage_is_refused() -> None:
    for alias in (
        Alias(1),
        WHOLE,
        Alias(3, canary=TrafficShare(2, PARTS - 1), shadow=TrafficShare(2, 1), serial=1),
    ):
        assert parse_alias(render_alias(alias), "there") == alias
    whole = render_alias(WHOLE)
    for i in range(len(whole)):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            with pytest.raises(errors.Corrupt):
                parse_alias(damaged, "there")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("version", [0, "1"]),
        ("before", [[0], [1] * (BEFORE_MAX + 1), 1]),
        ("canary", [2, {"version": 2}, {"version": 3, "parts": 5}]),
        ("canary", [{"version": 2, "parts": 0}, {"version": 2, "parts": PARTS}]),
        ("shadow", [{"version": 2, "parts": PARTS + 1}, {"version": 2, "parts": 5, "more": 1}]),
        ("denied", ["a", [1], ["b", "a"], ["a", "a"], [""]]),
        ("serial", [-1, True]),
    ],
)
def test_what_is_no_alias_is_refused(field: str, values: list[object]) -> None:
    fields = WHOLE.fields()
    for wrong in ({**fields, "more": 1}, *({**fields, field: value} for value in values)):
        with pytest.raises(errors.Corrupt):
            parse_alias(render_sealed(wrong), "there")
    del fields[field]
    with pytest.raises(errors.Corrupt, match=f"a field '{field}'"):
        parse_alias(render_sealed(fields), "there")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            lambda store: split(store, "m", (2, 0)),
            "canary: expected 1 to 9999 of 10000 parts, found 0",
        ),
        (lambda store: split(store, "m", (2, PARTS)), "canary: expected 1 to 9999 .* found 10000"),
        (lambda store: split(store, "m", (2, -1)), "found -1"),
        (
            lambda store: split(store, "m", (2, 5), (1, PARTS + 1)),
            "shadow: .* 1 to 10000 .* found 10001",
        ),
        (
            lambda store: split(store, "m", (3, 5)),
            "canary: expected another version than .* found 3",
        ),
        (lambda store: split(store, "m", None, (3, 5)), "shadow: expected another version"),
        (
            lambda _: with_canary(2, 0),
            "weight: expected a multiple of 0.0001 above 0 and below 1, found 0",
        ),
        (lambda _: with_canary(2, 1), "found 1"),
        (lambda _: with_canary(2, 0.12345), "found 0.12345"),
        (lambda _: with_canary(2, 0.1, 0.8), "weights that add up to 1, found 0.1 and 0.8"),
        (
            lambda _: with_shadow(2, 1.1),
            "share: expected a multiple of 0.0001 above 0 and at most 1",
        ),
    ],
)
def test_a_split_that_does_not_fit_is_refused(store: Store, change: Any, fault: str) -> None:
    before = store.alias("m")
    with pytest.raises(errors.BadSplit, match=fault):
        change(store)
    assert store.alias("m") == before


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ([""], "empty name"),
        (["a\nb"], "control characters"),
        (["a" * 4097], "longer name"),
        (NAMES, f"at most {DENIED_MAX} denied labels, found 10001"),
        ([f"{i:04d}" + "ä" * 1000 for i in range(200)], f"at most {ALIAS_BYTES_MAX} bytes"),
    ],
)
def test_what_no_label_can_be_called_is_not_denied(
    store: Store, names: list[str], fault: str
) -> None:
    with pytest.raises(errors.BadNames, match=fault):
        deny(store, "m", names)
    assert store.alias("m").denied == ()


def test_the_most_labels_are_kept(store: Store) -> None:
    deny(store, "m", NAMES[1:])
    assert store.alias("m").denied == tuple(sorted(NAMES[1:]))


@pytest.mark.parametrize(
    ("model", "alias", "error"),
    [("m", "none", errors.AliasNotFound), ("n", "latest", errors.ModelNotFound)],
)
def test_what_is_not_there_stays_so(
    store: Store, model: str, alias: str, error: type[Exception]
) -> None:
    for refused, call in (
        (errors.VersionNotFound, lambda: split(store, "m", (4, 10))),
        (errors.VersionNotFound, lambda: store.promote("m", 4, "new")),
        (error, lambda: deny(store, model, SET, alias)),
        (error, lambda: split(store, model, None, (1, 5), alias)),
        (error, lambda: store.rollback(model, alias)),
        (error, lambda: store.delete_alias(model, "none")),
    ):
        with pytest.raises(refused):
            call()
    assert store.info("m").aliases == {"latest": 3, "stable": 1}
    assert store.versions("n") == ()


def test_moves_end_canary_and_shadow_and_what_is_denied_stays(store: Store) -> None:
    promote_canary = partial(
        store.change_alias, "m", "latest", "promoted", canary_promoted("m", "latest")
    )
    deny(store, "m", SET)
    for move, version in (
        (lambda: store.rollback("m"), 3),  # the canary ends, the alias stays
        (lambda: store.promote("m", 3), 3),  # what it names already
        (lambda: store.publish("m", DRAFT), 4),
        (promote_canary, 1),
    ):
        split(store, "m", (1, 1000), (2, PARTS))
        move()
        alias = store.alias("m")
        assert (alias.version, alias.split_versions, alias.denied) == (version, (), SET)
    with pytest.raises(errors.Conflict, match="expected a version, or a canary"):
        promote_canary()
    assert store.rollback("m").version == 4
    split(store, "m", (1, 1000), (2, PARTS))
    store.publish("m", DRAFT, latest=False)  # which moves no alias
    assert store.info("m").documents["latest"].split_versions == (1, 2)
    assert store.alias("m", "stable").denied == ()


def test_versions_that_answer_for_an_alias_stay(store: Store) -> None:
    store.delete_alias("m", "stable")
    split(store, "m", (2, 10), (1, 10))
    for version, user in ((1, "shadow of latest"), (2, "canary of latest"), (3, "latest")):
        with pytest.raises(
            errors.VersionInUse, match=f"expected no alias to name it, found {user}"
        ):
            store.delete("m", version)
    split(store, "m", (2, 10))
    store.delete("m", 1)
    assert store.versions("m") == (2, 3)


def test_a_step_back_leads_back_beside_a_shadow_alone(store: Store) -> None:
    split(store, "m", None, (1, PARTS))
    assert store.rollback("m").new_alias == store.alias("m")
    assert (store.alias("m").version, store.alias("m").split_versions) == (2, ())
    split(store, "m", None, (3, PARTS), "stable")
    with pytest.raises(errors.NothingToRollBack, match="of stable"):
        store.rollback("m", "stable")
    assert store.alias("m", "stable").shadow == TrafficShare(3, PARTS)


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


def test_a_damaged_alias_is_reported_and_starts_again(store: Store) -> None:
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
        with pytest.raises(errors.Corrupt, match="m: alias latest"):
            call()
    assert (
        store.publish("m", DRAFT).version == 4
    )  # nobody knows what the alias denies: it is not moved
    assert store.info("m").broken_aliases == ("latest",)
    store.promote("m", 2)
    assert store.alias("m")._replace(serial=0) == Alias(2)
    assert told(store)[-1] == ("promoted", None, 2, "")


def test_latest_without_a_document_is_the_highest_version(store: Store) -> None:
    for change, canary in (
        (lambda: split(store, "m", (2, 10)), TrafficShare(2, 10)),
        (lambda: store.promote("m", 3), None),
        (lambda: None, None),
    ):
        file_of(store, "m").unlink()
        change()
        store.publish("m", DRAFT, latest=False)
        assert (store.alias("m").version, store.alias("m").canary) == (3, canary)
        store.delete("m", max(store.versions("m")))


def test_of_many_who_change_an_alias_at_once_none_is_lost(store: Store) -> None:
    def add(name: str) -> None:
        Store(store.root).change_alias(
            "m", "latest", "denied", denying(lambda before: {*before, name})
        )

    together(
        *(partial(add, name) for name in NAMES[:8]), lambda: split(Store(store.root), "m", (1, 10))
    )
    assert store.alias("m") == Alias(
        3, (1, 2), TrafficShare(1, 10), denied=tuple(NAMES[:8]), serial=13
    )
    assert [move.id for move in store.moves("m")] == list(range(1, 14))


def test_who_is_overtaken_all_the_time_is_told(store: Store) -> None:
    def change(alias: Alias) -> Alias:
        store.promote("m", 1 if alias.version == 2 else 2, "stable")
        return alias._replace(shadow=TrafficShare(3, 5))

    with pytest.raises(
        errors.Conflict, match="expected to change stable, found it changed by others 16 times"
    ):
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
    store.delete_model("m", Cause("carol"))
    assert told(store)[-1] == ("removed", 2, None, "carol")
    Store(store.root, cause=Cause("trainer")).publish("m", DRAFT)
    assert told(store)[-1] == ("published", None, 4, "trainer")
    store.promote("m", 4, "stable", Cause("w" * 1000, "why\n\x00" * 1000, "j" * 1000))
    long = store.moves("m")[-1]
    assert (len(long.who), len(long.why), long.job) == (128, 1024, "j" * 64)
    assert long.why.isprintable()


def test_the_moves_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (moves_module, alias_writing):
        monkeypatch.setattr(module, "MOVES_BYTES_MAX", 2000)
    for number in range(60):
        store.promote("m", 1 + number % 2, "other", Cause(f"user {number}"))
        assert (store.root / "models/m/moves").stat().st_size < 2500
    found = store.moves("m")
    assert [move.who for move in found] == [
        f"user {number}" for number in range(60 - len(found), 60)
    ]
    assert found[-1].id == store.alias("m", "other").serial == 64


def test_a_move_counts_once_its_document_is_there() -> None:
    now = {"a": Alias(1, serial=4), "b": Alias(2, serial=2)}

    def line(number: int, alias: str, to: int | None) -> bytes:
        return render_move(Move(number, alias, "promoted", None, to, 0.0, "", "", None, None))

    a, b = line(4, "a", 1), line(2, "b", 2)
    for lines, expected in (
        ([b, a], {2: 2, 4: 1}),
        ([b, a, line(5, "b", 3)], {2: 2, 4: 1}),  # its writer died before the document was renamed
        ([b, a, line(5, "a", None), line(6, "b", None)], {2: 2, 4: 1}),  # nor was the model removed
        ([b, a, line(5, "c", None)], {2: 2, 4: 1, 5: None}),
        (
            [b, line(3, "c", 9), line(3, "c", 7), a],
            {2: 2, 3: 7, 4: 1},
        ),  # the number was taken again
        ([b, b"\0\0\0\n", b"[]\n", b'{"id": 3}\n', a, b'{"id": 9, "ali'], {2: 2, 4: 1}),
    ):
        found = parse_moves(b"".join(lines), now.get)
        assert [(move.id, move.to_version) for move in found] == list(expected.items())


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
