"""Long lists of texts, taken a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BLOCK_TEXTS = 4096
"""So many texts at most are held as words at once."""

BLOCK_CHARACTERS = 1 << 22
"""So many characters at most, unless one text has more."""


def in_blocks(
    texts: Sequence[str], texts_max: int = BLOCK_TEXTS, characters_max: int = BLOCK_CHARACTERS
) -> Iterator[Sequence[str]]:
    """Yield the texts in blocks of bounded size; one block, though empty, when there are none."""
    if len(texts) <= 1:
        yield texts
        return
    first, n_characters = 0, 0
    for i, text in enumerate(texts):
        if i > first and (i - first == texts_max or n_characters + len(text) > characters_max):
            yield texts[first:i]
            first, n_characters = i, 0
        n_characters += len(text)
    yield texts[first:]
