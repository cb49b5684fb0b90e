"""Words and their n-grams are those of the slow oracle, in every script."""

from __future__ import annotations

import itertools
import re
import string
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.features.characters import MARK, SPACE, UNSPACED, WORD, classes, encoded, ready_codes
from service.features.words import find_ngrams, split_words
from tests.oracles.text_tokens import word_ngrams, word_runs

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
    "\ud800lone \udfffsurrogate\ud83d",
    "e\u0301te\u0301 \u0301 a\u0300\u0300 q\u0303",
    "日本語 テキスト 한국어 iPhone手机",
    "ภาษาไทย ລາວ ភាសាខ្មែរ မြန်မာ",
    "मैं हिन्दी में",
    "東" * 50,
]
texts = st.text(alphabet=string.ascii_letters + string.digits + "_ -\n\x00\x7f[]`{}@/:", max_size=40)
scripts = st.text(alphabet="ab _é\u0301日本ก็ี่ម្កहि\u3000ー々9", max_size=12)


def found(all_texts: list[str], lowercase: bool, unicode: bool = False) -> list[list[str]]:
    words = split_words(all_texts, lowercase, unicode)
    whole = words.utf8.tobytes()
    spelt = [whole[a:b].decode() for a, b in zip(words.start.tolist(), words.end.tolist(), strict=True)]
    return [spelt[first:last] for first, last in itertools.pairwise(words.word_ptr.tolist())]


def expected(all_texts: list[str], lowercase: bool) -> list[list[str]]:
    return [re.findall(r"(?u)\b\w\w+\b", text.lower() if lowercase else text) for text in all_texts]


def ngrams(text: str, unicode: bool, ngram_min: int, ngram_max: int) -> list[str]:
    words = split_words([text], True, unicode)
    spans, whole = find_ngrams(words, ngram_min, ngram_max), words.utf8.tobytes()
    assert spans.row_ptr.tolist() == [0, len(spans.start)]
    return [whole[a:b].decode() for a, b in zip(spans.start.tolist(), spans.end.tolist(), strict=True)]


def test_odd_texts() -> None:
    for lowercase in (True, False):
        assert found(ODD, lowercase) == expected(ODD, lowercase)
        for text in ODD:
            assert found([text], lowercase) == expected([text], lowercase)
            words = [word for word, _ in word_runs(text, lowercase, True)]
            assert found([text], lowercase, True) == [words]
    assert found([], True) == []


@given(st.lists(texts, max_size=5), st.booleans())
def test_any_texts(all_texts: list[str], lowercase: bool) -> None:
    assert found(all_texts, lowercase) == expected(all_texts, lowercase)
    assert found(all_texts, lowercase, True) == expected(all_texts, lowercase)


@given(st.lists(st.text(max_size=20), max_size=4), st.booleans())
def test_texts_beyond_ascii_beside_them(all_texts: list[str], lowercase: bool) -> None:
    assert found([*all_texts, "ab"], lowercase) == expected([*all_texts, "ab"], lowercase)


@given(st.one_of(scripts, st.text(st.characters(codec=None), max_size=12)), st.booleans())
def test_ngrams_are_those_of_the_oracle(text: str, unicode: bool) -> None:
    for least, most in ((1, 1), (1, 2), (2, 2), (1, 3), (3, 3)):
        assert ngrams(text, unicode, least, most) == word_ngrams(text, True, unicode, least, most)


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("北京", ["北", "北京", "京"]),
        ("iphone手机 x", ["iphone", "手", "手机", "机"]),
        ("ไม่ดี", ["ไ", "ไม่", "ม่", "ม่ดี", "ดี"]),
        ("मैं", ["मैं"]),
        ("cafe\u0301", ["café"]),
        ("北 京", ["北", "京"]),
    ],
)
def test_scripts_without_blanks_are_cut_and_marks_stay(text: str, features: list[str]) -> None:
    assert ngrams(text, True, 1, 1) == features


def test_one_long_run_without_blanks() -> None:
    assert found(["a" * 1_000_000], True, True) == [["a" * 1_000_000]]
    assert len(ngrams("東" * 300_000, True, 1, 1)) == 599_999


@pytest.mark.parametrize("unicode", [True, False])
def test_every_code_point_is_what_python_says(unicode: bool) -> None:
    found = classes(unicode).tolist()
    assert len(found) == sys.maxunicode + 1
    is_word, is_blank = re.compile(r"\w").match, re.compile(r"\s").match
    for code, kind in enumerate(found):
        character = chr(code)
        category = unicodedata.category(character)
        assert bool(kind & WORD) == bool(is_word(character)), hex(code)
        assert bool(kind & SPACE) == (bool(is_blank(character)) or category == "Cc"), hex(code)
        assert bool(kind & MARK) == (unicode and category[0] == "M"), hex(code)
        if kind & UNSPACED:
            assert unicode and kind & WORD, hex(code)


def test_scripts_without_blanks_are_known() -> None:
    for character in "語ภあアㄅ가":
        assert bool(classes(True)[ord(character)] & UNSPACED) == (character != "가")


READY = {chosen: ready_codes(*chosen) for chosen in itertools.product((True, False), repeat=2)}


@pytest.mark.parametrize(("lowercase", "unicode"), READY)
def test_a_character_becomes_what_it_becomes_in_any_text(lowercase: bool, unicode: bool) -> None:
    found = READY[lowercase, unicode].tolist()
    for code, ready in enumerate(found):
        text, _ = encoded([chr(code)], lowercase, unicode)
        assert ready == -1 or chr(ready).encode() == text.tobytes(), hex(code)


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(sorted(READY)))
def test_beside_others_too(data: st.DataObject, chosen: tuple[bool, bool]) -> None:
    """Composition and lower case look at neighbours: no character that is not -1 makes them do so."""
    ready = READY[chosen]
    character = st.characters(max_codepoint=len(ready) - 1).filter(lambda c: ready[ord(c)] >= 0)
    text = data.draw(st.text(character, max_size=12))
    utf8, _ = encoded([text], *chosen)
    assert "".join(chr(ready[ord(c)]) for c in text).encode() == utf8.tobytes()


def test_what_is_left_to_python_and_what_is_not() -> None:
    ready = READY[True, True]
    assert all(ready[ord(c)] >= 0 for c in "aZ09 \t\x00ÄéßЖΩ’…€™語가ع😀")
    assert all(ready[ord(c)] < 0 for c in "İΣ\u0301\u1161\u212b\ud800")
