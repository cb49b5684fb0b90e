"""Words of ASCII texts, which a kernel finds, are those that the regular expression finds."""

from __future__ import annotations

import itertools
import re
import string

from hypothesis import given
from hypothesis import strategies as st

from service.features.words import split_words

ODD = [
    "",
    "a",
    "ab",
    "A_b 9",
    "a b c",
    "  ab",
    "ab  ",
    "x" * 300,
    "a-bc--d_e",
    "\x00ab\x7f",
    "[ab]`cd`{ef}@gh",
]
texts = st.text(alphabet=string.ascii_letters + string.digits + "_ -\n\x00\x7f[]`{}@/:", max_size=40)


def found(all_texts: list[str], lowercase: bool) -> list[list[str]]:
    words = split_words(all_texts, lowercase)
    whole, ends = words.utf8.tobytes(), words.text_ptr.tolist()
    return [whole[start:end].decode().split() for start, end in itertools.pairwise(ends)]


def expected(all_texts: list[str], lowercase: bool) -> list[list[str]]:
    return [re.findall(r"(?u)\b\w\w+\b", text.lower() if lowercase else text) for text in all_texts]


def test_odd_texts() -> None:
    for lowercase in (True, False):
        assert found(ODD, lowercase) == expected(ODD, lowercase)
        for text in ODD:
            assert found([text], lowercase) == expected([text], lowercase)
    assert found([], True) == []


@given(st.lists(texts, max_size=5), st.booleans())
def test_any_texts(all_texts: list[str], lowercase: bool) -> None:
    assert found(all_texts, lowercase) == expected(all_texts, lowercase)


@given(st.lists(st.text(max_size=20), max_size=4), st.booleans())
def test_texts_beyond_ascii_beside_them(all_texts: list[str], lowercase: bool) -> None:
    assert found([*all_texts, "ab"], lowercase) == expected([*all_texts, "ab"], lowercase)
