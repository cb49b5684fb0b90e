"""Changes to trained trees of linear classifiers: new labels, and further training.

A new label joins a group of sibling labels: the one that the tree predicts for the mean of the
label's rows. A group that becomes too large is divided in the way of the trainer. The classifier of
the new label is trained on rows of the group; classifiers on the path to it are trained further
from their weights. With other rows, all classifiers are trained further.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from xylem.base import LabelRows, SparseRows, inverse, offsets
from xylem.trainers.classifiers import (
    ChildTraining,
    Loss,
    Members,
    RowSample,
    SolverOptions,
    merge_chunks,
    train_classifiers,
)
from xylem.trainers.kernels.problem import add_margins, forget_rows, rows_of
from xylem.trainers.representations import label_representations, label_sums
from xylem.trainers.shape import Shape, shape_of
from xylem.trainers.source import Tools, TrainingSet, derived_random
from xylem.trainers.tree_criteria import parents_of
from xylem.trainers.weighing import Weighed, weigh
from xylem_store import (
    I32,
    I64,
    Bools,
    Chunk,
    Model,
    OldTree,
    Tree,
    TreeEnsemble,
    build_ensemble,
    chunk_of,
    forest_order,
    put_chunks,
    trees_of,
)

_NO_LABELS = np.empty(0, np.int32)

_ChunkAt = Callable[[int], Chunk]  # reads the chunk of a node

# Returns (the shape of a tree with the new labels; int64[n], the old tree's node for each node of
# the shape, -1 for a new node).
_Place = Callable[[OldTree, _ChunkAt, Tools], tuple[Shape, I64]]

# Sizes of the sample of a node's rows without new labels, for old classifiers (`_sample_rows`):
# OTHER_ROWS_PER_NEW for each row with a new label, and at least OTHER_ROWS_MIN.
OTHER_ROWS_PER_NEW = 1
OTHER_ROWS_MIN = 300

# Sizes of the same sample if only new classifiers are trained (`_sample_rows`): one in
# NEW_ONLY_DIVISOR of the rows, and at least NEW_ONLY_MIN.
NEW_ONLY_DIVISOR = 8
NEW_ONLY_MIN = 1500

# If more than this share of the rows carries new labels, classifiers are trained from 0
# (`_sample_rows`): a Newton step from the old weights does not lead far enough.
NEW_LABEL_SHARE_MAX = 0.05

# eps is multiplied by this for new classifiers: a third less time, the same precision
COARSE = 4


class Regrown(NamedTuple):
    """The result of `Regrows`.

    ensemble     the new ensemble
    divided      number of groups that were divided, in all trees
    classifiers  number of classifiers that were trained, in all trees
    """

    ensemble: TreeEnsemble
    divided: int
    classifiers: int


class Regrowth(NamedTuple):
    """Adds new labels to the trees of a trainer, and trains them further (`spec.Regrows`).

    members     returns the members of a shape's labels
    divide      returns the shape of a tree over the labels of a group that has too many, given
                their vectors and the labels, ascending
    group_most  most labels of a group
    """

    solving: SolverOptions
    idf: str
    members: Callable[[LabelRows, Shape], Members]
    divide: Callable[[SparseRows, I32, Tools], Shape]
    group_most: int

    def extend(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Return the trees with a leaf for each label that rows carry and that has none.

        The classifiers of new labels, of divided groups, and of the nodes on the paths to them are
        trained; all other weights keep their bits.

        data  old and new rows; labels of the version, and after them new ones
        """
        weighed = weigh(data.rows, self.idf)
        counts = np.bincount(data.labels.indices, minlength=data.labels.n_labels)
        is_new = counts > 0
        is_new[: model.ensemble.label_leaf.shape[1]] &= model.ensemble.label_leaf[0] < 0
        new = np.flatnonzero(is_new).astype(np.int32)
        sums = label_sums(data.rows, _restrict_labels(data.labels, new))[new]
        n_divided = 0

        def place(old: OldTree, chunk_at: _ChunkAt, tree_tools: Tools) -> tuple[Shape, I64]:
            nonlocal n_divided
            joins = _find_groups(old, chunk_at, new, sums, counts[new])
            divided = {}
            for node, (group, joining) in joins.items():
                if len(group) + len(joining) > self.group_most:
                    labels = np.sort(np.concatenate([group, joining]))
                    divided[node] = self.divide(
                        label_representations(
                            weighed.rows, _restrict_labels(data.labels, labels), tools
                        ),
                        labels,
                        tree_tools.seeded(node),
                    )
            n_divided += len(divided)
            return _add_leaves(
                old, {node: joining for node, (_, joining) in joins.items()}, divided
            )

        return self._regrow(model, place, weighed, data.labels, new, tools)._replace(
            divided=n_divided
        )

    def refit(self, model: Model, data: TrainingSet, tools: Tools) -> Regrown:
        """Return the same trees, with all classifiers trained further on other rows.

        data  its labels are those of the version; classifiers of a node without rows do not change
        """

        def place(old: OldTree, _: _ChunkAt, __: Tools) -> tuple[Shape, I64]:
            return shape_of(old.child_ptr, old.node_label), np.arange(len(old.nodes))

        return self._regrow(model, place, weigh(data.rows, self.idf), data.labels, None, tools)

    def _regrow(
        self,
        model: Model,
        place: _Place,
        weighed: Weighed,
        labels: LabelRows,
        new: I32 | None,
        tools: Tools,
    ) -> Regrown:
        """Return the ensemble of trees with new shapes, with the changed classifiers trained.

        place  returns the new shape of each tree
        new    int32[..]  the new labels, above which classifiers are trained; None: all classifiers
               are trained
        """
        trees = []
        classifier_sources = []
        chunk_sources = []
        n_trained = 0
        for number, old in enumerate(olds := trees_of(model.ensemble)):
            tree_tools = tools.of_tree(number, len(olds))
            chunk_at = _chunks_of(model.ensemble, old)
            shape, old_node = place(old, chunk_at, tree_tools)
            members = self.members(labels, shape)
            is_new = np.isin(shape.labels, shape.labels if new is None else new)
            has_rows = shape.below(np.diff(members.ptr)[: len(shape.labels)] > 0) > 0
            changed = ((shape.below(is_new) > 0) | (old_node < 0)) & has_rows[
                parents_of(shape.child_ptr)
            ]
            changed[0] = False
            old_child = np.where(
                old_node > 0, old_node - old.child_ptr[parents_of(old.child_ptr)[old_node]], -1
            )
            above = np.unique(parents_of(shape.child_ptr)[changed])
            old_chunks = {
                node: chunk_at(int(old_node[node])) for node in above[old_node[above] >= 0].tolist()
            }
            trained = _children_to_train(shape, old_child, changed, old_chunks, weighed)
            solving = self.solving
            if new is not None:
                trained = _sample_rows(
                    trained,
                    shape,
                    members,
                    is_new,
                    n_rows=weighed.rows.n_rows,
                    loss=solving.loss,
                    seed=tree_tools.seed,
                )
                solving = solving._replace(eps=solving.eps * COARSE)
            solved = train_classifiers(weighed.rows, shape, members, solving, tree_tools, trained)
            trees.append(
                _assemble_tree(shape, old_child, changed, old_chunks, trained, solved, weighed)
            )
            classifier_sources.append(np.where(changed | (old_node < 0), -1, old.nodes[old_node]))
            chunk_sources.append(
                np.where(
                    np.isin(np.arange(len(old_node)), above) | (old_node < 0),
                    -1,
                    old.nodes[old_node],
                )
            )
            n_trained += int(changed.sum())
        ensemble = build_ensemble(
            trees, labels.n_labels, weighed.rows.n_features, model.manifest.weights
        )
        tree_of, local_of = forest_order(trees)
        node_index = offsets(np.array(list(map(len, classifier_sources))))[tree_of] + local_of
        # for each node, the old node with the same classifier, and with the same chunk; -1: none
        classifier_node, chunk_node = (
            np.concatenate(sources)[node_index] for sources in (classifier_sources, chunk_sources)
        )
        old_ensemble = model.ensemble
        ensemble = ensemble._replace(
            node_bias=np.where(
                classifier_node >= 0, old_ensemble.node_bias[classifier_node], ensemble.node_bias
            )
        )
        # the old scales of old classifiers: those that were just computed for the same weights may
        # differ in the last bit
        if len(old_ensemble.node_scale):
            ensemble = ensemble._replace(
                node_scale=np.where(
                    classifier_node >= 0,
                    old_ensemble.node_scale[classifier_node],
                    ensemble.node_scale,
                ).astype(np.float32)
            )
        chunks = np.where(chunk_node >= 0, old_ensemble.node_chunk[chunk_node], -1)[
            ensemble.node_chunk >= 0
        ]
        return Regrown(put_chunks(ensemble, old_ensemble, chunks), 0, n_trained)


