"""The predictor of models whose rows are embedded before the search."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from xylem.base import SparseRows, offsets
from xylem.engine.answering import Predictions
from xylem.engine.explain import Explanation, top_features
from xylem.engine.features.combined import RowEmbedding
from xylem.engine.kernels.search.subtrees import RowSearch
from xylem.engine.options import (
    LabelScores,
    NodeThresholds as NodeThresholds,
    NodeWeights as NodeWeights,
    PredictOptions as PredictOptions,
)
from xylem.engine.predictor import Predictor
from xylem_store import (
    F64,
    I32,
    I64,
    U8,
    Model,
    assemble_embedding,
    dense_weights,
)


class EmbeddedPredictor(Predictor):
    """Predicts the labels of rows with one opened version whose link is softmax. Thread-safe."""

    def __init__(self, model: Model) -> None:
        self.embedding = RowEmbedding(assemble_embedding(model.manifest.n_features, model.arrays))
        super().__init__(model)

    def predict(self, rows: SparseRows, options: PredictOptions, threads: int = 1) -> Predictions:
        return super().predict(self.embedding.rows(rows), options, threads)

    def score_labels(self, rows: SparseRows, label_ptr: I64, labels: I32) -> LabelScores:
        return super().score_labels(self.embedding.rows(rows), label_ptr, labels)

    @property
    def nodes_explained(self) -> int:
        """The bound of `Predictor.nodes_explained` times the dimensions of a dense row.

        Here a node costs a look-up of every dimension for each feature.
        """
        return super().nodes_explained * int(self.embedding.dim)

    def rows_to_search(self, rows: SparseRows, chosen: I64) -> SparseRows:
        """Return as many rows: the chosen ones made dense, the others without features."""
        sizes = np.zeros(rows.n_rows, np.int64)
        sizes[chosen] = self.embedding.dim
        return self.embedding.rows(rows.take(np.flatnonzero(sizes)))._replace(indptr=offsets(sizes))

    @contextmanager
    def row_search(
        self, threshold: float | NodeThresholds, n_features: int, mask: U8 | None = None
    ) -> Iterator[RowSearch]:
        """Do as `Predictor.row_search`, for rows as `rows_to_search` returns them."""
        with super().row_search(threshold, max(n_features, self.embedding.dim), mask) as search:
            yield search

    def explain(self, rows: SparseRows, row: int, label: int) -> Explanation:
        """Return the explanation of a label's score for one row of `rows`, by its sparse features.

        A node's margin is linear in the features. A feature's contribution to a node is its share
        of the node's margin, minus its share of the mean margin of the node and its siblings,
        weighted by their probabilities.
        """
        single_row = rows.cut(row, row + 1)
        dense = self.embedding.rows(single_row)
        shares = self.embedding.shares(single_row.indices, single_row.values)
        explanation = super().explain(dense, 0, label)
        trees = []
        for path in explanation.trees:
            nodes = []
            for node in path:
                added = shares @ self._pull_of(node.node, dense.values.astype(np.float64))
                features = top_features(
                    single_row.indices, added.astype(np.float32), rows.n_features - rows.tail
                )
                nodes.append(node._replace(features=features))
            trees.append(nodes)
        return Explanation(trees)

    def _pull_of(self, node: int, r: F64) -> F64:
        """Return the weights of a node minus the mean weights of the node and its siblings.

        The mean is weighted by the nodes' probabilities for the dense row `r`, float64[dim].
        """
        parent = int(self._ensemble.parent[node])
        first, last = self._ensemble.child_ptr[parent : parent + 2].tolist()
        weights = dense_weights(self._ensemble, parent, self.embedding.dim)
        margins = weights @ r + self._ensemble.node_bias[first:last]
        p = np.exp(margins - margins.max())
        return np.asarray(weights[node - first] - (p / p.sum()) @ weights, np.float64)
