"""Words and n-grams of characters of a text, the slow and obvious way."""

import re
import unicodedata

from xylem.engine.features.characters import _UNSPACED


def ready(text: str, lowercase: bool, unicode: bool) -> str:
    """Return the text as its features are made of it."""
    text = text.lower() if lowercase else text
    text = unicodedata.normalize("NFC", text) if unicode else text
    return text.encode(errors="replace").decode()


def _is_unspaced(character: str) -> bool:
    in_block = any(first <= ord(character) <= last for first, last in _UNSPACED)
    return in_block and re.fullmatch(r"\w", character) is not None


def word_runs(text: str, lowercase: bool, unicode: bool) -> list[tuple[str, bool]]:
    """Return (word, whether it touches the word before) of a text."""
    text = ready(text, lowercase, unicode)
    if not unicode:
        return [(word, False) for word in re.findall(r"(?u)\b\w\w+\b", text)]
    found: list[tuple[str, bool]] = []
    word, end = "", -1
    for i, character in enumerate([*text, " "]):
        starts_unspaced = _is_unspaced(character)
        if word and unicodedata.category(character)[0] == "M":
            word += character
            continue
        if (
            word
            and not _is_unspaced(word[0])
            and not starts_unspaced
            and re.fullmatch(r"\w", character)
        ):
            word += character
            continue
        if word:
            unspaced = _is_unspaced(word[0])
            if unspaced or len(word) >= 2:
                touches = (
                    bool(found)
                    and unspaced
                    and end == i - len(word)
                    and _is_unspaced(found[-1][0][0])
                )
                found.append((word, touches))
                end = i
        word = character if starts_unspaced or re.fullmatch(r"\w", character) else ""
    return found


def word_ngrams(
    text: str, lowercase: bool, unicode: bool, ngram_min: int, ngram_max: int
) -> list[str]:
    """Return the n-grams of words; of two words that touch there is the pair as well."""
    return ngrams_of_runs(word_runs(text, lowercase, unicode), ngram_min, ngram_max)


def ngrams_of_runs(runs: list[tuple[str, bool]], ngram_min: int, ngram_max: int) -> list[str]:
    """Return the n-grams of words as `word_runs` returns them."""
    found = []
    for first in range(len(runs)):
        touching = first + 1 < len(runs) and runs[first + 1][1]
        longest = max(ngram_max, 2) if touching else ngram_max
        for length in range(ngram_min, min(longest, len(runs) - first) + 1):
            words = runs[first : first + length]
            found.append(
                "".join(
                    word if i == 0 or touches else f" {word}"
                    for i, (word, touches) in enumerate(words)
                )
            )
    return found


def char_ngrams(
    text: str, lowercase: bool, unicode: bool, shortest: int, longest: int
) -> list[str]:
    """Return the n-grams of characters within words, a blank at
    both ends: scikit-learn's `char_wb`.
    """
    text = ready(text, lowercase, unicode)
    blanked = "".join(
        " " if unicodedata.category(character) == "Cc" else character for character in text
    )
    found = []
    for word in blanked.split():
        padded = f" {word} "
        if len(padded) < shortest:
            found.append(padded)
        for length in range(shortest, min(longest, len(padded)) + 1):
            found += [padded[i : i + length] for i in range(len(padded) - length + 1)]
    return found


def slow_hash(data: bytes) -> int:
    """FNV-1a, then the finaliser of MurmurHash3."""
    word = (1 << 64) - 1
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & word
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & word
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & word
    return h ^ (h >> 33)
