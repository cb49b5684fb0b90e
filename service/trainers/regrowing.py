"""Trees of linear classifiers that get new labels, or go on from old weights, without training again.

A new label joins the group of sibling labels whose centre is nearest to its rows' mean, as clustering has it;
a group that grows too large is divided as the trainer divides. Its classifier is trained on the rows of the
group; the classifiers on the path to it go on from their weights, as does every one where rows are others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from model_store.build import build_ensemble, forest_order
from model_store.compiled.handles import I32, I64, Bools
from model_store.decoding import OldTree, chunk_of, trees_of
from model_store.ensemble import Chunk, Tree, TreeEnsemble, Weights
from service.base.rows import LabelRows
from service.trainers.classifiers import Again, Members, Solving, merge_chunks, train_classifiers
from service.trainers.representations import Representations, label_representations, squared_lengths
from service.trainers.shape import Shape, parents_of, shape_of
from service.trainers.source import TrainingSet
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
    divide: Callable[[Representations, I32, Tools], Shape]
    group_most: int


class Regrown(NamedTuple):
    """An ensemble that has grown on; of all trees: groups that were divided, and classifiers trained."""

    ensemble: TreeEnsemble
    divided: int
    classifiers: int


def extend_trees(
    ensemble: TreeEnsemble, weights: Weights, data: TrainingSet, how: Regrowth, tools: Tools
) -> Regrown:
    """Return the trees with a leaf for each label that rows carry and they know nothing of.

    The classifiers of new labels, of divided groups and of all that is on the paths there are trained; all
    other weights stay to the bit.

    weights  the type of the ensemble's
    data     rows old and new; labels of the ensemble, and after them new ones
    """
    weighed = weigh(data.rows, how.idf)
    vectors = label_representations(weighed.rows, data.labels)
    is_new = np.bincount(data.labels.indices, minlength=data.labels.n_labels) > 0
    is_new[: ensemble.label_leaf.shape[1]] &= ensemble.label_leaf[0] < 0
    n_divided = 0

    def place(old: OldTree, of_tree: Tools) -> _Place:
        nonlocal n_divided
        joins, divided = _join(old, np.flatnonzero(is_new).astype(np.int32), vectors), {}
        for node, (before, joining) in joins.items():
            if len(before) + len(joining) > how.group_most:
                labels = np.sort(np.concatenate([before, joining]))
                divided[node] = how.divide(vectors, labels, of_tree.seeded(node))
        n_divided += len(divided)
        return _place(old, {node: joining for node, (_, joining) in joins.items()}, divided)

    made, n_trained = _regrown(ensemble, weights, place, weighed, data.labels, how, is_new, tools)
    return Regrown(made, n_divided, n_trained)


def refit_trees(
    ensemble: TreeEnsemble, weights: Weights, data: TrainingSet, how: Regrowth, tools: Tools
) -> Regrown:
    """Return the same trees with all classifiers trained on other rows, going on from their weights.

    data  its labels are those of the ensemble; classifiers of a node without rows stay
    """

    def place(old: OldTree, _: Tools) -> _Place:
        return _Place(shape_of(old.child_ptr, old.node_label), np.arange(len(old.nodes)))

    every = np.ones(data.labels.n_labels, np.bool_)
    weighed = weigh(data.rows, how.idf)
    made, n_trained = _regrown(ensemble, weights, place, weighed, data.labels, how, every, tools)
    return Regrown(made, 0, n_trained)


def _join(old: OldTree, new: I32, vectors: Representations) -> dict[int, tuple[I32, I32]]:
    """Return, by the nodes of groups that new labels join, the labels of the group and those that join.

    Of a group's centre, the normalised sum of its labels' vectors, the one of the largest cosine; of equal
    ones the first.
    """
    leaves = np.flatnonzero(old.node_label >= 0)
    above = np.searchsorted(old.child_ptr, leaves, "right") - 1
    nodes, starts = np.unique(above, return_index=True)
    groups = np.split(old.node_label[leaves], starts[1:])
    n_labels = len(vectors.indptr) - 1
    x = sparse.csr_array((vectors.values, vectors.indices, vectors.indptr), (n_labels, vectors.n_features))
    members = old.node_label[leaves], np.append(starts, len(leaves))
    centres = sparse.csr_array((np.ones(len(leaves), np.float32), *members), (len(nodes), n_labels)) @ x
    lengths = np.sqrt(squared_lengths(centres.data, centres.indptr))
    near = (x[new] @ centres.T).toarray() / np.maximum(lengths, 1e-30)
    nearest = near.argmax(axis=1)
    return {int(nodes[g]): (groups[g], new[nearest == g]) for g in np.unique(nearest).tolist()}


class _Place(NamedTuple):
    """The shape of a tree with new labels in it; `source` int64[n]: the old tree's node, -1 for a new one."""

    shape: Shape
    source: I64


