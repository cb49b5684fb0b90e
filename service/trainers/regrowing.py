"""Trees of linear classifiers that get new labels, or go on from old weights, without training again.

A new label joins the group of sibling labels whose centre is nearest to its rows' mean, as clustering has it;
a group that grows too large is divided as the trainer divides. Its classifier is trained on the rows of the
group; the classifiers on the path to it go on from their weights, as does every one where rows are others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.ensemble import Chunk, Tree, TreeEnsemble, Weights
from model_store.replacing import NewTree, OldTree, chunk_of, replace_trees, trees_of
from service.base.rows import LabelRows, SparseRows
from service.kernels.training.cluster import near_group
from service.trainers.classifiers import Again, Members, Solving, merge_chunks, train_classifiers
from service.trainers.representations import Representations, label_representations
from service.trainers.shape import Shape, shape_of
from service.trainers.source import TrainingSet
from service.trainers.spec import rows_by_label
from service.trainers.weighing import Weighed, weigh
from service.trainers.work import Tools


class Regrowth(NamedTuple):
    """How a trainer's trees grow on.

    members      of a shape's labels among rows
    divide       labels that are too many for a group, by their vectors, ascending: the tree of them
    group_most   labels of a group, at most
    """

    solving: Solving
    idf: str
    members: Callable[[LabelRows, Shape], Members]
    divide: Callable[[Representations, NDArray[np.int32], Tools], Shape]
    group_most: int


class Regrown(NamedTuple):
    """An ensemble that has grown on; of all trees: groups that were divided, and classifiers trained."""

    ensemble: TreeEnsemble
    divided: int
    classifiers: int


def extend_trees(
    ensemble: TreeEnsemble, weights: Weights, data: TrainingSet, how: Regrowth, tools: Tools
) -> Regrown:
    """Return the trees with a leaf for each label of the rows that they know nothing of.

    The classifiers of new labels, of divided groups and of all that is on the paths there are trained; all
    other weights stay to the bit.

    weights  the type of the ensemble's
    data     rows old and new; labels of the ensemble, and after them new ones. One without rows gets no leaf
    """
    weighed = weigh(data.rows, how.idf)
    data = data._replace(rows=weighed.rows)
    is_new, n_divided = new_labels(ensemble, data.labels), 0
    new = np.flatnonzero(is_new).astype(np.int32)
    by_label = rows_by_label(data.labels)
    vectors = _vectors_of(new, data)
    places = []
    for number, old in enumerate(trees := trees_of(ensemble)):
        of_tree = tools.of_tree(number, len(trees))
        joins = _join(old, new, vectors, data.rows, by_label, of_tree)
        divided = _divide(old, joins, data, how, of_tree)
        places.append((old, _place(old, joins, divided), of_tree))
        n_divided += len(divided)
    found = [_retrained(ensemble, *each, weighed, data.labels, how, is_new) for each in places]
    made = replace_trees(
        ensemble, [tree for tree, _ in found], data.labels.n_labels, data.rows.n_features, weights
    )
    return Regrown(made, n_divided, sum(n for _, n in found))


def refit_trees(
    ensemble: TreeEnsemble, weights: Weights, data: TrainingSet, how: Regrowth, tools: Tools
) -> Regrown:
    """Return the same trees with all classifiers trained on other rows, going on from their weights.

    data  its labels are those of the ensemble; one without rows keeps its leaf, which learns to say no
    """
    weighed = weigh(data.rows, how.idf)
    trees = trees_of(ensemble)
    found = []
    for number, old in enumerate(trees):
        place = _Place(shape_of(old.child_ptr, old.node_label), np.arange(len(old.nodes)))
        every = np.ones(data.labels.n_labels, np.bool_)
        of_tree = tools.of_tree(number, len(trees))
        found.append(_retrained(ensemble, old, place, of_tree, weighed, data.labels, how, every))
    made = replace_trees(
        ensemble, [tree for tree, _ in found], data.labels.n_labels, data.rows.n_features, weights
    )
    return Regrown(made, 0, sum(n for _, n in found))


def new_labels(ensemble: TreeEnsemble, labels: LabelRows) -> NDArray[np.bool_]:
    """Return bool[n_labels]: which labels rows carry that the trees of an ensemble have no leaf for."""
    found = np.bincount(labels.indices, minlength=labels.n_labels) > 0
    leaves = ensemble.label_leaf[0]
    found[: len(leaves)] &= leaves < 0
    return found


def _vectors_of(new: NDArray[np.int32], data: TrainingSet) -> SparseRows:
    """Return the normalised sums of the rows of new labels, a row a label."""
    carried = np.isin(data.labels.indices, new)
    rows = np.unique(np.repeat(np.arange(data.n_rows), np.diff(data.labels.indptr))[carried])
    part = data.take(rows)
    found = label_representations(part.rows, part.labels)
    return SparseRows(*found).take(new)


@dataclass(frozen=True)
class _Near:
    """Finds how near vectors are to the centre of a group of labels."""

    result: ClassVar[Any] = NDArray[np.float32]

    rows: SparseRows
    ptr: NDArray[np.int64]
    of_label: NDArray[np.int32]
    vectors: SparseRows

    def workspace(self) -> NDArray[np.float32]:
        """Return what calls work in."""
        return np.zeros((self.rows.n_features, 2), np.float32)

    def run(
        self, item: tuple[int, NDArray[np.int32]], sums: NDArray[np.float32], stop: NDArray[np.uint8]
    ) -> NDArray[np.float32]:
        """Return the result of an item, the number of a group and its labels."""
        near = np.empty(self.vectors.n_rows, np.float32)
        near_group(self.rows, self.ptr, self.of_label, item[1], self.vectors, sums, near)
        return near


def _groups(old: OldTree) -> list[tuple[int, NDArray[np.int32]]]:
    """Return the nodes that have labels as children, each with these labels."""
    leaves = np.flatnonzero(old.node_label >= 0)
    above = np.searchsorted(old.child_ptr, leaves, "right") - 1
    nodes, starts = np.unique(above, return_index=True)
    return list(zip(nodes.tolist(), np.split(old.node_label[leaves], starts[1:]), strict=True))


def _join(
    old: OldTree,
    new: NDArray[np.int32],
    vectors: SparseRows,
    rows: SparseRows,
    by_label: tuple[NDArray[np.int64], NDArray[np.int32]],
    tools: Tools,
) -> dict[int, NDArray[np.int32]]:
    """Return the new labels that join a group, by its node: the nearest; of equally near ones the first."""
    groups = _groups(old)
    best, nearest = np.full(len(new), -np.inf, np.float32), np.zeros(len(new), np.int64)
    found: dict[int, NDArray[np.float32]] = {}
    gone = 0

    def done(item: tuple[int, NDArray[np.int32]], near: NDArray[np.float32]) -> None:
        nonlocal gone
        found[item[0]] = near
        gone += 1
        tools.progress("groups", gone, len(groups))

    tools.crew.steps(_Near(rows, *by_label, vectors), groups, done)
    for node, _ in groups:
        nearer = found[node] > best
        best[nearer], nearest[nearer] = found[node][nearer], node
    return {int(node): new[nearest == node] for node in np.unique(nearest)}


def _divide(
    old: OldTree, joins: dict[int, NDArray[np.int32]], data: TrainingSet, how: Regrowth, tools: Tools
) -> dict[int, Shape]:
    """Return the trees that groups become which are too large with the new labels, by their nodes."""
    before = dict(_groups(old))
    large = {
        node: np.sort(np.concatenate([before[node], labels]))
        for node, labels in joins.items()
        if len(before[node]) + len(labels) > how.group_most
    }
    if not large:
        return {}
    vectors = label_representations(data.rows, data.labels)
    return {node: how.divide(vectors, labels, tools.seeded(node)) for node, labels in large.items()}


class _Place(NamedTuple):
    """The shape of a tree with new labels in it; `source` int64[n]: the old tree's node, -1 for a new one."""

    shape: Shape
    source: NDArray[np.int64]


