"""The predictor of decision trees: it predicts labels and scores of sparse rows."""

import numpy as np

from xylem.base import SparseRows
from xylem.engine.buffers import Buffers, Need
from xylem.engine.explain import (
    ReachedLeaf,
    RoutedExplanation,
    RoutedStep,
    empty_shares,
    feature_shares,
)
from xylem.engine.kernels.search.explain import depth_of, explain_leaf
from xylem.engine.kernels.search.routing import route_rows
from xylem.engine.kernels.search.workspace import RoutingWorkspace, make_routing, routing_rows
from xylem.engine.options import PredictOptions
from xylem.engine.searcher import LabelSearcher, SearchPlan
from xylem_store import I32, I64, NO_RERANK, U8, Model, assemble_rerank, has_rerank, levels_of


class ForestPredictor(LabelSearcher):
    """Predicts the labels of rows with one opened version of decision trees.

    Several threads may call it at once. The answers are always exact. Only labels in a leaf that
    the row reaches are answered, whatever the threshold.
    """

    traversal = staticmethod(route_rows)

    def __init__(self, model: Model) -> None:
        is_reranked = has_rerank(model.arrays)
        rerank = assemble_rerank(model.manifest, model.arrays) if is_reranked else NO_RERANK
        shape = (
            model.ensemble,
            model.manifest.n_labels,
            model.manifest.n_features if is_reranked else 0,
        )

        def make_buffers(need: Need) -> RoutingWorkspace:
            return make_routing(*shape, block_rows=need.block_rows, top_r=need.top_r)

        super().__init__(model, make_buffers, rerank)
        child_ptr = model.ensemble.child_ptr
        self._n_levels = len(list(levels_of(child_ptr, int(child_ptr[0])))) - 1

    def explain(self, rows: SparseRows, row: int, label: int) -> RoutedExplanation:
        """Return the explanation of a label's score for one row of `rows`.

        It has the leaves that the row reaches and that have the label. Cost: that of predicting the
        row; for each node on the paths to these leaves its chunk, and a look-up of each feature's
        weight.
        """
        leaves = []
        with self._row(rows.cut(row, row + 1), 0) as buffers:
            nodes, trees = _reach_leaves(buffers)
            weights = 1 / np.bincount(trees)[trees] / self._ensemble.child_ptr[0]
            for leaf, tree, weight in zip(
                nodes.tolist(), trees.tolist(), weights.tolist(), strict=True
            ):
                value = self._value_at(leaf, label)
                if value > 0:
                    path = self._path_to(leaf, buffers, rows.n_features - rows.tail)
                    leaves.append(ReachedLeaf(tree, leaf, value, np.float32(weight), path))
        return RoutedExplanation(leaves)

    def leaves_reached(self, rows: SparseRows, chosen: I64) -> tuple[I64, I32]:
        """Return the leaves that the chosen rows reach, without empty leaves.

        The result is (ptr int64[n + 1], leaves int32[..]): the i-th of `chosen` reaches
        leaves[ptr[i] : ptr[i + 1]], level by level of all trees.
        """
        leaves_of_rows = [np.empty(0, np.int32)]
        for row in chosen.tolist():
            with self._row(rows.cut(row, row + 1), 0) as buffers:
                leaves_of_rows.append(_reach_leaves(buffers)[0].copy())
        ptr = np.cumsum([len(leaves) for leaves in leaves_of_rows], dtype=np.int64)
        return ptr, np.concatenate(leaves_of_rows)

    @property
    def nodes_explained(self) -> int:
        """A bound on the nodes of a label's explanation, if a row reaches one leaf in each tree."""
        return int(self._ensemble.child_ptr[0]) * self._n_levels

    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children, of all levels and trees, that routing scores for a row.

        There is no beam. The bound holds for *argmax*; with *multiway* a row that enters many
        children costs more.
        """
        child_ptr = self._ensemble.child_ptr
        return int(child_ptr[0]) * self._n_levels * int(np.diff(child_ptr).max())

    def warm_up(self) -> None:
        no_features = np.empty(0, np.int32), np.empty(0, np.float32)
        with self._row(
            SparseRows(np.zeros(2, np.int64), *no_features, self.n_features), 0
        ) as buffers:
            self._path_to(len(self._ensemble.parent) - 1, buffers, self.n_features)
        super().warm_up()

    def _value_at(self, leaf: int, label: int) -> np.float32:
        """Return a label's value in a leaf, 0 if the leaf does not have the label."""
        first, last = self._ensemble.leaf_ptr[leaf : leaf + 2].tolist()
        position = first + int(np.searchsorted(self._ensemble.leaf_label[first:last], label))
        is_there = position < last and self._ensemble.leaf_label[position] == label
        return self._ensemble.leaf_value[position] if is_there else np.float32(0.0)

    def _path_to(self, leaf: int, buffers: Buffers, first_tail: int) -> list[RoutedStep]:
        depth = depth_of(self._ensemble.parent, leaf)
        nodes = np.empty(depth, np.int32)
        margins = np.empty(depth, np.float32)
        features, shares = empty_shares(depth)
        explain_leaf(buffers.call, leaf, nodes, margins[:0], margins, features, shares, first_tail)
        return [
            RoutedStep(node, margin, node_features)
            for node, margin, node_features in zip(
                nodes.tolist(), margins, feature_shares(features, shares), strict=True
            )
        ]

    def label_mask(self, allowed: U8) -> U8:
        return allowed

    def _options_for(self, row: SparseRows, labels: I32) -> PredictOptions:
        mask = np.zeros(self.n_labels, np.uint8)
        mask[labels] = 1
        return PredictOptions(top_r=max(1, int(mask.sum())), exact=True, mask=mask)

    def _block_rows(self, plan: SearchPlan, n_rows: int) -> int:
        return routing_rows(n_rows, int(self._ensemble.child_ptr[0]))


def _reach_leaves(buffers: Buffers) -> tuple[I32, I32]:
    """Return the leaves that the row of a call reaches, without empty ones, and their trees.

    The leaves have ascending ids.
    """
    route_rows(buffers.call)
    routing = buffers.traversal_buffers
    n_leaves = routing.row_ptr.item(1)
    return routing.leaf_node[:n_leaves], routing.leaf_tree[:n_leaves]
