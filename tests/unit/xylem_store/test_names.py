import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.oracles.text_tokens import slow_hash

from xylem_store.errors import BadNames, Corrupt
from xylem_store.names import (
    NAME_BYTES_MAX,
    build_names,
    check_names,
    find_all,
    find_name,
    find_names,
    name_of,
    names_in,
    names_with,
)

HASHES = [0x82A2A958A9BECE5B, 0x6E673288764AD2D0, 0xB20D74C1FA6B5421, 0xE11518ACC326D0E8]
NAMES = [
    "role::program",
    "a",
    "A",
    "ä",
    "日本語",
    "a b",
    "🦊",
    "x" * NAME_BYTES_MAX,
    "no break\xa0space",
]
ABSENT = ["", "b", "role::progra", "role::programs", "\ud800", "a\n", "x" * 5000, "a\0b", "\0"]


def test_ids_are_places_and_back() -> None:
    table = build_names(iter(NAMES))
    for array in table:
        array.flags.writeable = False
    assert [name_of(table, i) for i in range(table.n_names)] == NAMES
    asked = [*NAMES[::-1], *ABSENT, NAMES[0]]
    expected = [*range(len(NAMES))[::-1], *[-1] * len(ABSENT), 0]
    assert [find_name(table, name) for name in asked] == expected
    assert find_all(table, iter(asked)).tolist() == expected
    assert find_all(table, []).tolist() == []
    dtypes = [
        array.dtype for array in (table.offsets, table.utf8, table.slots, find_all(table, asked))
    ]
    assert dtypes == [np.int64, np.uint8, np.int32, np.int32]
    for i in (-1, len(NAMES), 10**12):
        with pytest.raises(IndexError, match=f"expected an id below {len(NAMES)}"):
            name_of(table, i)


def test_many_names_at_once() -> None:
    names = [f"label {i * 7919}" for i in range(20_000)]
    table = build_names(names)
    shuffled = np.random.default_rng(0).permutation(len(names))
    query = build_names([names[i] for i in shuffled])
    assert np.array_equal(find_names(table, query.utf8, query.offsets), shuffled)
    assert 3 * table.n_names <= 2 * len(table.slots) + 1


def test_the_hash_is_the_same_for_ever() -> None:
    # stored tables and hashed features rely on it: a change of this is a change of the format
    names = ["a", "b", "role::program", "日本語"]
    assert [slow_hash(name.encode()) for name in names] == HASHES
    table = build_names(names)
    n_slots = len(table.slots)
    oracle = [-1] * n_slots
    for i, h in enumerate(HASHES):
        slot = ((h >> 32) * n_slots) >> 32
        while oracle[slot] >= 0:
            slot = (slot + 1) % n_slots
        oracle[slot] = i
    assert table.slots.tolist() == oracle


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "name 2: expected distinct names, found one that occurs twice: 'a'"),
        (["a", ""], "name 1: expected a name of at least one byte"),
        (["x" * (NAME_BYTES_MAX + 1)], "name 0: expected at most 4096 bytes"),
        (["ä" * (NAME_BYTES_MAX // 2) + "x"], "name 0: expected at most 4096 bytes"),
        (["a", "b\ud800"], "name 1: expected text, found a lone surrogate"),
        (["a\nb"], "expected no control characters, found one: 'a\\\\nb'"),
        *(([name], "expected no control characters") for name in ("a\rb", "\0", "\x7f", "\x85")),
        (["a", 3], "name 1: expected a string, found int"),
        (["a", b"b"], "name 1: expected a string, found bytes"),
    ],
)
def test_names_that_no_table_holds(names: list[str], message: str) -> None:
    with pytest.raises(BadNames, match=message) as caught:
        build_names(names)
    assert caught.value.index == int(str(caught.value).split(":")[0].removeprefix("name "))


@pytest.mark.parametrize("array", range(3))
def test_any_other_byte_in_a_table_is_refused(array: int) -> None:
    good = build_names(["alpha", "beta", "ä"])
    changed = 0
    for i in range(good[array].nbytes):
        for bit in range(8):
            parts = [part.copy() for part in good]
            parts[array].view(np.uint8)[i] ^= 1 << bit
            try:
                table = check_names(*parts)
            except BadNames:
                continue
            # a name may become another one that hashes to the same slots, in a table that is sound
            assert array == 1
            assert [find_name(table, name_of(table, k)) for k in range(3)] == [0, 1, 2]
            changed += 1
    assert changed < 4 * good[array].nbytes


@pytest.mark.parametrize(
    ("offsets", "utf8", "slots", "message"),
    [
        ([], b"", [0], "expected 1 to"),
        ([0], b"\0\0\0", [0], "offsets that ascend from 0"),
        ([0, 9, 1], b"\0", [0, 0, 0, 0], "offsets that ascend"),
        ([0, 1], b"\xff", [0, 0], "expected UTF-8"),
        ([0, 1], b"a", [0, 0], "hash table of these"),
        ([0, 1], b"a", [-1], "hash table of these"),
    ],
)
def test_arrays_that_are_no_table(
    offsets: list[int], utf8: bytes, slots: list[int], message: str
) -> None:
    with pytest.raises(BadNames, match=message):
        check_names(
            np.array(offsets, np.int64), np.frombuffer(utf8, np.uint8), np.array(slots, np.int32)
        )


# letters that become several, or another alphabet's, that fall together, and that never change
LETTERS = "aAsSkKiIßẞſKÅåİıŉΐΣσςﬁﬀԵՒև𐐀𐐨ǅ日🐕é"


@settings(max_examples=400)
@given(
    names=st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=20, unique=True),
    part=st.text(LETTERS, max_size=3),
)
@example(names=["Straße", "STRASSE", "strase"], part="SS")
@example(names=["ßs", "sß"], part="sss")
def test_what_has_a_part_is_what_python_finds(names: list[str], part: str) -> None:
    table = build_names(names)
    found = names_with(table.offsets, table.utf8, part)
    assert found.tolist() == [part.casefold() in name.casefold() for name in names]


def test_texts_may_be_empty_and_parts_longer_than_all() -> None:
    utf8 = np.frombuffer(b"koiraHund", np.uint8)
    offsets = np.array([0, 0, 5, 9, 9], np.int64)
    for part, places in (
        ("", [0, 1, 2, 3]),
        ("hun", [2]),
        ("R", [1]),
        ("ah", []),
        ("x" * 5000, []),
    ):
        assert np.flatnonzero(names_with(offsets, utf8, part)).tolist() == places


def test_a_table_that_may_have_changed_is_checked_again() -> None:
    table = build_names("abcdefgh")
    other = build_names("hgfedcba")
    arrays = {f"names/{part}": array.copy() for part, array in table._asdict().items()}
    assert find_name(names_in(arrays, "names"), "c") == 2
    arrays["names/slots"][0] += 1  # in place
    with pytest.raises(Corrupt):
        names_in(arrays, "names")
    arrays = {f"names/{part}": array for part, array in table._asdict().items()}
    for _ in range(2):
        assert find_name(names_in(arrays, "names"), "c") == 2
    with pytest.raises(Corrupt):  # other bytes beside the same slots
        names_in({**arrays, "names/utf8": other.utf8}, "names")