def _place(old: OldTree, joins: dict[int, NDArray[np.int32]], divided: dict[int, Shape]) -> _Place:
    """Return the tree with new labels after the others of their groups, which may be divided."""
    parts = {
        node: OldTree(part.child_ptr, part.node_label, np.empty(0, np.int64))
        for node, part in divided.items()
    }
    child_ptr, labels, source = [1], [], []
    queue: list[tuple[OldTree | None, int, int]] = [(old, 0, -1)]
    for tree, node, label in queue:  # which grows
        labels.append(label)
        source.append(node if tree is old else -1)
        if tree is old and node in parts:
            tree, node = parts[node], 0
        if tree is not None:
            children = range(tree.child_ptr[node], tree.child_ptr[node + 1])
            queue.extend((tree, child, int(tree.node_label[child])) for child in children)
        if tree is old:
            queue.extend((None, 0, int(label)) for label in joins.get(node, ()))
        child_ptr.append(len(queue))
    shape = shape_of(np.array(child_ptr, np.int32), np.array(labels, np.int32))
    return _Place(shape, np.array(source))


def _retrained(
    ensemble: TreeEnsemble,
    old: OldTree,
    place: _Place,
    tools: Tools,
    weighed: Weighed,
    labels: LabelRows,
    how: Regrowth,
    wanted: NDArray[np.bool_],
) -> tuple[NewTree, int]:
    """Return a tree with the classifiers trained that are above the labels that are wanted, and how many.

    Old ones go on from their weights, but where a node has new children besides: it is trained from nothing.
    """
    shape, source = place
    members = how.members(labels, shape)
    is_above = _counts(shape, wanted[shape.labels]) > 0
    has_rows = _counts(shape, np.diff(members.ptr)[: len(shape.labels)] > 0) > 0
    chunk, kept = np.full(len(source), -1, np.int32), np.full(len(source), -1, np.int64)
    chunks: list[Chunk | None] = [None] * len(source)
    trained: dict[int, Again] = {}
    stays: dict[int, tuple[Chunk, NDArray[np.int32]]] = {}
    for node in shape.inner.tolist():
        children = np.arange(shape.child_ptr[node], shape.child_ptr[node + 1])
        of_child, changed = source[children], is_above[children]
        if not changed.any() or not has_rows[node]:
            chunk[node] = ensemble.node_chunk[old.nodes[source[node]]]
            kept[children] = old.nodes[of_child]
            continue
        were = None if (of_child < 0).all() else chunk_of(ensemble, int(old.nodes[source[node]]))
        picked = np.flatnonzero(changed).astype(np.int32)
        if were is not None:
            at = np.where(of_child >= 0, of_child - old.child_ptr[source[node]], -1)
            stays[node] = were, _inverse(np.where(changed, -1, at), len(were.bias))
            kept[children[~changed]] = old.nodes[of_child[~changed]]
            go_on = (of_child[picked] >= 0).all()
            were = (
                merge_chunks([(were, _inverse(at[picked], len(were.bias)))], len(picked)) if go_on else None
            )
        trained[node] = Again(picked, were and _weighed_chunk(were, weighed))
    solved = train_classifiers(weighed.rows, shape, members, how.solving, tools, "classifiers", trained)
    for node, again in trained.items():
        n_children = int(shape.child_ptr[node + 1] - shape.child_ptr[node])
        made = solved[node]
        assert made is not None
        parts = [(weighed.plain_chunk(made), again.children), *([stays[node]] if node in stays else [])]
        chunks[node] = merge_chunks(parts, n_children)
    n_trained = sum(len(again.children) for again in trained.values())
    return NewTree(Tree(shape.child_ptr, shape.node_label, chunks), chunk, kept), n_trained


def _counts(shape: Shape, marked: NDArray[Any]) -> NDArray[np.int64]:
    """Return how many of the marked labels, in the order of the leaves, are under each node."""
    sums = np.concatenate([[0], np.cumsum(marked)])
    found: NDArray[np.int64] = sums[shape.last] - sums[shape.first]
    return found


def _inverse(places: NDArray[Any], n: int) -> NDArray[np.int32]:
    """Return int32[n]: the index at which each number below n stands among `places`, -1 where it does not."""
    found = np.full(n, -1, np.int32)
    there = np.flatnonzero(places >= 0)
    found[places[there]] = there
    return found


def _weighed_chunk(chunk: Chunk, weighed: Weighed) -> Chunk:
    """Return the weights that give weighed rows what a chunk gives the rows as they were."""
    if weighed.scale is None:
        return chunk
    scale = np.repeat(weighed.scale[chunk.features], np.diff(chunk.row_ptr))
    return chunk._replace(weight=(chunk.weight / scale).astype(np.float32))
