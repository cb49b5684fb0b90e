"""Rows that are stored in blocks and never in memory together.

Steps count them, sum them by label and deal them to other blocks.
"""

from functools import reduce
from itertools import islice, pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np

from xylem.base import BadData, Calls, SparseRows, ValueHandle, offsets
from xylem.trainers.representations import (
    VECTORS,
    label_sums,
    matrix_of,
    pieces_of,
    unit_vectors,
)
from xylem.trainers.source import (
    Census,
    JoinedRows,
    RowsHandle,
    RowSource,
    Tools,
    TrainingSet,
    derived_seed,
)
from xylem.trainers.weighing import FeatureCounts, count_features, scale_features, with_tail
from xylem_store import F32

_PARTS = 2  # a block is read from 1 / _PARTS of the MiB that a step may hold
_SUMS = 8  # the sums of labels are added in parts of 1 / _SUMS of the memory that a step may hold
STAGE = "blocks"


class Blocks(NamedTuple):
    """Rows in blocks, in the order of their source.

    handles       a handle of each block
    memory_bytes  most bytes of rows that a step may hold at once
    census        the counts of all rows
    """

    handles: list[RowsHandle]
    memory_bytes: int
    census: Census


def blocks_of(source: RowSource, memory_mib: int, tools: Tools) -> Blocks:
    """Read a stream and store its rows in blocks.

    source      each of its parts comes from one MiB of its file
    memory_mib  most MiB of rows that a step may hold

    Raises BadData, also for a row that is larger than memory_mib.
    """
    census = source.census
    census.check_labelled()
    parts = source.parts()
    n_read = 0
    handles: list[RowsHandle] = []
    tools.progress(STAGE, 0, census.n_rows)
    while batch := list(islice(parts, max(1, memory_mib // _PARTS))):
        block = TrainingSet.join(batch)
        n_bytes = 8 * np.diff(block.rows.indptr)
        if n_bytes.max(initial=0) > memory_mib << 20:
            raise BadData(
                f"row {n_read + n_bytes.argmax() + 1}: expected rows of at most "
                f"memory_mib={memory_mib} MiB, found {n_bytes.max():,} bytes"
            )
        handles.append(tools.crew.hold(block))
        n_read += block.n_rows
        tools.progress(STAGE, n_read, census.n_rows)
    return Blocks(handles, memory_mib << 20, census)


def _deal(block: RowsHandle, seed: int, n_parts: int) -> list[TrainingSet]:
    data = block.get()
    return [
        data.take(np.sort(part))
        for part in np.array_split(np.random.default_rng(seed).permutation(data.n_rows), n_parts)
    ]


def deal_blocks(blocks: Blocks, tools: Tools) -> list[RowsHandle]:
    """Return as many blocks as there are, with all rows dealt to them at random.

    Files are often sorted, and then blocks differ from one another: each would be learnt well, and
    forgotten while the next ones are learnt.
    """
    n_blocks = len(blocks.handles)
    parts = tools.crew.split(
        Calls(_deal, (derived_seed(tools.seed, n_blocks), n_blocks)), blocks.handles, n_blocks
    )
    return [JoinedRows(block_parts) for block_parts in zip(*parts, strict=True)]


def _count_features(block: RowsHandle) -> FeatureCounts:
    """Count the features of a block, but for those of the tail."""
    data = block.get()
    return count_features(data.rows.without_tail(), data.labels.weights)


def _sum_rows(block: RowsHandle, scale: F32 | None, bounds: list[int]) -> list[SparseRows]:
    """Return the sums of the weighed rows of each label of a block, in parts.

    Part i has the labels bounds[i] .. bounds[i + 1] - 1.
    """
    data = block.get()
    sums = label_sums(scale_features(data.rows, scale), data.labels)
    sum_rows = SparseRows(sums.indptr, sums.indices, sums.data, sums.shape[1])
    return [sum_rows.cut(first, last) for first, last in pairwise(bounds)]


def _add_sums(block_sums: tuple[ValueHandle[SparseRows], ...]) -> SparseRows:
    """Return the representations of some labels from their sums in each block.

    The sums are added from the first block to the last.
    """
    total: Any = reduce(add, (matrix_of(part.get()) for part in block_sums))
    total.sort_indices()
    return unit_vectors(total)


def factors_of(blocks: Blocks, idf: str, tools: Tools) -> F32 | None:
    """Return the factor of each feature, as `weigh` does; None if all are 1.

    The counts are added from the first block to the last.
    """
    if idf == "no":
        return None
    return with_tail(
        reduce(add, tools.crew.mapped(Calls(_count_features), blocks.handles)).factors(idf),
        blocks.census.tail,
    )


def vectors_of(blocks: Blocks, scale: F32 | None, tools: Tools) -> SparseRows:
    """Return the label representations of weighed rows. Memory: 1.5 times that of the result."""
    n_bytes = 8 * np.minimum(blocks.census.label_nonzeros, blocks.census.n_features)
    bounds = pieces_of(offsets(n_bytes), max(1, blocks.memory_bytes // _SUMS))
    n_parts = len(bounds) - 1
    tools.progress(VECTORS, 0, n_parts)
    split = tools.crew.split(Calls(_sum_rows, (scale, bounds)), blocks.handles, n_parts)
    items = list(zip(*split, strict=True))
    parts = tools.collect(VECTORS, Calls(_add_sums), items, tools.crew.spill)
    sizes = np.concatenate([np.diff(part.get().indptr) for part in parts])
    indices = np.concatenate([part.get().indices for part in parts])
    values = np.concatenate([part.get().values for part in parts])
    return SparseRows(offsets(sizes), indices, values, blocks.census.n_features)
