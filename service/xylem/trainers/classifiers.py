"""Training of the classifiers of a label tree: one-versus-rest for the children of each node."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from xylem.base import SparseRows, inverse, offsets, ranges
from xylem.trainers.kernels.newton import OldRows, no_old_rows, refine
from xylem.trainers.kernels.problem import (
    NO_ROOM,
    Problem,
    forget_rows,
    localise,
    pack_tile,
    positives,
    rows_of,
    unpack_tile,
)
from xylem.trainers.kernels.solver import Tile, solve_logistic, solve_one, solve_squared_hinge
from xylem.trainers.shape import Shape
from xylem.trainers.source import Tools, derived_seed
from xylem_store import F32, F64, I32, I64, LANES, U8, U16, Chunk

Loss = Literal["squared_hinge", "logistic"]

# The solver that trains the classifiers of a tile, for each loss.
SOLVERS: dict[Loss, Any] = {"squared_hinge": solve_squared_hinge, "logistic": solve_logistic}

# a piece of work has about this many visits (a tile visits each row once an epoch), or one tile
_PIECE = 2_000_000
_LINE_BYTES = 64


class SolverOptions(NamedTuple):
    """The options of the training of classifiers.

    cost, cost_decay, rare_decay  at a node with n of the root's N rows, a child with p positive
                rows has the cost `cost * (N / n) ** cost_decay * (n / p) ** rare_decay`
    eps         accuracy at which a solver stops
    epochs_max  most epochs of a solver
    prune       weights smaller than this are left out; 0 keeps all weights that are not 0
    tail        all weights of the last `tail` features are kept, so that each node has all of them
    """

    loss: Loss
    cost: float
    cost_decay: float
    rare_decay: float
    eps: float
    epochs_max: int
    prune: float
    tail: int = 0

    def costs_at(self, n_root: float, n_rows: float, n_positive: I64 | F32 | F64) -> F32:
        """Return float32[LANES]: the costs of the children of a tile.

        n_root, n_rows  rows of the root and of the node; if rows have weights, the sums of these
        n_positive      positive rows of each child, or the sums of their weights

        Lanes beyond the last child get the cost of a child with all rows.
        """
        costs = np.full(LANES, self.cost * (n_root / n_rows) ** self.cost_decay)
        costs[: len(n_positive)] *= (n_rows / np.maximum(n_positive, 1)) ** self.rare_decay
        return costs.astype(np.float32)


class Members(NamedTuple):
    """The rows of each label, with the labels in the order of a shape's leaves.

    ptr   int64[K' + 1]  rows[ptr[i] : ptr[i + 1]] carry label i. It may have one element more, the
          end of further rows that carry none of these labels. They are negatives at the root, and
          are not used at other nodes
    rows  int32[..]      ascending within a label
    weights  of the rows; those of labels are in the order of `rows`. None: all are 1
    """

    def end(self, shape: Shape, node: int) -> int:
        """Return the index into `ptr` of the end of a node's rows.

        It is `last` of the node; at the root it is the last element of `ptr`, the end of all rows.
        """
        return len(self.ptr) - 1 if node == 0 else int(shape.last[node])

    def n_rows(self) -> float:
        """Return the number of rows with a label; if they have weights, the sum of these."""
        return (
            int(np.count_nonzero(np.bincount(self.rows)))
            if self.weights is None
            else float(self.weights.rows[np.unique(self.rows)].sum(dtype=np.float64))
        )

    ptr: I64
    rows: I32
    weights: Any = None


class RowSample(NamedTuple):
    """A sample of the rows of a node, used in place of all of them.

    rows         int32[n]    ascending
    is_old       uint8[n]    1 if the old weights of the node were trained on the row
    weight       float32[n]  number of rows that the row stands for, in the loss or the curvature
    old_members  the members of the labels on which the old weights were trained
    """

    rows: I32
    is_old: U8
    weight: F32
    old_members: Members


class WeightsOfTile(NamedTuple):
    """How much the n rows of a node count for the children of a tile.

    rows   float32[n]         as negatives
    lanes  float32[n, LANES]  for each child; lanes beyond the last child are those of negatives
    """

    rows: F32
    lanes: F32

    @classmethod
    def of_entries(cls, rows: F32, position: I64, lane: I64, weight: F32) -> Self:
        """Return the weights from those of the rows' labels.

        A row counts for a child by its largest weight of a label below the child; without such a
        label as a negative.

        position, lane, weight  for each such label its row, its child and its weight
        """
        lanes = np.repeat(rows, LANES)
        cells = position * LANES + lane
        lanes[cells] = 0
        np.maximum.at(lanes, cells, weight)
        return cls(rows, lanes.reshape(-1, LANES))


def costs_of_rows(costs: F32, weights: WeightsOfTile | None) -> F32:
    """Return the costs of a tile as solvers take them: float32[n, LANES], or of all rows alike.

    costs    float32[LANES], of a row of weight 1
    weights  of the rows; None: all are 1
    """
    return costs[None] if weights is None else costs * weights.lanes


def count_positives(
    is_positive: I64, sample: RowSample | None, weights: WeightsOfTile | None
) -> tuple[float, I64 | F32 | F64]:
    """Return (the number of rows of the node, the number of positive rows of each child of a tile).

    If rows have weights, the numbers are sums of these.

    is_positive  int64[children, rows]  1 where a row is positive for a child
    sample       the rows and their weights; None: all rows of the node
    weights      of all rows of the node; None: each row has weight 1
    """
    if weights is not None:
        of_positives = is_positive.T * weights.lanes[:, : len(is_positive)]
        return float(weights.rows.sum(dtype=np.float64)), of_positives.sum(0, np.float64)
    return (
        (is_positive.shape[1], np.count_nonzero(is_positive, axis=1))
        if sample is None
        else (round(sample.weight.sum(dtype=np.float64)), is_positive @ sample.weight)
    )


class ChildTraining(NamedTuple):
    """The children of a node whose classifiers are trained, and where their training starts.

    children  int32[n]  ascending
    old       the weights from which the training starts; None: it starts from 0
    place     int32[C]  position in `children` of each child of `old`; -1: not in it
    sample    the rows on which they are trained; None: all rows of the node. With a sample, old
              weights are taken to be the optimum for the old rows. Old weights of features that no
              row of the sample has do not change, and are left out of the result. Without old
              weights (loss squared_hinge only) one child is trained after the other
    """

    children: I32
    old: Chunk | None = None
    place: I32 = np.empty(0, np.int32)
    sample: RowSample | None = None


class TileRange(NamedTuple):
    """Consecutive tiles of a node: first .. last - 1."""

    node: int
    first: int
    last: int


class TileWeights(NamedTuple):
    """The weights of a trained tile.

    features  int32[m]      ascending
    counts    int32[m]      weights of each feature
    lane      uint8[nnz]    child of each weight, as its position in the tile
    weight    float32[nnz]
    bias      float32[children of the tile]
    """

    features: I32
    counts: I32
    lane: U8
    weight: F32
    bias: F32


def members_of(ptr: I64, rows: I32, weights: Any, labels: I32) -> Members:
    """Return the members of `labels`, given the rows of all labels (`rows_by_label`)."""
    counts = np.diff(ptr)[labels]
    entries = ranges(ptr[labels], counts)
    of_entries = weights and weights._replace(labels=weights.labels[entries])
    return Members(offsets(counts), rows[entries], of_entries)


def every_child(shape: Shape, nodes: Iterable[int]) -> dict[int, ChildTraining]:
    """Return for each node the training of all its children from 0."""
    counts = np.diff(shape.child_ptr)
    return {node: ChildTraining(np.arange(counts[node], dtype=np.int32)) for node in nodes}


def train_classifiers(
    rows: SparseRows,
    shape: Shape,
    members: Members,
    solving: SolverOptions,
    tools: Tools,
    trained: Mapping[int, ChildTraining] | None = None,
) -> list[Chunk | None]:
    """Return the chunk of every inner node of `shape`, None at its leaves.

    A child's positives are the rows that carry one of its labels, its negatives the node's other
    rows. Source: Lin, Liu and Lin 2024, section 2; solvers: `xylem.trainers.kernels.solver`. The
    bits do not depend on the number of threads. Memory: the chunks, and for each thread the rows of
    a node and 128 bytes for each of them.

    trained  by node: the children to train; a chunk has only these, and other nodes get None. None:
             all children of all inner nodes, from 0 (`every_child`)
    """
    trained = every_child(shape, shape.inner.tolist()) if trained is None else trained
    solve = Solve(
        rows=rows,
        shape=shape,
        members=members,
        solving=solving,
        seed=tools.seed,
        n_root=members.n_rows(),
        trained=trained,
    )
    pieces = sorted(solve.pieces(), key=lambda piece: -solve.visits(piece))
    total = sum(map(solve.visits, pieces))
    visits_done = 0
    solved: dict[int, dict[int, TileWeights]] = {node: {} for node in trained}
    chunks: list[Chunk | None] = [None] * len(shape.first)

    def done(piece: TileRange, tiles: list[TileWeights]) -> None:
        nonlocal visits_done
        node_tiles = solved[piece.node]
        node_tiles.update(zip(range(piece.first, piece.last), tiles, strict=True))
        if len(node_tiles) == solve.n_tiles(piece.node):
            chunks[piece.node] = chunk_of([node_tiles[tile] for tile in sorted(node_tiles)])
            del solved[piece.node]
        visits_done += solve.visits(piece)
        tools.progress("classifiers", visits_done, total)

    tools.crew.steps(solve, pieces, done)
    return chunks


def solver_bytes(rows: SparseRows) -> int:
    """Return the memory in bytes that a tile of the root takes while it is trained.

    That is a copy of the rows, 88 bytes for each row (64 of them dual variables of 16 children),
    and 72 bytes for each feature.
    """
    return 8 * len(rows.indices) + 88 * rows.n_rows + 72 * rows.n_features


def aligned(n: int) -> F32:
    """Return float32[n, LANES] of zeros, whose memory begins on a cache line."""
    n_bytes = n * LANES * 4
    raw = np.zeros(n_bytes + _LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % _LINE_BYTES
    return raw[start : start + n_bytes].view(np.float32).reshape(n, LANES)


@dataclass(frozen=True)
class Solve:
    """A step that trains some children of a node, in tiles: LANES children that share each pass.

    Its workspace is int32[n_rows] and int32[n_features], zero between calls.
    """

    rows: SparseRows
    shape: Shape
    members: Members
    solving: SolverOptions
    seed: int
    n_root: float
    trained: Mapping[int, ChildTraining]

    def n_tiles(self, node: int) -> int:
        """Return the number of a node's tiles."""
        return -(-len(self.trained[node].children) // LANES)

    def _carried(self, node: int) -> int:
        return int(
            self.members.ptr[self.members.end(self.shape, node)]
            - self.members.ptr[self.shape.first[node]]
        )

    def visits(self, piece: TileRange) -> int:
        """Return an upper bound on the visits of rows in an epoch of a piece."""
        return self._carried(piece.node) * (piece.last - piece.first)

    def pieces(self) -> Iterator[TileRange]:
        """Yield the pieces of all nodes; they do not depend on the number of threads."""
        for node in self.trained:
            n_tiles = self.n_tiles(node)
            step = max(1, _PIECE // max(1, 10 * min(self._carried(node), self.rows.n_rows)))
            for first in range(0, n_tiles, step):
                yield TileRange(node, first, min(n_tiles, first + step))

    def _weights_of_tile(
        self, node_rows: I32, firsts: I64, lasts: I64, place: I32
    ) -> WeightsOfTile | None:
        """Return the weights of a node's rows for a tile; None if all are 1.

        firsts, lasts, place  as for `positives`
        """
        weights = self.members.weights
        if weights is None:
            return None
        counts = self.members.ptr[lasts] - self.members.ptr[firsts]
        entries = ranges(self.members.ptr[firsts], counts)
        return WeightsOfTile.of_entries(
            weights.rows[node_rows],
            place[self.members.rows[entries]].astype(np.int64) - 1,
            np.repeat(np.arange(len(counts)), counts),
            weights.labels[entries],
        )

    def workspace(self) -> tuple[I32, I32]:
        """Return the workspace of a thread."""
        return np.zeros(self.rows.n_rows, np.int32), np.zeros(self.rows.n_features, np.int32)

    def run(self, piece: TileRange, workspace: tuple[I32, I32], stop: U8) -> list[TileWeights]:
        """Return the weights of each tile of a piece."""
        solving = self.solving
        training = self.trained[piece.node]
        place, rank = workspace
        bounds = self.shape.child_bounds(piece.node)
        sample = training.sample
        if sample is None:
            node_rows = rows_of(
                self.members.ptr,
                self.members.rows,
                bounds[0],
                self.members.end(self.shape, piece.node),
                place,
            )
        else:
            node_rows = sample.rows
            place[node_rows] = np.arange(1, len(node_rows) + 1)
        problem: Problem = localise(self.rows, node_rows, rank, *NO_ROOM)
        n_rows = len(node_rows)
        n_used = len(problem.used)
        ascending = np.argsort(problem.used)
        order = np.empty(n_rows, np.int32)
        active = np.empty(n_rows, np.uint16)
        solved = []

        def positive(members: Members, tile_children: I32) -> U16:
            # the last element is written for rows of labels that are not in `node_rows`
            masks = np.empty(n_rows + 1, np.uint16)
            positives(
                members.ptr,
                members.rows,
                bounds[tile_children],
                bounds[tile_children + 1],
                place,
                masks,
            )
            return masks[:-1]

        for number in range(piece.first, piece.last):
            if stop[0]:
                break
            tile_children = training.children[number * LANES : (number + 1) * LANES]
            n_children = len(tile_children)
            row_masks = positive(self.members, tile_children)
            is_positive = row_masks >> np.arange(n_children, dtype=np.uint16)[:, None] & 1
            row_weights = self._weights_of_tile(
                node_rows, bounds[tile_children], bounds[tile_children + 1], place
            )
            costs = solving.costs_at(
                self.n_root, *count_positives(is_positive, sample, row_weights)
            )
            solver_options: Any = (
                solving.eps,
                solving.epochs_max,
                derived_seed(self.seed, piece.node, number),
                stop,
            )
            if training.old is None and sample is not None:
                weights = aligned(n_used + 1)
                for child in range(n_children):
                    weights[:, child] = solve_one(
                        problem, is_positive[child], costs[child] * sample.weight, *solver_options
                    )
                solved.append(solved_of(weights, problem.used, ascending, n_children, solving))
                continue
            tile = Tile(row_masks, aligned(n_used + 1), aligned(n_rows), order, active)
            if training.old is not None:
                lane = np.where(training.place // LANES == number, training.place % LANES, -1)
                unpack_tile(
                    training.old, lane, inverse(problem.used, self.rows.n_features), tile.weights
                )
                tile.weights[n_used, lane[lane >= 0]] = training.old.bias[lane >= 0]
                old_rows = (
                    no_old_rows(n_rows)
                    if sample is None
                    else OldRows(
                        positive(sample.old_members, tile_children), sample.is_old, sample.weight
                    )
                )
                refine(
                    problem,
                    tile,
                    costs,
                    solving.loss == "logistic",
                    old_rows,
                    sample is not None,
                    stop,
                )
            else:
                SOLVERS[solving.loss](
                    problem,
                    tile,
                    n_children,
                    costs_of_rows(costs, row_weights),
                    *solver_options,
                )
            solved.append(solved_of(tile.weights, problem.used, ascending, n_children, solving))
        forget_rows(node_rows, place)
        return solved


def merge_chunks(parts: Sequence[tuple[Chunk, I32]], n_children: int) -> Chunk:
    """Return one chunk with the children of several chunks.

    parts  chunks, each with int32[C]: the position of each of its children in the new chunk; -1:
           the child is left out. A child may be in two of the chunks, if they have its weights for
           different features; its bias is that of the first one
    """
    bias = np.zeros(n_children, np.float32)
    keys = [np.empty(0, np.int64)]
    weights = [np.empty(0, np.float32)]
    for chunk, place in reversed(parts):
        bias[place[place >= 0]] = chunk.bias[place >= 0]
        child = place[chunk.child]
        keys.append((chunk.feature.astype(np.int64) * n_children + child)[child >= 0])
        weights.append(chunk.weight[child >= 0])
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")  # fast here: a stable sort merges sorted runs
    return Chunk.from_weights(
        *np.divmod(key[order], n_children), np.concatenate(weights)[order], bias
    )


def solved_of(
    weights: F32, used: I32, ascending: I64, n_children: int, solving: SolverOptions
) -> TileWeights:
    """Return the weights of a tile that are not pruned.

    used       int32[m]  feature of each rank
    ascending  int64[m]  the ranks, sorted by feature
    """
    counts = np.empty(len(used), np.int32)
    lane, weight = pack_tile(weights, ascending, n_children, solving.prune, counts, solving.tail)
    return TileWeights(
        used[ascending], counts, lane, weight, weights[len(used), :n_children].copy()
    )


def chunk_of(tiles: list[TileWeights]) -> Chunk:
    """Return the chunk of a node from all its tiles, in their order."""
    counts = np.sum([tile.counts for tile in tiles], axis=0, dtype=np.int64)
    ends = np.cumsum(counts)
    next_entry = ends - counts
    child = np.empty(int(counts.sum()), np.int32)
    weight = np.empty(len(child), np.float32)
    for number, tile in enumerate(tiles):
        positions = ranges(next_entry, tile.counts)
        child[positions] = number * LANES + tile.lane.astype(np.int32)
        weight[positions] = tile.weight
        next_entry += tile.counts
    is_used = counts > 0
    return Chunk(
        features=tiles[0].features[is_used],
        row_ptr=np.concatenate([[0], ends[is_used]]),
        child=child,
        weight=weight,
        bias=np.concatenate([tile.bias for tile in tiles]),
    )