def _restrict_labels(labels: LabelRows, subset: I32) -> LabelRows:

    return labels.select(np.isin(labels.indices, subset))


def _find_groups(
    old: OldTree, chunk_at: _ChunkAt, new: I32, sums: Any, counts: I64
) -> dict[int, tuple[I32, I32]]:
    """Find the group that each new label joins.

    Returns for each node above such a group (the labels of the group, the new labels that join it).
    A label starts at the root and goes to the child with the largest margin for the mean of its
    rows, until that child is a leaf.

    sums    csr_array[len(new), D]  sum of the rows of each new label
    counts  int64[len(new)]         number of these rows
    """
    joins = {}
    queue = [(0, np.arange(len(new)))]
    for node, positions in queue:
        children = np.arange(old.child_ptr[node], old.child_ptr[node + 1])
        labels = old.node_label[children]
        best = np.zeros(len(positions), np.int64)
        if (labels < 0).any():
            chunk = chunk_at(node)
            margins = (counts[positions, None] * chunk.bias).astype(np.float32)
            by_feature = sums[positions].tocsc()
            add_margins(chunk, by_feature.indptr, by_feature.indices, by_feature.data, margins)
            best = margins.argmax(axis=1)
        is_label = labels[best] >= 0
        if is_label.any():
            joins[node] = labels[labels >= 0], new[positions[is_label]]
        queue += [
            (int(children[c]), positions[best == c]) for c in np.unique(best[~is_label]).tolist()
        ]
    return joins


