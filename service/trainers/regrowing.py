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

from model_store.build import build_ensemble, forest_order, put_chunks
from model_store.compiled.handles import I32, I64, Bools
from model_store.decoding import OldTree, chunk_of, trees_of
from model_store.ensemble import Chunk, Tree, TreeEnsemble, Weights
from model_store.version import Model
from service.base.rows import LabelRows, SparseRows, offsets
from service.kernels.training.cluster import nearest_groups
from service.kernels.training.problem import forget_rows, rows_of
from service.trainers.classifiers import (
    Again,
    Members,
    Solving,
    Some,
    members_of,
    merge_chunks,
    train_classifiers,
)
from service.trainers.representations import label_representations
from service.trainers.shape import Shape, parents_of, shape_of
from service.trainers.source import TrainingSet
from service.trainers.spec import rows_by_label
from service.trainers.weighing import Weighed, weigh
from service.trainers.work import Tools, derived_seed

_EMPTY = np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
"""A chunk without weights."""

_NO_LABELS = np.empty(0, np.int32)

OTHERS, OTHERS_LEAST = 1, 300
"""Of a node's rows without new labels so many for each one with them, and at least, are seen (`_on_some`)."""

ANEW = 0.05
"""Where more of the rows carry new labels, a step from old weights does not lead far enough (`_on_some`)."""

COARSE = 4
"""New classifiers are trained to so much larger an eps: a third less time, the same precision."""


