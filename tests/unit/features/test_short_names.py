"""The table in which n-grams of characters are looked up, against a dict."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from model_store.names import build_names
from service.features.short_names import (
    SHORT_BYTES,
    first_slot,
    is_long,
    key_and_byte,
    key_slot,
    long_key,
    long_slot,
    short_names,
)

NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)


@kernel
def found_id(
    offsets: NDArray[np.int64],
    utf8: NDArray[np.uint8],
    table: NDArray[np.uint64],
    query: NDArray[np.uint8],
    start: int,
    end: int,
) -> int:
    """Return the id of the name query[start:end], or -1."""
    key = np.uint64(0)
    if end - start > SHORT_BYTES:
        key = long_key(query, start, end)
    else:
        for i in range(start, end):
            key = key_and_byte(key, i - start, query[i])
    slot = key_slot(table, first_slot(key, len(table)), key)
    if is_long(key):
        slot = long_slot(table, slot, offsets, utf8, query, start)
    return int(table[slot, 1]) if table[slot, 0] != np.uint64(0) else -1


def found_in(names: list[str], wanted: list[str]) -> list[int]:
    table = build_names(names)
    short, ids = short_names(table), []
    for name in wanted:
        # what stands around a name in a text must not count
        query = np.frombuffer(f"x{name}y".encode(), np.uint8)
        ids.append(found_id(table.offsets, table.utf8, short, query, 1, len(query) - 1))
    return ids


@settings(deadline=None, max_examples=60)
@given(st.lists(NAMES, unique=True, max_size=40), st.lists(NAMES, max_size=20))
def test_any_names_as_a_dict_finds_them(names: list[str], others: list[str]) -> None:
    ids = {name: i for i, name in enumerate(names)}
    wanted = names + others + [name[:-1] for name in names if len(name) > 1] + [name + "a" for name in names]
    assert found_in(names, wanted) == [ids.get(name, -1) for name in wanted]


def test_names_about_the_length_of_a_key() -> None:
    names = [letter * n for letter in ("a", "ä", "日", "😀") for n in range(1, 12)]
    assert found_in(names, names) == list(range(len(names)))
    assert found_in(names, ["b" * n for n in range(1, 12)]) == [-1] * 11
    assert found_in([], ["a", "aaaaaaaaaa"]) == [-1, -1]


def test_a_hundred_thousand_names_are_all_found_and_no_others() -> None:
    dice = random.Random(5)
    letters = "abcdeäöд日"
    names = sorted({"".join(dice.choices(letters, k=dice.randint(1, 6))) for _ in range(150_000)})
    dice.shuffle(names)
    known, unknown = names[: len(names) // 2], names[len(names) // 2 :][:2_000]
    assert found_in(known, known[:5_000]) == list(range(5_000))
    assert found_in(known, unknown) == [-1] * len(unknown)


def test_long_names_of_one_key_are_told_apart_by_their_bytes() -> None:
    names = build_names(["abcdefghij", "abcdefghik", "abcdefghil"])
    key = np.uint64(0xFF << 56 | 10 << 48)  # as if their hashes were the same
    table = np.zeros((7, 2), np.uint64)
    table[5], table[6], table[0] = (key, 0), (key, 1), (key, 2)
    for name, slot in (("abcdefghij", 5), ("abcdefghik", 6), ("abcdefghil", 0), ("abcdefghim", 1)):
        query = np.frombuffer(name.encode(), np.uint8)
        assert long_slot(table, np.int64(5), names.offsets, names.utf8, query, 0) == slot