def _chunks_of(ensemble: TreeEnsemble, old: OldTree) -> _ChunkAt:
    """Return a function that reads the chunk of a node of a tree, and caches it."""
    return cache(lambda node: chunk_of(ensemble, int(old.nodes[node])))


def _add_leaves(
    old: OldTree, joins: dict[int, I32], divided: dict[int, Shape]
) -> tuple[Shape, I64]:
    """Return the shape of a tree with new labels, and the old node of each node, -1 for new ones.

    joins    by node: the new labels, which follow the other children of the node
    divided  by node: the tree that takes the place of its children
    """
    parts = {
        node: OldTree(part.child_ptr, part.node_label, np.empty(0, np.int64))
        for node, part in divided.items()
    }
    labels = [np.full(1, -1, np.int32)]
    old_node = [np.zeros(1, np.int64)]
    queue: list[tuple[OldTree, int]] = [(old, 0)]
    for tree, node in queue:  # all inner nodes: the loop appends to the queue
        if tree is old and node in parts:
            tree = parts[node]
            node = 0
        children = np.arange(tree.child_ptr[node], tree.child_ptr[node + 1])
        below = tree.node_label[children]
        queue.extend((tree, child) for child in children[below < 0].tolist())
        joining = joins.get(node, _NO_LABELS) if tree is old else _NO_LABELS
        labels.append(np.concatenate([below, joining]))
        old_node.append(children if tree is old else np.full(len(children), -1))
        old_node.append(np.full(len(joining), -1))
    node_label = np.concatenate(labels)
    counts = np.zeros(len(node_label), np.int64)
    counts[node_label < 0] = list(map(len, labels[1:]))
    return shape_of((1 + offsets(counts)).astype(np.int32), node_label), np.concatenate(old_node)


def _children_to_train(
    shape: Shape, old_child: I64, changed: Bools, old_chunks: dict[int, Chunk], weighed: Weighed
) -> dict[int, ChildTraining]:
    """Return the classifiers to train, by node.

    They start from their old weights, or from 0 if a classifier of the node is new.

    old_child   int64[n]  position of each node among the children of its old node; -1: it is new
    changed     bool[n]   whether the classifier of the node is trained
    old_chunks  by node: its old chunk
    """
    trained = {}
    for node in np.unique(parents_of(shape.child_ptr)[changed]).tolist():
        children = slice(shape.child_ptr[node], shape.child_ptr[node + 1])
        positions = np.flatnonzero(changed[children]).astype(np.int32)
        trained[node] = ChildTraining(positions)
        if (old_child[children][positions] >= 0).all():
            old = weighed.weighed_chunk(old_chunks[node])
            place = inverse(old_child[children][positions], len(old.bias))
            trained[node] = ChildTraining(positions, old, place)
    return trained


