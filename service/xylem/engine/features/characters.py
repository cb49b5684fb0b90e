"""Encode texts for kernels, and classify characters: parts of words, marks, blanks, and letters of
scripts that are written without blanks.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from xylem.base import offsets
from xylem.engine.kernels.text.texts import LINE_END
from xylem_store import F32, I32, I64, U8, nonallocating_inlined

_N_CODES = 0x110000

# The bits of a character's class.
#
# WORD: a part of a word (a letter, digit or underscore); MARK: a mark that belongs to the letter
# before it; UNSPACED: a letter of a script that is written without blanks; SPACE: a blank or
# control character.
WORD = 1
MARK = 2
UNSPACED = 4
SPACE = 8


_WORDS_BELOW = 0x40000  # no code point from here on is a letter, a digit or a blank
# First and last code points of the blocks of scripts that are written without blanks.
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

# kernels handle characters below this code point, emoji included; rare Han and others go to Python
_READY_CODES = 0x1FB00
_JAMO = 0x1100, 0x11FF  # parts of Korean syllables, which NFC may join into one character
# In lower case the first one is two characters; the second one differs at the end of a word.
_ODD_CAPITALS = "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}\N{GREEK CAPITAL LETTER SIGMA}"

_MARKS = ((0x0300, 0x1E94A), (0xE0100, 0xE01EF))  # all combining marks lie in these ranges
_SOFT_HYPHEN = "\N{SOFT HYPHEN}"
_HYPHENS = f"-\N{HYPHEN}{_SOFT_HYPHEN}"
_LIGATURES = [*range(0xFB00, 0xFB07), *range(0xFB13, 0xFB18)]  # Latin and Armenian ones
_DIVIDED = re.compile(rf"[{_HYPHENS}][^\S\r\n]*+[\r\n]\s*+")
_LIGATURE = re.compile(f"[{''.join(map(chr, _LIGATURES))}]")


class TextReading(NamedTuple):
    """How the characters of texts are normalised.

    lowercase  convert to lower case
    unicode    convert to normalisation form C, so that a letter is the same however its marks were
               typed
    clean      remove soft hyphens, join words divided at the end of a line, and split ligatures
               into letters
    """

    lowercase: bool
    unicode: bool
    clean: bool


@functools.cache
def classes(unicode: bool) -> U8:
    r"""Return the class of every code point, uint8[0x110000].

    WORD is `\w`; SPACE is `\s` and the control characters. Without `unicode` no character is MARK
    or UNSPACED. The first call takes about 15 milliseconds.
    """
    class_of = np.zeros(_N_CODES, np.uint8)
    characters = np.arange(_WORDS_BELOW, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for pattern, kind in ((r"\w+", WORD), (r"\s+", SPACE)):
        for run in re.finditer(pattern, characters):
            class_of[run.start() : run.end()] |= kind
    class_of[[*range(0x20), *range(0x7F, 0xA0)]] |= SPACE  # control characters
    if unicode:
        for first, last in _MARKS:
            # characters that `\w` matches are not marks
            unclassed = first + np.flatnonzero(class_of[first : last + 1] == 0)
            class_of[
                [code for code in unclassed.tolist() if unicodedata.category(chr(code))[0] == "M"]
            ] |= MARK
        for first, last in _UNSPACED:
            block = class_of[first : last + 1]
            block[block & WORD != 0] |= UNSPACED
    return class_of  # left writeable: for a read-only array kernels would be compiled once more


@functools.cache
def ready_codes(reading: TextReading) -> I32:
    """Return the code point that each code point becomes in a normalised text, int32[..].

    -1 stands for a character that becomes several ones, or whose normalisation depends on the
    characters beside it: kernels leave such texts to `encoded`. With `unicode`, combining marks and
    the parts of Korean syllables are among them. With `clean`, the ends of lines are LINE_END:
    kernels leave a text to `encoded` if one follows a hyphen. The first call takes about 5
    milliseconds.
    """
    codes = np.arange(_READY_CODES, dtype="<u4")
    characters = codes.tobytes().decode("utf-32-le", "surrogatepass")
    unready = [*range(0xD800, 0xE000)]  # the surrogates
    if reading.lowercase:
        plain = characters
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
        ready[[not unicodedata.is_normalized("NFC", character) for character in characters]] = -1
    ready.flags.writeable = False
    return ready


def encoded(texts: Sequence[str], reading: TextReading) -> tuple[U8, I64]:
    """Return (utf8, text_ptr): text i, normalised, is utf8[text_ptr[i]:text_ptr[i + 1]].

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
    """Return a text without soft hyphens, ligatures and divided words: see `TextReading.clean`.

    A word is divided where a letter, a hyphen, the end of a line and a letter follow each other,
    possibly with blanks or more ends of lines around that end. Before a capital letter nothing is
    joined, because it begins another word: "Nord-", "Ostsee". Linear.
    """
    if "\n" in text or "\r" in text:
        text = _DIVIDED.sub(_joined, text)
    if text.isascii():
        return text
    text = text.replace(_SOFT_HYPHEN, "")
    return _LIGATURE.sub(lambda ligature: unicodedata.normalize("NFKC", ligature[0]), text)


def _joined(line_end: re.Match[str]) -> str:
    """Return the replacement of a hyphen and the end of a line: an empty string within a word."""
    start = line_end.start()
    end = line_end.end()
    previous = line_end.string[max(0, start - 1) : start]
    following = line_end.string[end : end + 1]
    ends_word = previous.isalpha() or (previous != "" and unicodedata.category(previous)[0] == "M")
    return (
        ""
        if ends_word and following.isalpha() and not (following.isupper() or following.istitle())
        else line_end[0]
    )


@nonallocating_inlined
def size_at(utf8: U8, i: int) -> int:
    """Return the number of bytes of the character at i; `utf8` is well formed."""
    byte = utf8[i]
    return 1 if byte < 0x80 else (2 if byte < 0xE0 else (3 if byte < 0xF0 else 4))


@nonallocating_inlined
def code_at(utf8: U8, i: int, size: int) -> int:
    """Return the code point of the character of `size` bytes at i."""
    code = np.int64(utf8[i])
    if size > 1:
        code &= 0x7F >> size
        for k in range(1, size):
            code = code << 6 | np.int64(utf8[i + k]) & 0x3F
    return int(code)


# The most texts of a block, whose words are in memory at the same time.
BLOCK_TEXTS = 4096

BLOCK_CHARACTERS = 1 << 22  # the most characters of a block, unless a single text has more


def in_blocks(
    texts: Sequence[str], characters_max: int = BLOCK_CHARACTERS
) -> Iterator[Sequence[str]]:
    """Yield the texts in blocks of bounded size; without texts, yield one empty block."""
    first = 0
    n_characters = 0
    for i, text in enumerate(texts):
        if i > first and (i - first == BLOCK_TEXTS or n_characters + len(text) > characters_max):
            yield texts[first:i]
            first = i
            n_characters = 0
        n_characters += len(text)
    yield texts[first:]


# A block of texts, and their weights; None: all are 1.
WeighedBlock: TypeAlias = tuple[Sequence[str], F32 | None]


def in_weighed_blocks(
    texts: Sequence[str], weights: F32 | None, characters_max: int = BLOCK_CHARACTERS
) -> Iterator[WeighedBlock]:
    """Yield the blocks of `in_blocks` with their weights."""
    first = 0
    for block in in_blocks(texts, characters_max):
        yield block, None if weights is None else weights[first : first + len(block)]
        first += len(block)
