"""Long lists of texts, taken a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from service.rows import SparseRows

BLOCK_TEXTS = 4096
"""So many texts are held as words at once."""


def in_blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the texts in blocks of BLOCK_TEXTS; one block, though empty, when there are none."""
    if len(texts) <= BLOCK_TEXTS:
        yield texts
        return
    for start in range(0, len(texts), BLOCK_TEXTS):
        yield texts[start : start + BLOCK_TEXTS]


def joined(blocks: list[SparseRows], n_features: int) -> SparseRows:
    """Return the rows of all blocks, one at least, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    sizes = np.concatenate([np.diff(block.indptr) for block in blocks])
    return SparseRows(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([block.indices for block in blocks]),
        np.concatenate([block.values for block in blocks]),
        n_features,
    )