def _sample_rows(
    trained: dict[int, ChildTraining],
    shape: Shape,
    members: Members,
    is_new: Bools,
    n_rows: int,
    loss: Loss,
    seed: int,
) -> dict[int, ChildTraining]:
    """Return the same trainings, on a sample of the rows of each node.

    The sample has all rows with new labels, and some of the other rows, drawn at random. These are
    enough for old classifiers: their weights are the optimum for the other rows, which only limit
    how far the weights may move. All rows are used for new classifiers with the logistic loss, and
    for those of old labels in divided groups. If many rows carry new labels (more
    than NEW_LABEL_SHARE_MAX of them), all classifiers are trained on all rows from 0.
    """
    is_old_entry = ~np.repeat(
        np.append(is_new, False)[: len(members.ptr) - 1], np.diff(members.ptr)
    )
    if len(np.unique(members.rows[~is_old_entry])) > NEW_LABEL_SHARE_MAX * n_rows:
        return {node: training._replace(old=None) for node, training in trained.items()}
    old_members, new_members = (
        Members(offsets(part)[members.ptr], members.rows[part])
        for part in (is_old_entry, ~is_old_entry)
    )
    sampled = dict(trained)
    has_old = shape.below(~is_new) > 0
    place = np.zeros(n_rows, np.int32)
    is_new_row = np.zeros(n_rows, np.bool_)
    for node, training in trained.items():
        is_new_only = training.old is None
        if is_new_only and (
            loss == "logistic" or has_old[shape.child_ptr[node] + training.children].any()
        ):
            continue
        first = int(shape.first[node])
        end = members.end(shape, node)
        new_rows = np.unique(new_members.rows[new_members.ptr[first] : new_members.ptr[end]])
        old_rows = rows_of(old_members.ptr, old_members.rows, first, end, place)
        is_new_row[new_rows] = True
        other_rows = old_rows[~is_new_row[old_rows]]
        least = (
            max(NEW_ONLY_MIN, len(other_rows) // NEW_ONLY_DIVISOR)
            if is_new_only
            else OTHER_ROWS_MIN
        )
        n_others = min(len(other_rows), max(least, OTHER_ROWS_PER_NEW * len(new_rows)))
        drawn_rows = derived_random(seed, node).choice(other_rows, n_others, replace=False)
        rows = np.sort(np.concatenate([new_rows, drawn_rows]))
        weight = np.where(is_new_row[rows], 1.0, len(other_rows) / max(1, n_others)).astype(
            np.float32
        )
        sampled[node] = training._replace(
            sample=RowSample(rows, (place[rows] > 0).astype(np.uint8), weight, old_members)
        )
        is_new_row[new_rows] = False
        forget_rows(old_rows, place)
    return sampled


def _assemble_tree(
    shape: Shape,
    old_child: I64,
    changed: Bools,
    old_chunks: dict[int, Chunk],
    trained: dict[int, ChildTraining],
    solved: list[Chunk | None],
    weighed: Weighed,
) -> Tree:
    """Return the tree, whose chunks have the trained classifiers and the old ones beside them.

    old_child, changed, old_chunks  as in `_children_to_train`
    solved  chunk of the trained classifiers of each node; None if no classifier was trained
    """
    chunks: list[Chunk | None] = [None] * len(solved)
    for node in shape.inner.tolist():
        children = slice(shape.child_ptr[node], shape.child_ptr[node + 1])
        new_chunk = solved[node]  # None for a node that does not change
        parts = list[tuple[Chunk, I32]]()
        if new_chunk is not None:
            parts.append((weighed.plain_chunk(new_chunk), trained[node].children))
        if node in old_chunks:
            old = old_chunks[node]
            training = trained[node]
            places = inverse(np.where(changed[children], -1, old_child[children]), len(old.bias))
            # old weights of features that no row of the sample has were not in the training
            if training.old is not None and training.sample is not None:
                is_seen = np.zeros(weighed.rows.n_features, np.bool_)
                is_seen[weighed.rows.take(training.sample.rows).indices] = True
                is_retained = ~(is_seen[old.feature] & (places < 0)[old.child])
                retained = Chunk.from_weights(
                    old.feature[is_retained],
                    old.child[is_retained],
                    old.weight[is_retained],
                    old.bias,
                )
                parts.append((retained, inverse(old_child[children], len(old.bias))))
            elif (places >= 0).any():
                parts.append((old, places))
        chunks[node] = merge_chunks(parts, len(old_child[children]))
    return Tree(shape.child_ptr, shape.node_label, chunks)
