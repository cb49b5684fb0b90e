"""Training of the node classifiers of probabilistic label trees, by stochastic gradient descent."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from xylem.base import Crew, offsets, ranges
from xylem.trainers.plt.fobos import Descent, Shard, Topology, add_pairs, train_shard, used_keys
from xylem.trainers.shape import Shape
from xylem.trainers.source import Census, OnRows, RowSource, Tools, TrainingSet, derived_random
from xylem.trainers.state import LearnerState, check_that, restoring
from xylem.trainers.tree_criteria import parents_of
from xylem.trainers.windows import deal_windows
from xylem_store import I32, Chunk, Tree, TreeEnsemble, build_ensemble, new_seed

# Most shards of a tree: its nodes are dealt to shards, which are trained in parallel.
SHARDS = 8

_WORD_BYTES = 4
_SLOT_BYTES = 16
_SLOTS_MIN = 8
_SHUFFLE = 1  # word of derived seeds: for shuffling the rows of a window, for each tree

# Number of parts of the rows in the first pass. `Tools.on_rows` is called with the rows of a part
# and with the trees that have learnt from all parts before it.
PARTS = 10


class _TrainingTree(NamedTuple):
    """A tree that is being trained."""

    seed: int
    shape: Shape
    topology: Topology
    shards: list[Shard]


def train_trees(
    source: RowSource,
    shapes: list[tuple[Tools, Shape]],
    descent: Descent,
    bytes_max: int,
    tools: Tools,
) -> tuple[list[Tree], dict[str, int], LearnerState | None]:
    """Train the classifiers of several trees in the same passes over the rows.

    shapes     (tools of the tree, its shape) for each tree; a training that continues has the
               shapes of its state
    bytes_max  most bytes of the weights of all trees together

    If `tools.on_rows` is set, it is called with the rows of the first pass, except those of the
    first part, before they are learnt; all trees then learn in the order of the first tree in that
    pass.

    Returns (the trees; a report with the number of weights, and how often a feature was skipped
    because there was no room for it; the state, None if `tools.passes` does not ask for it). Rows
    are shuffled again for each epoch and each tree (`windows`). Memory: bytes_max and two windows.
    The bits do not depend on the number of threads, or on how the source cuts its rows.
    """
    census = source.census
    growing = _begin(
        [shape for _, shape in shapes], [tree.seed for tree, _ in shapes], census, bytes_max
    )
    if tools.passes.state is not None:
        with restoring():
            _restore(growing, tools.passes.state, census.n_features)
    passes = tools.passes.pass_numbers(descent.epochs)

    def so_far() -> TreeEnsemble:
        return build_ensemble(
            [_harvest(tree, descent, census.n_features) for tree in growing],
            len(census.label_rows),
            census.n_features,
        )

    preview = None if tools.on_rows is None else _Preview(tools.on_rows, census.n_rows, so_far)
    windows = deal_windows(source, tools)
    for epoch in passes:
        n_done = epoch * census.n_rows
        for number, window in windows.visit(epoch):
            orders: list[I32] = [
                derived_random(tree.seed, _SHUFFLE, epoch, number)
                .permutation(window.n_rows)
                .astype(np.int32)
                for tree in growing
            ]
            if preview is None or epoch > 0:
                _descend(window, orders, growing, descent, tools.crew)
            else:
                for piece in preview.pieces(n_done, window, orders[0]):
                    _descend(window, [piece] * len(growing), growing, descent, tools.crew)
            n_done += window.n_rows
            tools.progress("classifiers", n_done, descent.epochs * census.n_rows)
    passed_over = sum(int(shard.used[2]) for tree in growing for shard in tree.shards)
    trained = sum(int(shard.used[1]) for tree in growing for shard in tree.shards)
    state = _state(growing, passes.stop, census.n_features) if tools.passes.keeps else None
    trees = []
    for tree in growing:
        trees.append(_harvest(tree, descent, census.n_features))
        tree.shards.clear()
    return trees, {"weights": trained, "passed_over": passed_over}, state


class _Preview:
    """Calls `on_rows` with all rows except those of the first part.

    The trees are harvested once for each part, before its first row.
    """

    def __init__(self, on_rows: OnRows, n_rows: int, trees: Callable[[], TreeEnsemble]) -> None:
        self._on_rows = on_rows
        self._begins = {part * n_rows // PARTS for part in range(1, PARTS)} - {0}
        self._trees = trees
        self._ensemble: TreeEnsemble | None = None

    def pieces(self, n_before: int, window: TrainingSet, order: I32) -> Iterator[I32]:
        """Yield the order of a window in pieces, each after `on_rows` was called with its rows.

        n_before  number of rows in the windows before this one
        """
        end = n_before + len(order)
        cuts = sorted({n_before, end, *(begin for begin in self._begins if n_before < begin < end)})
        for low, high in itertools.pairwise(cuts):
            piece = order[low - n_before : high - n_before]
            if low in self._begins:
                self._ensemble = self._trees()
            if self._ensemble is not None:
                self._on_rows(self._ensemble, window.take(piece))
            yield piece


def _begin(
    shapes: list[Shape], seeds: list[int], census: Census, bytes_max: int
) -> list[_TrainingTree]:
    """Return the trees before the first row.

    If bytes_max is not enough for all weights that may occur, each shard gets less room.
    """
    shards = [_deal(shape, census) for shape in shapes]
    rooms = [_room(shape, shard, census) for shape, shard in zip(shapes, shards, strict=True)]
    needed = sum(
        _SLOT_BYTES * n_slots + _WORD_BYTES * n_words for room in rooms for n_slots, n_words in room
    )
    share = min(1.0, bytes_max / needed)
    growing = []
    for seed, shape, shard, room in zip(seeds, shapes, shards, rooms, strict=True):
        is_leaf = np.diff(shape.child_ptr) == 0
        leaf = np.full(len(census.label_rows), -1, np.int32)
        leaf[shape.labels[shape.first[is_leaf]]] = np.flatnonzero(is_leaf)
        topology = Topology(shape.child_ptr, parents_of(shape.child_ptr), leaf, shard)
        bias = np.zeros(len(shape.first), np.float32)
        steps = np.zeros(len(shape.first), np.int64)
        tree_shards = []
        for number, (n_slots, n_words) in enumerate(room):
            # a power of two
            slots = max(_SLOTS_MIN, 1 << (max(1, int(n_slots * share)).bit_length() - 1))
            tree_shards.append(
                Shard(
                    number=number,
                    seed=new_seed(),
                    keys=np.zeros(slots, np.uint64),
                    place=np.zeros(slots, np.int64),
                    pool=np.zeros(int(n_words * share), np.float32),
                    bias=bias,
                    steps=steps,
                    used=np.zeros(3, np.int64),
                )
            )
        growing.append(_TrainingTree(seed, shape, topology, tree_shards))
    return growing


def _descend(
    window: TrainingSet,
    orders: list[I32],
    growing: list[_TrainingTree],
    descent: Descent,
    crew: Crew,
) -> None:
    """Train every shard of every tree on the rows of a window, each tree in its own order."""

    def work(item: tuple[int, int]) -> None:
        t, number = item
        tree = growing[t]
        train_shard(*window, orders[t], tree.topology, tree.shards[number], descent, crew.stop)

    crew.run(
        work,
        [(t, number) for t, tree in enumerate(growing) for number in range(len(tree.shards))],
        lambda item, result: None,
    )


def _deal(shape: Shape, census: Census) -> I32:
    """Return the shard of each inner node, -1 at leaves.

    The nodes are dealt by falling work, each to the shard with the least work so far.
    """
    visits = np.minimum(shape.below(census.label_rows[shape.labels]), census.n_rows)
    visits[0] = census.n_rows
    work = visits * np.diff(shape.child_ptr)
    inner = shape.inner
    shard = np.full(len(shape.first), -1, np.int32)
    loads = [(0, number) for number in range(min(SHARDS, len(inner)))]
    for node in inner[np.argsort(-work[inner], kind="stable")].tolist():
        load, number = heapq.heappop(loads)
        shard[node] = number
        heapq.heappush(loads, (load + int(work[node]), number))
    return shard


def _room(shape: Shape, shard: I32, census: Census) -> list[tuple[int, int]]:
    """Return (slots for pairs of node and feature, number of weights) for each shard.

    They are enough for all that may occur: a node has no more pairs than its rows have features.
    """
    pairs = np.minimum(shape.below(census.label_nonzeros[shape.labels]), census.n_features)
    pairs[0] = min(census.n_nonzeros, census.n_features)
    words = pairs * np.diff(shape.child_ptr)
    room = []
    for number in range(int(shard.max()) + 1):
        in_shard = shard == number
        n_slots = _SLOTS_MIN
        while 3 * n_slots < 4 * (int(pairs[in_shard].sum()) + 1):
            n_slots *= 2
        room.append((n_slots, int(words[in_shard].sum())))
    return room


def _state(growing: list[_TrainingTree], n_passes: int, n_features: int) -> LearnerState:
    """Return the state of the trees: for each shard its pairs by key, and their weights."""
    keys = []
    weights = []
    passed_over = []
    for tree in growing:
        width = np.diff(tree.shape.child_ptr)
        for shard in tree.shards:
            shard_keys, place = used_keys(shard.keys, shard.place)
            nodes = (shard_keys - np.uint64(1)) // np.uint64(n_features)
            keys.append(shard_keys)
            weights.append(shard.pool[ranges(place, width[nodes])])
            passed_over.append(int(shard.used[2]))
    return LearnerState(
        n_passes,
        {"passed_over": passed_over},
        {
            "key_ptr": offsets(map(len, keys)),
            "keys": np.concatenate(keys),
            "weights": np.concatenate(weights),
            "bias": np.concatenate([tree.shards[0].bias for tree in growing]),
            "steps": np.concatenate([tree.shards[0].steps for tree in growing]),
        },
    )


def _restore(growing: list[_TrainingTree], state: LearnerState, n_features: int) -> None:
    """Write a state over trees before the first row.

    Raises Corrupt, and the errors that `restoring` turns into it.
    """
    n_shards = sum(len(tree.shards) for tree in growing)
    n_nodes = sum(len(t.shape.first) for t in growing)
    key_ptr = state.take("key_ptr", "int64", n_shards + 1)
    keys = state.take("keys", "uint64", None)
    weights = state.take("weights", "float32", None)
    bias = state.take("bias", "float32", n_nodes)
    steps = state.take("steps", "int64", n_nodes)
    passed_over = state.facts["passed_over"]
    check_that(len(passed_over) == n_shards, "passed_over of each shard")
    check_that(
        key_ptr[0] == 0 and key_ptr[-1] == len(keys) and (np.diff(key_ptr) >= 0).all(), "offsets"
    )
    shard_index = node_start = weight_start = 0
    for tree in growing:
        tree_nodes = slice(node_start, node_start + len(tree.shape.first))
        node_start = tree_nodes.stop
        tree.shards[0].bias[:] = bias[tree_nodes]
        tree.shards[0].steps[:] = steps[tree_nodes]
        for number, shard in enumerate(tree.shards):
            shard_keys = keys[key_ptr[shard_index] : key_ptr[shard_index + 1]].copy()
            nodes = (shard_keys - np.uint64(1)) // np.uint64(n_features)
            check_that(
                (shard_keys[1:] > shard_keys[:-1]).all() and (nodes < len(tree.shape.first)).all(),
                "pairs sorted by key",
            )
            check_that((tree.topology.shard[nodes] == number).all(), "pairs of a shard's nodes")
            add_pairs(tree.topology, shard, shard_keys, n_features)
            check_that(shard.used[0] == len(shard_keys), "no more pairs than there is room for")
            n_weights = int(shard.used[1])
            shard.pool[:n_weights] = weights[weight_start : weight_start + n_weights]
            shard.used[2] = passed_over[shard_index]
            shard_index = shard_index + 1
            weight_start = weight_start + n_weights
    check_that(weight_start == len(weights), "as many weights as the pairs need")


def _harvest(tree: _TrainingTree, descent: Descent, n_features: int) -> Tree:
    """Return the tree with its weights w = v / Pi, without those below `descent.prune`."""
    shape = tree.shape
    chunks: list[Chunk | None] = [None] * len(shape.first)
    for number, shard in enumerate(tree.shards):
        keys, place = used_keys(shard.keys, shard.place)
        nodes, features = np.divmod(keys - np.uint64(1), np.uint64(n_features))
        for node in np.flatnonzero(tree.topology.shard == number).tolist():
            node_pairs = slice(
                *np.searchsorted(nodes, np.array([node, node + 1], np.uint64)).tolist()
            )
            children = slice(int(shape.child_ptr[node]), int(shape.child_ptr[node + 1]))
            product = 1.0 + descent.penalty * descent.rate * float(shard.steps[node])
            positions = place[node_pairs, None] + np.arange(children.stop - children.start)
            weights = shard.pool[positions] / np.float32(product)
            is_kept = (weights != 0) & (np.abs(weights) >= descent.prune)
            feature, child = np.nonzero(is_kept)
            chunks[node] = Chunk.from_weights(
                features[node_pairs].astype(np.int64)[feature],
                child,
                weights[is_kept],
                shard.bias[children] / np.float32(product),
            )
    return Tree(shape.child_ptr, shape.node_label, chunks)
