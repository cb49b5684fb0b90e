"""Names that have a part: as `str.casefold` finds them, whatever they are."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model_store.name_search import names_with
from model_store.names import build_names

# letters that become several, or another alphabet's, that fall together, and that never change
LETTERS = "aAsSkKiIßẞſKÅåİıŉΐΣσςﬁﬀԵՒև𐐀𐐨ǅ日🐕é"


def oracle(names: list[str], part: str) -> list[bool]:
    return [part.casefold() in name.casefold() for name in names]


def found(names: list[str], part: str) -> list[bool]:
    table = build_names(names)
    return names_with(table.offsets, table.utf8, part).tolist()  # type: ignore[no-any-return]


@settings(deadline=None, max_examples=400)
@given(
    names=st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=20, unique=True),
    part=st.text(LETTERS, max_size=3),
)
@example(names=["Straße", "STRASSE", "strase"], part="SS")
@example(names=["aab", "aaab", "abaab"], part="aab")
@example(names=["ßs", "sß"], part="sss")
def test_what_has_a_part_is_what_python_finds(names: list[str], part: str) -> None:
    assert found(names, part) == oracle(names, part)


def test_every_code_point_is_folded_as_python_does() -> None:
    """Each is found by what Python makes of it, and by nothing else of what changes."""
    codes = [c for c in range(0xA0, sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    changing = [c for c in codes if chr(c).casefold() != chr(c)]
    assert max(changing) < 0x20000
    names = [f"<{chr(c)}>" for c in changing]
    table = build_names(names)
    folded = np.array([name.casefold() for name in names])
    for part in sorted(set(folded.tolist()))[::7]:
        assert names_with(table.offsets, table.utf8, part).tolist() == (folded == part).tolist()
    for name, part in list(zip(names, folded.tolist(), strict=True))[::3]:
        assert found([name], part) == [True]


def test_texts_may_be_empty_and_parts_longer_than_all() -> None:
    utf8 = np.frombuffer(b"koiraHund", np.uint8)
    offsets = np.array([0, 0, 5, 9, 9], np.int64)
    for part, expected in (("", [1, 1, 1, 1]), ("hun", [0, 0, 1, 0]), ("R", [0, 1, 0, 0]), ("ah", [0] * 4)):
        assert names_with(offsets, utf8, part).tolist() == [bool(each) for each in expected]
    assert not names_with(offsets, utf8, "x" * 5000).any()


@pytest.mark.parametrize("part", ["ä", "label::99", "9", "nothing"])
def test_many_names_are_searched_alike(part: str) -> None:
    names = [f"label::{i}{'Ä' * (i % 3)}" for i in range(2000)]
    assert found(names, part) == oracle(names, part)