class Regrowth(NamedTuple):
    """How a trainer's trees grow on.

    members      of a shape's labels among rows
    divide       labels that are too many for a group, by their vectors, ascending: the tree of them
    group_most   labels of a group, at most
    """

    solving: Solving
    idf: str
    members: Callable[[LabelRows, Shape], Members]
    divide: Callable[[SparseRows, I32, Tools], Shape]
    group_most: int

    def extend(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Return what `extend_trees` does."""
        return extend_trees(model.ensemble, model.manifest.weights, data, self, tools)

    def refit(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Return what `refit_trees` does."""
        return refit_trees(model.ensemble, model.manifest.weights, data, self, tools)


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
    is_new = np.bincount(data.labels.indices, minlength=data.labels.n_labels) > 0
    is_new[: ensemble.label_leaf.shape[1]] &= ensemble.label_leaf[0] < 0
    new = np.flatnonzero(is_new).astype(np.int32)
    vectors = _vectors(weighed, data.labels, new, tools)
    n_divided = 0

    def place(old: OldTree, of_tree: Tools) -> _Place:
        nonlocal n_divided
        joins, divided = _join(old, new, vectors, weighed, data.labels), {}
        for node, (before, joining) in joins.items():
            if len(before) + len(joining) > how.group_most:
                labels = np.sort(np.concatenate([before, joining]))
                alike = _vectors(weighed, data.labels, labels, tools)
                divided[node] = how.divide(alike, labels, of_tree.seeded(node))
        n_divided += len(divided)
        return _place(old, {node: joining for node, (_, joining) in joins.items()}, divided)

    made, n_trained = _regrown(ensemble, weights, place, weighed, data.labels, how, new, tools)
    return Regrown(made, n_divided, n_trained)


def refit_trees(
    ensemble: TreeEnsemble, weights: Weights, data: TrainingSet, how: Regrowth, tools: Tools
) -> Regrown:
    """Return the same trees with all classifiers trained on other rows, going on from their weights.

    data  its labels are those of the ensemble; classifiers of a node without rows stay
    """

    def place(old: OldTree, _: Tools) -> _Place:
        return _Place(shape_of(old.child_ptr, old.node_label), np.arange(len(old.nodes)))

    weighed = weigh(data.rows, how.idf)
    made, n_trained = _regrown(ensemble, weights, place, weighed, data.labels, how, None, tools)
    return Regrown(made, 0, n_trained)


def _vectors(weighed: Weighed, labels: LabelRows, some: I32, tools: Tools) -> SparseRows:
    """Return the vectors of some labels; those of all others are empty."""
    kept = np.isin(labels.indices, some)
    part = LabelRows(offsets(kept)[labels.indptr], labels.indices[kept], labels.n_labels)
    return label_representations(weighed.rows, part, tools)


def _join(
    old: OldTree, new: I32, vectors: SparseRows, weighed: Weighed, labels: LabelRows
) -> dict[int, tuple[I32, I32]]:
    """Return, by the nodes of groups that new labels join, the labels of the group and those that join.

    Of a group's centre, the normalised sum of its labels' vectors, the one of the largest cosine; of equal
    ones the first.
    """
    leaves = np.flatnonzero(old.node_label >= 0)
    above = np.searchsorted(old.child_ptr, leaves, "right") - 1
    nodes, starts = np.unique(above, return_index=True)
    groups = np.split(old.node_label[leaves], starts[1:])
    carried = members_of(*rows_by_label(labels), old.node_label[leaves])
    group_ptr = np.append(starts, len(leaves)).astype(np.int64)
    of_new = SparseRows(vectors.indptr[np.append(new, new[-1] + 1)], *vectors[1:])
    nearest = nearest_groups(weighed.rows, carried.ptr, carried.rows, group_ptr, of_new)
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
    labels, source = [np.full(1, -1, np.int32)], [np.zeros(1, np.int64)]
    queue: list[tuple[OldTree, int]] = [(old, 0)]
    for tree, node in queue:  # the inner nodes; which grows
        if tree is old and node in parts:
            tree, node = parts[node], 0
        children = np.arange(tree.child_ptr[node], tree.child_ptr[node + 1])
        below = tree.node_label[children]
        queue.extend((tree, child) for child in children[below < 0].tolist())
        joining = joins.get(node, _NO_LABELS) if tree is old else _NO_LABELS
        labels.append(np.concatenate([below, joining]))
        source.append(children if tree is old else np.full(len(children), -1))
        source.append(np.full(len(joining), -1))
    node_label = np.concatenate(labels)
    counts = np.zeros(len(node_label), np.int64)
    counts[node_label < 0] = list(map(len, labels[1:]))
    shape = shape_of((1 + offsets(counts)).astype(np.int32), node_label)
    return _Place(shape, np.concatenate(source))


def _regrown(
    ensemble: TreeEnsemble,
    weights: Weights,
    place: Callable[[OldTree, Tools], _Place],
    weighed: Weighed,
    labels: LabelRows,
    how: Regrowth,
    new: I32 | None,
    tools: Tools,
) -> tuple[TreeEnsemble, int]:
    """Return the ensemble whose trees have other places, trained above new labels (None: above all).

    And how many classifiers were.
    """
    trees, kept, whole, n_trained = [], [], [], 0
    for number, old in enumerate(olds := trees_of(ensemble)):
        of_tree = tools.of_tree(number, len(olds))
        shape, source = place(old, of_tree)
        members = how.members(labels, shape)
        is_new = np.isin(shape.labels, shape.labels if new is None else new)
        has_rows = shape.below(np.diff(members.ptr)[: len(shape.labels)] > 0) > 0
        changed = ((shape.below(is_new) > 0) | (source < 0)) & has_rows[parents_of(shape.child_ptr)]
        changed[0] = False
        at = np.where(source > 0, source - old.child_ptr[parents_of(old.child_ptr)[source]], -1)
        above = np.unique(parents_of(shape.child_ptr)[changed])
        were = {
            node: chunk_of(ensemble, int(old.nodes[source[node]]))
            for node in above[source[above] >= 0].tolist()
        }
        trained = _trained(shape, at, changed, were, weighed)
        solving = how.solving
        if new is not None:
            trained = _on_some(trained, shape, members, is_new, weighed.rows.n_rows, of_tree)
            solving = solving._replace(eps=solving.eps * COARSE)
        how_far = weighed.rows, shape, members, solving, of_tree, "classifiers", trained
        trees.append(_assembled(shape, at, changed, were, trained, train_classifiers(*how_far), weighed))
        kept.append(np.where(changed | (source < 0), -1, old.nodes[source]))
        is_above = np.isin(np.arange(len(source)), above)
        whole.append(np.where(is_above | (source < 0), -1, old.nodes[source]))
        n_trained += int(changed.sum())
    made = build_ensemble(trees, labels.n_labels, weighed.rows.n_features, weights)
    tree_of, local_of = forest_order(trees)
    each = list(zip(tree_of.tolist(), local_of.tolist(), strict=True))
    stays, is_whole = (np.array([of[t][i] for t, i in each]) for of in (kept, whole))
    return _as_before(made, ensemble, stays, is_whole), n_trained


def _as_before(made: TreeEnsemble, old: TreeEnsemble, stays: I64, is_whole: I64) -> TreeEnsemble:
    """Return an ensemble with the classifiers and the chunks that stay as they were in an old one.

    stays, is_whole  int64[N]: the old node whose classifier, or whose chunk, is that of a node; -1: is new
    """
    made = made._replace(node_bias=np.where(stays >= 0, old.node_bias[stays], made.node_bias))
    if len(old.node_scale):  # the same steps as before, of a scale that may differ in its last bit
        scale = np.where(stays >= 0, old.node_scale[stays], made.node_scale).astype(np.float32)
        made = made._replace(node_scale=scale)
    chunks = np.where(is_whole >= 0, old.node_chunk[is_whole], -1)[made.node_chunk >= 0]
    return put_chunks(made, old, chunks)


def _trained(
    shape: Shape, at: I64, changed: Bools, were: dict[int, Chunk], weighed: Weighed
) -> dict[int, Again]:
    """Return which classifiers are trained; old ones go on, unless there are new ones at their node."""
    trained = {}
    for node in np.unique(parents_of(shape.child_ptr)[changed]).tolist():
        children = slice(shape.child_ptr[node], shape.child_ptr[node + 1])
        picked, old = np.flatnonzero(changed[children]).astype(np.int32), None
        if (at[children][picked] >= 0).all():
            place = _inverse(at[children][picked], len(were[node].bias))
            old = weighed.weighed_chunk(merge_chunks([(were[node], place)], len(picked)))
        trained[node] = Again(picked, old)
    return trained


def _on_some(
    trained: dict[int, Again], shape: Shape, members: Members, is_new: Bools, n_rows: int, tools: Tools
) -> dict[int, Again]:
    """Return what is trained, old weights on rows with new labels and some of the others, by chance.

    Where new labels are on many rows, it is trained from nothing, on all rows.

    All others are what the old weights are the optimum of; these tell how far they may move.
    """
    fits = ~np.repeat(np.append(is_new, False)[: len(members.ptr) - 1], np.diff(members.ptr))
    if len(np.unique(members.rows[~fits])) > ANEW * n_rows:
        return {node: again._replace(old=None) for node, again in trained.items()}
    before, found = Members(offsets(fits)[members.ptr], members.rows[fits]), {}
    place = np.zeros(n_rows, np.int32)
    for node, again in trained.items():
        if again.old is None:
            found[node] = again
            continue
        first, end = int(shape.first[node]), members.end(shape, node)
        here = slice(members.ptr[first], members.ptr[end])
        fresh = np.unique(members.rows[here][~fits[here]])
        known = rows_of(before.ptr, before.rows, first, end, place)
        forget_rows(known, place)
        others = np.setdiff1d(known, fresh, assume_unique=True)
        n_others = min(len(others), max(OTHERS_LEAST, OTHERS * len(fresh)))
        random = np.random.Generator(np.random.PCG64(derived_seed(tools.seed, node)))
        rows = np.sort(np.concatenate([fresh, random.choice(others, n_others, replace=False)]))
        weight = np.where(np.isin(rows, fresh), 1.0, len(others) / max(1, n_others)).astype(np.float32)
        some = Some(rows, np.isin(rows, known).astype(np.uint8), weight, before)
        found[node] = again._replace(some=some)
    return found


def _assembled(
    shape: Shape,
    at: I64,
    changed: Bools,
    were: dict[int, Chunk],
    trained: dict[int, Again],
    solved: list[Chunk | None],
    weighed: Weighed,
) -> Tree:
    """Return the tree of the chunks that were trained, and of what stays of the old ones beside them."""
    chunks: list[Chunk | None] = [None] * len(solved)
    for node in shape.inner.tolist():
        children = slice(shape.child_ptr[node], shape.child_ptr[node + 1])
        made = solved[node]
        if made is None:  # all of it stays
            chunks[node] = Chunk(*_EMPTY, np.zeros(len(at[children]), np.float32))
            continue
        parts = [(weighed.plain_chunk(made), trained[node].children)]
        if node in were:
            stays = np.where(changed[children], -1, at[children])
            parts.append((were[node], _inverse(stays, len(were[node].bias))))
            if (some := trained[node].some) is not None:
                goes_on = np.where(changed[children], at[children], -1)
                unseen = _without(were[node], weighed.rows.take(some.rows))
                parts.insert(0, (unseen, _inverse(goes_on, len(were[node].bias))))
        chunks[node] = merge_chunks(parts, len(at[children]))
    return Tree(shape.child_ptr, shape.node_label, chunks)


def _without(chunk: Chunk, rows: SparseRows) -> Chunk:
    """Return the weights of a chunk that are of features which no row has."""
    is_free = np.ones(rows.n_features, np.bool_)
    is_free[rows.indices] = False
    feature = chunk.feature
    kept = is_free[feature]
    return Chunk.of(feature[kept], chunk.child[kept], chunk.weight[kept], chunk.bias)


def _inverse(places: NDArray[Any], n: int) -> I32:
    """Return int32[n]: the index at which each number below n stands among `places`, -1 where it does not."""
    found = np.full(n, -1, np.int32)
    there = np.flatnonzero(places >= 0)
    found[places[there]] = there
    return found
