"""Bit sets of 32 features, by which a chunk finds the row of a feature; for builder and kernels.

A chunk uses some of the D features. Features are cut into blocks of 32 and blocks into groups of
32. The chunk's *directory* has, for every group, the set of its blocks that are not empty and the
number of such blocks before the group. Each of these *blocks* has the set of its features that are
used and the number of rows before the block. So the position of a row is found by counting bits: no
search, no collision, and no branch to mispredict (hash tables, which were used first, spent two
thirds of a traversal on mispredicted branches).
"""

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types

from xylem_store.compiled.decorators import instruction, nonallocating_inlined

# The number of weights in the kernels' vectors.
#
# A dense row of up to LANES children is padded to a power of two, a wider one to a multiple of
# LANES. All dense rows are followed by LANES zeros, since the last one is read as vectors too.
LANES = 16


BLOCK_BITS = 5  # a block holds 2^5 features, a group 2^5 blocks
GROUP_BITS = 2 * BLOCK_BITS
_MASK = 31
_ONE_U32 = np.uint32(1)
_ONE_U64 = np.uint64(1)


@instruction
def popcount(typing_context: Any, word: Any) -> Any:
    """Return how many bits of a uint32 are set, int64."""
    if word != types.uint32:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.ctpop(arguments[0]), ir.IntType(64))

    return types.int64(types.uint32), generate


@nonallocating_inlined
def has(word: np.uint32, item: int | np.integer[Any]) -> np.int64:
    """Return 1 if item % 32 is in the set `word`, else 0, int64."""
    return np.int64((word >> np.uint32(item & _MASK)) & _ONE_U32)


@nonallocating_inlined
def count_below(word: np.uint32, item: int | np.integer[Any]) -> np.int64:
    """Return how many elements of the set `word` are less than item % 32, int64."""
    return np.int64(
        popcount(np.uint32(word & np.uint32((_ONE_U32 << np.uint32(item & _MASK)) - _ONE_U32)))
    )


@nonallocating_inlined
def split_word(word: int | np.integer[Any], n_bytes: int) -> tuple[np.int64, np.uint32]:
    """Return the child's position and the weight's bits in a sparse word of `n_bytes` bytes."""
    half = np.uint64(4 * n_bytes)
    word_64 = np.uint64(word)
    return np.int64(word_64 & ((_ONE_U64 << half) - _ONE_U64)), np.uint32(word_64 >> half)


@nonallocating_inlined
def padded_width(n_children: int | np.integer[Any]) -> int:
    """Return the width of a dense row of n_children (>= 1).

    It is a power of two up to LANES, and a multiple of LANES above.
    """
    if n_children > LANES:
        return int((n_children + LANES - 1) // LANES * LANES)
    width = 1
    while width < n_children:
        width += width
    return width


def n_groups(n_features: int) -> int:
    """Return the length of a directory over `n_features` features."""
    return -(-n_features // (1 << GROUP_BITS))
