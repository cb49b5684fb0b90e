"""Training of label trees on rows that are never in memory together.

The rows are stored in blocks. A step of the training holds one block, or the rows that reach a
group of subtrees. A node that is reached by more rows than a step may hold is trained block after
block. Source: Yu, Hsieh, Chang, Lin 2012, "Large linear classification when data cannot fit in
memory", algorithm 2, by dual coordinate descent.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from xylem.base import NO_ROWS, Calls, LabelRows, ValueHandle, inverse, offsets
from xylem.evaluation import rows_of
from xylem.trainers.classifiers import (
    SOLVERS,
    Solve,
    SolverOptions,
    TileRange,
    WeightsOfTile,
    aligned,
    chunk_of,
    costs_of_rows,
    count_positives,
    every_child,
    members_of,
    merge_chunks,
    solved_of,
)
from xylem.trainers.held_blocks import Blocks, deal_blocks
from xylem.trainers.kernels.problem import NO_ROOM, localise
from xylem.trainers.kernels.solver import Tile
from xylem.trainers.representations import rows_by_label
from xylem.trainers.shape import Shape
from xylem.trainers.size import count_used
from xylem.trainers.source import JoinedRows, RowsHandle, Tools, TrainingSet, derived_seed
from xylem.trainers.tree_criteria import parents_of
from xylem.trainers.weighing import Weighed, scale_features
from xylem_store import F32, I32, I64, LANES, U8, U16, Chunk

# A group of subtrees has at most 1 / _GROUPS of the rows that a step may hold: the weights of a
# group are in memory together, and groups are trained side by side.
_GROUPS = 16

# Most passes over all blocks; later passes change little
# (docs/adr/0020-steps-and-who-runs-them.md has figures).
PASSES_MAX = 20


class _Work(NamedTuple):
    """The work of one step.

    nodes  the nodes of a group of subtrees; or a single node above the groups
    tile   the tile that is trained of a large node, reached by more rows than a step may hold; -1
           for other nodes, whose classifiers are trained together
    parts  handles of the rows that reach the nodes. For a large node they are blocks dealt at
           random
    """

    nodes: list[int]
    tile: int
    parts: list[RowsHandle]


def _plan_nodes(blocks: Blocks, shape: Shape) -> tuple[list[int], list[int], list[list[int]]]:
    """Return the large nodes, the middle nodes, and the other inner nodes in groups.

    A large node is reached by more rows than a step may hold, a middle node by more than a group
    may have. A group has the nodes of subtrees whose leaves are consecutive. A row counts once for
    each of its labels.
    """
    rows = blocks.census.label_rows[shape.labels]
    ends = offsets(8 * (blocks.census.label_nonzeros[shape.labels] + 3 * rows))
    n_bytes = np.minimum(ends[shape.last] - ends[shape.first], 8 * blocks.census.n_entries)
    bytes_max = blocks.memory_bytes // _GROUPS
    is_above = n_bytes > bytes_max
    inner = shape.inner
    below = inner[~is_above[inner]]
    parents = parents_of(shape.child_ptr)
    groups: list[list[int]] = []
    first = end = 0
    for node in below[np.lexsort((below, shape.first[below]))].tolist():
        if node and not is_above[parents[node]]:
            groups[-1].append(node)
            continue
        start = int(shape.first[node])
        stop = int(shape.last[node])
        if not groups or start != end or ends[stop] - ends[first] > bytes_max:
            groups.append([])
            first = start
        groups[-1].append(node)
        end = stop
    is_large = n_bytes[inner] > blocks.memory_bytes
    middle = inner[is_above[inner] & ~is_large]
    return inner[is_large].tolist(), middle.tolist(), groups


def _split(block: RowsHandle, place: I32, group: I64, n_groups: int) -> list[TrainingSet]:
    """Return, for each group of leaves, the rows of a block that reach it, with all their labels.

    place  int32[K]   position of each label among the leaves
    group  int64[K']  group of each leaf; -1: none
    """
    data = block.get()
    label_group = group[place[data.labels.indices]]
    keys = np.unique((label_group * data.n_rows + rows_of(data.labels.indptr))[label_group >= 0])
    ends = np.searchsorted(keys, np.arange(n_groups + 1) * data.n_rows).tolist()
    return [data.take(keys[first:last] % data.n_rows) for first, last in pairwise(ends)]


@dataclass(frozen=True)
class _SolveWork:
    """A step that trains a group of subtrees at once, or a tile of a large node block by block.

    Its workspace is int32[n_features], zero between calls.
    """

    shape: Shape
    place: I32
    scale: F32 | None
    solving: SolverOptions
    seed: int
    n_root: float
    n_features: int

    def workspace(self) -> I32:
        """Return int32[n_features], zero: space for the rank of each feature."""
        return np.zeros(self.n_features, np.int32)

    def run(self, work: _Work, rank: I32, stop: U8) -> list[Chunk]:
        """Return the classifiers of a group by node, or of the one tile."""
        if work.tile >= 0:
            with TemporaryFile(buffering=0) as duals:
                return [self._solve_top(work, duals.fileno(), rank, stop)]
        data = JoinedRows(tuple(work.parts)).get()
        rows = scale_features(data.rows, self.scale)
        members = members_of(*rows_by_label(data.labels), self.shape.labels)
        del data
        solve = Solve(
            rows=rows,
            shape=self.shape,
            members=members,
            solving=self.solving,
            seed=self.seed,
            n_root=self.n_root,
            trained=every_child(self.shape, work.nodes),
        )
        workspace = np.zeros(rows.n_rows, np.int32), rank
        return [
            chunk_of(solve.run(TileRange(node, 0, solve.n_tiles(node)), workspace, stop))
            for node in work.nodes
        ]

    def _rows_in(
        self, labels: LabelRows, node: int, bounds: I64
    ) -> tuple[I32, U16, WeightsOfTile | None]:
        """Return the rows of a block that reach a node, the set of children (bits) of each, and
        their weights; None: all are 1.

        The bits are of the children in `bounds` for which the row is positive.
        """
        leaf = self.place[labels.indices]

        is_below = (leaf >= self.shape.first[node]) & (leaf < self.shape.last[node])
        node_rows, position = np.unique(
            rows_of(labels.indptr)[is_below].astype(np.int32), return_inverse=True
        )
        child = np.searchsorted(bounds, leaf[is_below], "right") - 1
        in_tile = (child >= 0) & (child < len(bounds) - 1)
        positive = np.zeros(len(node_rows), np.uint16)
        np.bitwise_or.at(positive, position[in_tile], (1 << child[in_tile]).astype(np.uint16))
        weights = labels.weights and WeightsOfTile.of_entries(
            labels.weights.rows[node_rows],
            position[in_tile],
            child[in_tile],
            labels.weights.labels[is_below][in_tile],
        )
        return node_rows, positive, weights

    def _solve_top(self, work: _Work, duals: int, rank: I32, stop: U8) -> Chunk:
        """Return the classifiers of a tile of a large node, trained block after block.

        A classifier is not changed any more after a pass in which it converged in every block.

        duals  file descriptor of the dual variables: LANES float32 for each row of the node
        """
        (node,) = work.nodes
        blocks = work.parts
        solving = self.solving
        bounds = self.shape.child_bounds(node)[work.tile * LANES : (work.tile + 1) * LANES + 1]
        n_children = len(bounds) - 1
        n_rows = []
        n_all = 0.0
        n_positive = np.zeros(n_children)
        for block in blocks:
            node_rows, positive, row_weights = self._rows_in(block.get().labels, node, bounds)
            n_rows.append(len(node_rows))
            n_block, n_block_positive = count_positives(
                positive >> np.arange(n_children, dtype=np.uint16)[:, None] & 1, None, row_weights
            )
            n_positive += n_block_positive
            n_all += n_block
        costs = solving.costs_at(self.n_root, n_all, n_positive)
        ends = offsets(n_rows)
        weights = aligned(self.n_features + 1)
        live = (1 << n_children) - 1
        for epoch in range(min(PASSES_MAX, solving.epochs_max)):
            words = self.seed, node, work.tile, epoch
            unfinished = 0
            moves = live >> np.arange(LANES) & 1 > 0
            for number in (
                np.random.default_rng(derived_seed(*words)).permutation(len(blocks)).tolist()
            ):
                data = blocks[number].get()
                node_rows, positive, row_weights = self._rows_in(data.labels, node, bounds)
                rows = scale_features(data.rows, self.scale)
                n = len(node_rows)
                problem = localise(rows, node_rows, rank, *NO_ROOM)
                block_features = np.append(problem.used, self.n_features)
                tile = Tile(
                    positive=positive,
                    weights=aligned(len(block_features)),
                    alpha=aligned(n),
                    order=np.empty(n, np.int32),
                    active=np.empty(n, np.uint16),
                )
                tile.weights[:] = weights[block_features]
                offset = int(ends[number]) * LANES * tile.alpha.itemsize
                os.preadv(duals, [tile.alpha.data], offset)
                old_alpha = tile.alpha.copy()
                solver_options = (solving.eps, 1, derived_seed(*words, number), stop)
                row_costs = costs_of_rows(costs, row_weights)
                epochs = SOLVERS[solving.loss](
                    problem, tile, n_children, row_costs, *solver_options
                )
                unfinished |= max(0, -int(epochs))
                weights[block_features] = np.where(moves, tile.weights, weights[block_features])
                os.pwrite(duals, np.where(moves, tile.alpha, old_alpha).data, offset)
                # frees the memory before the next block is loaded
                del data, rows, problem, tile, old_alpha, row_weights, row_costs
            live &= unfinished
            if stop[0] or not live:
                break
        used = np.arange(self.n_features)
        return chunk_of([solved_of(weights, used.astype(np.int32), used, n_children, solving)])


def _count_features(work: _Work, shape: Shape, n_features: int) -> list[int]:
    """Return, for each node of a work, the number of features that its rows have."""
    if work.tile < 0:
        data = JoinedRows(tuple(work.parts)).get()
        members = members_of(*rows_by_label(data.labels), shape.labels)
        return [count_used(node, data.rows, shape, members) for node in work.nodes]
    is_used, (node,) = np.zeros(n_features, np.uint8), work.nodes
    for block in work.parts:
        data = block.get()
        members = members_of(*rows_by_label(data.labels), shape.labels)
        node_rows = members.rows[members.ptr[shape.first[node]] : members.ptr[shape.last[node]]]
        is_used[data.rows.take(np.unique(node_rows)).indices] = 1
    return [int(is_used.sum())]


def features_used(blocks: Blocks, shape: Shape, tools: Tools) -> I64:
    """Return int64[nodes]: the number of features in the rows of each inner node; 0 at leaves."""
    works, _ = _divide_tree(blocks, shape, tools)
    used = np.zeros(len(shape.first), np.int64)

    def done(work: _Work, counts: list[int]) -> None:
        used[work.nodes] = counts

    tools.crew.steps(
        Calls(_count_features, (shape, blocks.census.n_features)),
        [work for work in works if work.tile <= 0],
        done,
    )
    return used


def block_bytes(n_features: int, memory_mib: int, n_rows: int) -> int:
    """Return the memory in bytes that a step of `train_blocks` takes.

    n_rows  number of rows of the largest block
    """
    return 3 * (memory_mib << 20) + 76 * n_features + 64 * n_rows


def _divide_tree(blocks: Blocks, shape: Shape, tools: Tools) -> tuple[list[_Work], I32]:
    """Divide a tree into works, and find the rows of each.

    Returns (the works, the largest first; int32[K], the position of each label among the leaves).
    """
    tops, middle, groups = _plan_nodes(blocks, shape)
    place = inverse(shape.labels, len(blocks.census.label_rows))

    def split_rows(
        groups: list[list[int]], held_blocks: list[RowsHandle]
    ) -> Iterator[list[RowsHandle]]:
        group = np.full(len(shape.labels), -1)
        for number, nodes in enumerate(groups):
            for node in nodes:
                group[shape.first[node] : shape.last[node]] = number
        split = (
            tools.crew.split(Calls(_split, (place, group, len(groups))), held_blocks, len(groups))
            if groups
            else []
        )
        return ([parts[number] for parts in split] for number in range(len(groups)))

    mixed = deal_blocks(blocks, tools) if tops else []
    parents = parents_of(shape.child_ptr)
    n_tiles = -(-np.diff(shape.child_ptr) // LANES)
    works: list[_Work] = []
    level = [0]
    while level:  # no row reaches two nodes of a level by the same label
        for nodes, handles in ((tops, mixed), (middle, blocks.handles)):
            level_nodes = [node for node in level if node in nodes]
            rows = (
                iter([handles])
                if level_nodes == [0]
                else split_rows([[node] for node in level_nodes], handles)
            )
            for node, parts in zip(level_nodes, rows, strict=True):
                tiles = range(n_tiles[node]) if nodes is tops else [-1]
                works += [_Work([node], tile, parts) for tile in tiles]
        above = set(level)
        level = [node for node in [*tops, *middle] if node and parents[node] in above]
    rows = split_rows(groups, blocks.handles)
    works += [_Work(nodes, -1, parts) for nodes, parts in zip(groups, rows, strict=True)]
    return works, place


def train_blocks(
    blocks: Blocks, shape: Shape, scale: F32 | None, solving: SolverOptions, tools: Tools
) -> list[Any]:
    """Return a handle of the chunk of every inner node of a shape, None at its leaves.

    This is `train_classifiers` for rows that are stored in blocks. A chunk scores original rows,
    and is in a file.

    The bits are those of `train_classifiers` at all nodes but the large ones, and do not depend on
    the machines that run the steps. Memory: the chunks of a few groups; for a step about three
    times `memory_bytes` and 76 bytes a feature.
    """
    works, place = _divide_tree(blocks, shape, tools)
    plain = Weighed(NO_ROWS, scale).plain_chunk
    chunks: list[ValueHandle[Chunk] | None] = [None] * len(shape.first)
    tiles: dict[int, list[tuple[Chunk, I32]]] = {
        work.nodes[0]: [] for work in works if work.tile >= 0
    }
    n_done = 0

    def done(work: _Work, solved: list[Chunk]) -> None:
        nonlocal n_done
        if work.tile >= 0:
            tiles[work.nodes[0]].append(
                (solved[0], work.tile * LANES + np.arange(len(solved[0].bias), dtype=np.int32))
            )
        else:
            for node, chunk in zip(work.nodes, solved, strict=True):
                chunks[node] = tools.crew.spill(plain(chunk))
        n_done += 1
        tools.progress("classifiers", n_done, len(works))

    solve = _SolveWork(
        shape=shape,
        place=place,
        scale=scale,
        solving=solving,
        seed=tools.seed,
        n_root=blocks.census.weighed.labelled,
        n_features=blocks.census.n_features,
    )
    tools.crew.steps(solve, works, done)
    for node, parts in tiles.items():
        n_children = len(shape.child_bounds(node)) - 1
        chunks[node] = tools.crew.spill(plain(merge_chunks(parts, n_children)))
    return chunks
