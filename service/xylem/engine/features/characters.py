"""Texts to bytes, and what each character is to a word: letters,
marks, blanks, scripts without blanks.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xylem.base import offsets
from xylem.engine.kernels.text.texts import LINE_END
from xylem_store import I32, I64, U8, inlined

WORD = 1
MARK = 2
UNSPACED = 4
SPACE = 8
"""Bits of a character's class: part of a word (a letter, digit or underscore), a mark that goes
with the letter before it, a letter of a script that is written without blanks, a blank or control
character.
"""

_N_CODES = 0x110000

_WORDS_BELOW = 0x40000  # no code point from here on is a letter, a digit or a blank
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration mark, closing mark, zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31A0, 0x31BF),  # Bopomofo extended
    (0x31F0, 0x31FF),  # Katakana phonetic extensions
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAA7F),  # Myanmar extended A
    (0xF900, 0xFAFF),  # Han, compatibility
    (0xFF66, 0xFF9F),  # Katakana, half width
    (0x1B000, 0x1B16F),  # Kana supplements
    (0x20000, 0x323AF),  # Han, extensions B to H
)
"""First and last code points of the blocks of scripts that are written without blanks."""

# characters from here on, rare Han among them, are left to Python; emoji are not
_READY_CODES = 0x1FB00
_JAMO = 0x1100, 0x11FF  # parts of Korean syllables: two that stand together may be one character
_ODD_CAPITALS = "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}\N{GREEK CAPITAL LETTER SIGMA}"
"""In lower case the first is two characters, and the second another one at the end of a word."""

_MARKS = ((0x0300, 0x1E94A), (0xE0100, 0xE01EF))  # where all combining marks stand
_SOFT_HYPHEN = "\N{SOFT HYPHEN}"
_HYPHENS = f"-\N{HYPHEN}{_SOFT_HYPHEN}"
_LIGATURES = [*range(0xFB00, 0xFB07), *range(0xFB13, 0xFB18)]  # latin and Armenian ones
_DIVIDED = re.compile(rf"[{_HYPHENS}][^\S\r\n]*+[\r\n]\s*+")
_LIGATURE = re.compile(f"[{''.join(map(chr, _LIGATURES))}]")


class TextReading(NamedTuple):
    """How the characters of texts are read.

    lowercase  in lower case
    unicode    in normalisation form C, so that a letter is the same however its marks were typed
    clean      without soft hyphens; words divided at the end of a line are joined, ligatures are
               letters
    """

    lowercase: bool
    unicode: bool
    clean: bool


@functools.cache
def classes(unicode: bool) -> U8:
    r"""Return the class of every code point, uint8[0x110000].

    WORD is `\w`, SPACE is `\s` and the control characters. Without `unicode` there is no MARK and
    no UNSPACED. The first call takes about 15 milliseconds.
    """
    class_of = np.zeros(_N_CODES, np.uint8)
    every = np.arange(_WORDS_BELOW, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for pattern, kind in ((r"\w+", WORD), (r"\s+", SPACE)):
        for run in re.finditer(pattern, every):
            class_of[run.start() : run.end()] |= kind
    class_of[[*range(0x20), *range(0x7F, 0xA0)]] |= SPACE  # control characters
    if unicode:
        for first, last in _MARKS:
            # no mark is part of a word
            unclassed = first + np.flatnonzero(class_of[first : last + 1] == 0)
            class_of[
                [code for code in unclassed.tolist() if unicodedata.category(chr(code))[0] == "M"]
            ] |= MARK
        for first, last in _UNSPACED:
            block = class_of[first : last + 1]
            block[block & WORD != 0] |= UNSPACED
    return class_of  # not read-only: kernels would be compiled once more


@functools.cache
def ready_codes(reading: TextReading) -> I32:
    """Return what each character becomes where a text is made ready,
    int32[..]; about 5 ms at the first call.

    -1: that depends on what stands beside it, or it becomes several: such texts are for `encoded`.
    A combining mark is one where `unicode` asks for normalisation form C, as are the parts of
    Korean syllables. With `clean` the ends of lines are LINE_END: after a hyphen they are for
    `encoded`.
    """
    codes = np.arange(_READY_CODES, dtype="<u4")
    every = codes.tobytes().decode("utf-32-le", "surrogatepass")
    unready = [*range(0xD800, 0xE000)]  # the surrogates
    if reading.lowercase:
        plain = every
        for capital in _ODD_CAPITALS:
            unready.append(ord(capital))
            plain = plain.replace(capital, "-")
        codes = np.frombuffer(plain.lower().encode("utf-32-le", "surrogatepass"), "<u4")
    ready = codes.astype(np.int32)
    ready[unready] = -1
    if reading.clean:
        ready[[ord("\r"), ord("\n")]] = LINE_END
        ready[[ord(_SOFT_HYPHEN), ord("\N{HYPHEN}"), *_LIGATURES]] = -1
    if reading.unicode:
        ready[classes(reading.unicode)[:_READY_CODES] & MARK != 0] = -1
        ready[_JAMO[0] : _JAMO[1] + 1] = -1
        ready[[not unicodedata.is_normalized("NFC", character) for character in every]] = -1
    ready.flags.writeable = False
    return ready


def encoded(texts: Sequence[str], reading: TextReading) -> tuple[U8, I64]:
    """Return (utf8, text_ptr): text i, made ready, is utf8[text_ptr[i]:text_ptr[i + 1]].

    A lone surrogate, which is no character, becomes a question mark.
    """
    ready = [_ready(text, reading) for text in texts]
    return np.frombuffer(b"".join(ready), np.uint8), offsets(map(len, ready))


def _ready(text: str, reading: TextReading) -> bytes:
    if reading.clean:
        text = cleaned(text)
    if reading.lowercase:
        text = text.lower()
    if reading.unicode and not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return text.encode(errors="replace")


def cleaned(text: str) -> str:
    """Return a text as it was before it was set in lines: see `TextReading.clean`.

    A word is divided where a letter, a hyphen, the end of a line and a letter follow each other,
    with blanks or further ends of lines beside that end. A capital letter begins another word:
    "Nord-", "Ostsee". Linear.
    """
    if "\n" in text or "\r" in text:
        text = _DIVIDED.sub(_joined, text)
    if text.isascii():
        return text
    text = text.replace(_SOFT_HYPHEN, "")
    return _LIGATURE.sub(lambda ligature: unicodedata.normalize("NFKC", ligature[0]), text)


def _joined(line_end: re.Match[str]) -> str:
    """Return what stays of the end of a line with a hyphen: nothing within a word."""
    text = line_end.string
    start = line_end.start()
    end = line_end.end()
    previous = text[max(0, start - 1) : start]
    following = text[end : end + 1]
    ends_word = previous.isalpha() or (previous != "" and unicodedata.category(previous)[0] == "M")
    return (
        ""
        if ends_word and following.isalpha() and not (following.isupper() or following.istitle())
        else line_end[0]
    )


@inlined
def size_at(utf8: U8, i: int) -> int:
    """Return how many bytes the character at i has; `utf8` is well formed."""
    byte = utf8[i]
    return 1 if byte < 0x80 else (2 if byte < 0xE0 else (3 if byte < 0xF0 else 4))


@inlined
def code_at(utf8: U8, i: int, size: int) -> int:
    """Return the code point of the character of `size` bytes at i."""
    code = np.int64(utf8[i])
    if size > 1:
        code &= 0x7F >> size
        for k in range(1, size):
            code = code << 6 | np.int64(utf8[i + k]) & 0x3F
    return int(code)


BLOCK_TEXTS = 4096
"""So many texts at most are held as words at once."""

BLOCK_CHARACTERS = 1 << 22  # so many characters at most, unless one text has more


def in_blocks(
    texts: Sequence[str], characters_max: int = BLOCK_CHARACTERS
) -> Iterator[Sequence[str]]:
    """Yield the texts in blocks of bounded size; one block, though empty, when there are none."""
    first = 0
    n_characters = 0
    for i, text in enumerate(texts):
        if i > first and (i - first == BLOCK_TEXTS or n_characters + len(text) > characters_max):
            yield texts[first:i]
            first = i
            n_characters = 0
        n_characters += len(text)
    yield texts[first:]
