import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model_store.errors import BadNames
from model_store.names import (
    NAME_BYTES_MAX,
    NameTable,
    build_names,
    check_names,
    find_all,
    find_name,
    find_names,
    name_of,
    names_with,
)
from tests.oracles.text_tokens import slow_hash

HASHES = [0x82A2A958A9BECE5B, 0x6E673288764AD2D0, 0xB20D74C1FA6B5421, 0xE11518ACC326D0E8]
NAMES = ["role::program", "a", "A", "ä", "日本語", "a b", "🦊", "x" * NAME_BYTES_MAX]


def read_only(table: NameTable) -> NameTable:
    for array in table:
        array.flags.writeable = False
    return table


def test_ids_are_places_and_back() -> None:
    table = read_only(build_names(iter(NAMES)))
    assert [name_of(table, i) for i in range(table.n_names)] == NAMES
    assert [find_name(table, name) for name in NAMES] == list(range(len(NAMES)))
    assert (table.offsets.dtype, table.utf8.dtype, table.slots.dtype) == (np.int64, np.uint8, np.int32)


@pytest.mark.parametrize("absent", ["", "b", "role::progra", "role::programs", "\ud800", "a\n", "x" * 5000])
def test_absent_names_are_not_found(absent: str) -> None:
    assert find_name(build_names(NAMES), absent) == -1


def test_an_empty_table_has_no_names() -> None:
    table = check_names(*build_names([]))
    assert table.n_names == 0
    assert find_name(table, "a") == -1


def test_a_list_of_names_is_found_as_each_of_them_is() -> None:
    table = build_names(NAMES)
    asked = [*NAMES[::-1], "b", "", "\ud800", "a\0b", "\0", NAMES[0], "a\n"]
    found = find_all(table, iter(asked))
    assert found.tolist() == [find_name(table, name) for name in asked]
    assert found.dtype == np.int32
    assert find_all(table, []).tolist() == []


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


@pytest.mark.parametrize("i", [-1, 8, 10**12])
def test_ids_out_of_range_are_refused(i: int) -> None:
    with pytest.raises(IndexError, match="expected an id below 8"):
        name_of(build_names(NAMES), i)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "name 2: expected distinct names, found one that occurs twice: 'a'"),
        (["a", ""], "name 1: expected a name of at least one byte"),
        (["x" * (NAME_BYTES_MAX + 1)], "name 0: expected at most 4096 bytes"),
        (["ä" * (NAME_BYTES_MAX // 2) + "x"], "name 0: expected at most 4096 bytes"),
        (["a", "b\ud800"], "name 1: expected text, found a lone surrogate"),
        (["a\nb"], "expected no control characters, found one: 'a\\\\nb'"),
        (["a\rb"], "expected no control characters"),
        (["\0"], "expected no control characters"),
        (["\x7f"], "expected no control characters"),
        (["\x85"], "expected no control characters"),
        (["a", 3], "name 1: expected a string, found int"),
        (["a", b"b"], "name 1: expected a string, found bytes"),
    ],
)
def test_names_that_no_table_holds(names: list[str], message: str) -> None:
    with pytest.raises(BadNames, match=message) as caught:
        build_names(names)
    assert caught.value.index == int(str(caught.value).split(":")[0].removeprefix("name "))


def test_no_break_space_is_no_control_character() -> None:
    assert find_name(build_names(["\xa0"]), "\xa0") == 0


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
            # a name may become another name that hashes to the same slots; it must still be a sound table
            assert array == 1
            assert [find_name(table, name_of(table, k)) for k in range(3)] == [0, 1, 2]
            changed += 1
    assert changed < 4 * good[array].nbytes


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(1, np.int32)), "expected 1 to"),
        ((np.zeros(1, np.int64), np.zeros(3, np.uint8), np.zeros(1, np.int32)), "offsets that ascend from 0"),
        ((np.array([0, 9, 1]), np.zeros(1, np.uint8), np.zeros(4, np.int32)), "offsets that ascend"),
        ((np.array([0, 1]), np.array([255], np.uint8), np.zeros(2, np.int32)), "expected UTF-8"),
        ((np.array([0, 1]), np.array([97], np.uint8), np.array([0, 0], np.int32)), "hash table of these"),
        ((np.array([0, 1]), np.array([97], np.uint8), np.array([-1], np.int32)), "hash table of these"),
    ],
)
def test_arrays_that_are_no_table(parts: tuple[object, ...], message: str) -> None:
    with pytest.raises(BadNames, match=message):
        check_names(*(np.asarray(part) for part in parts))


# letters that become several, or another alphabet's, that fall together, and that never change
LETTERS = "aAsSkKiIßẞſKÅåİıŉΐΣσςﬁﬀԵՒև𐐀𐐨ǅ日🐕é"


def oracle(names: list[str], part: str) -> list[bool]:
    return [part.casefold() in name.casefold() for name in names]


def found(names: list[str], part: str) -> list[bool]:
    table = build_names(names)
    return names_with(table.offsets, table.utf8, part).tolist()  # type: ignore[no-any-return]


@settings(max_examples=400)
@given(
    names=st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=20, unique=True),
    part=st.text(LETTERS, max_size=3),
)
@example(names=["Straße", "STRASSE", "strase"], part="SS")
@example(names=["ßs", "sß"], part="sss")
def test_what_has_a_part_is_what_python_finds(names: list[str], part: str) -> None:
    assert found(names, part) == oracle(names, part)


def test_texts_may_be_empty_and_parts_longer_than_all() -> None:
    utf8 = np.frombuffer(b"koiraHund", np.uint8)
    offsets = np.array([0, 0, 5, 9, 9], np.int64)
    for part, expected in (("", [1, 1, 1, 1]), ("hun", [0, 0, 1, 0]), ("R", [0, 1, 0, 0]), ("ah", [0] * 4)):
        assert names_with(offsets, utf8, part).tolist() == [bool(each) for each in expected]
    assert not names_with(offsets, utf8, "x" * 5000).any()