def _place(old: OldTree, joins: dict[int, I32], divided: dict[int, Shape]) -> _Place:
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


def _regrown(
    ensemble: TreeEnsemble,
    weights: Weights,
    place: Callable[[OldTree, Tools], _Place],
    weighed: Weighed,
    labels: LabelRows,
    how: Regrowth,
    wanted: Bools,
    tools: Tools,
) -> tuple[TreeEnsemble, int]:
    """Return the ensemble whose trees have other places, trained above the labels that are wanted.

    And how many classifiers were.
    """
    trees, kept, n_trained = [], [], 0
    for number, old in enumerate(olds := trees_of(ensemble)):
        of_tree = tools.of_tree(number, len(olds))
        shape, source = place(old, of_tree)
        members = how.members(labels, shape)
        has_rows = _counts(shape, np.diff(members.ptr)[: len(shape.labels)] > 0) > 0
        changed = (_counts(shape, wanted[shape.labels]) > 0) & has_rows[parents_of(shape.child_ptr)]
        were = {
            node: chunk_of(ensemble, int(old.nodes[source[node]]))
            for node in shape.inner.tolist()
            if source[node] >= 0
        }
        at = np.where(source > 0, source - old.child_ptr[parents_of(old.child_ptr)[source]], -1)
        trained = _trained(shape, at, changed, were, weighed)
        how_far = weighed.rows, shape, members, how.solving, of_tree, "classifiers", trained
        trees.append(_assembled(shape, at, changed, were, trained, train_classifiers(*how_far), weighed))
        kept.append(np.where(changed | (source < 0), -1, old.nodes[source]))
        n_trained += int(changed.sum()) - int(changed[0])
    made = build_ensemble(trees, labels.n_labels, weighed.rows.n_features, weights)
    if len(ensemble.node_scale):  # the same steps as before, of a scale that may differ in its last bit
        tree_of, local_of = forest_order(trees)
        stays = np.array([kept[t][i] for t, i in zip(tree_of.tolist(), local_of.tolist(), strict=True)])
        scale = np.where(stays >= 0, ensemble.node_scale[stays], made.node_scale).astype(np.float32)
        made = made._replace(node_scale=scale)
    return made, n_trained


def _trained(
    shape: Shape, at: I64, changed: Bools, were: dict[int, Chunk], weighed: Weighed
) -> dict[int, Again]:
    """Return which classifiers are trained; old ones go on, unless there are new ones at their node."""
    trained = {}
    for node in shape.inner.tolist():
        children = slice(shape.child_ptr[node], shape.child_ptr[node + 1])
        picked, old = np.flatnonzero(changed[children]).astype(np.int32), None
        if len(picked) and (at[children][picked] >= 0).all():
            place = _inverse(at[children][picked], len(were[node].bias))
            old = weighed.weighed_chunk(merge_chunks([(were[node], place)], len(picked)))
        if len(picked):
            trained[node] = Again(picked, old)
    return trained


def _assembled(
    shape: Shape,
    at: I64,
    changed: Bools,
    were: dict[int, Chunk],
    trained: dict[int, Again],
    solved: list[Chunk | None],
    weighed: Weighed,
) -> Tree:
    """Return the tree of the chunks that were trained, and of what stays of the old ones."""
    chunks: list[Chunk | None] = [None] * len(solved)
    for node in shape.inner.tolist():
        children = slice(shape.child_ptr[node], shape.child_ptr[node + 1])
        parts, made = [], solved[node]
        if made is not None:
            parts.append((weighed.plain_chunk(made), trained[node].children))
        if node in were:
            stays = np.where(changed[children], -1, at[children])
            parts.append((were[node], _inverse(stays, len(were[node].bias))))
        chunks[node] = merge_chunks(parts, len(at[children])) if made is not None else were[node]
    return Tree(shape.child_ptr, shape.node_label, chunks)


def _counts(shape: Shape, marked: NDArray[Any]) -> I64:
    """Return how many of the marked labels, in the order of the leaves, are under each node."""
    sums = np.concatenate([[0], np.cumsum(marked)])
    found: I64 = sums[shape.last] - sums[shape.first]
    return found


def _inverse(places: NDArray[Any], n: int) -> I32:
    """Return int32[n]: the index at which each number below n stands among `places`, -1 where it does not."""
    found = np.full(n, -1, np.int32)
    there = np.flatnonzero(places >= 0)
    found[places[there]] = there
    return found
