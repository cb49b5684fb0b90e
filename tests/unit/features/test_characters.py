"""What each character is to a word: of all code points, against Python's own words for it."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.features.characters import MARK, SPACE, UNSPACED, WORD, classes, encoded, ready_codes


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
