"""What each character is to a word: of all code points, against Python's own words for it."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from service.features.characters import MARK, SPACE, UNSPACED, WORD, classes


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
