"""The predictor of trees with softmax nodes: rows become dense by the model's embedding, then it searches."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from model_store.compiled.handles import F64, I32, I64
from model_store.decoding import dense_weights
from model_store.extras import assemble_embedding
from model_store.version import Model
from service.base.rows import SparseRows, offsets
from service.features.combined import RowEmbedding
from service.inference.answering import Predictions
from service.inference.explain import Explanation, top_features
from service.inference.options import LabelScores, NodeThresholds, PredictOptions
from service.inference.predictor import Predictor
from service.kernels.search.subtrees import RowSearch


class EmbeddedPredictor(Predictor):
    """Answers rows from one opened version whose link is softmax. Thread-safe."""

    def __init__(self, model: Model) -> None:
        """Take an opened model, whose arrays have been checked."""
        self.embedding = RowEmbedding(assemble_embedding(model.manifest.n_features, model.arrays))
        super().__init__(model)

    def predict(self, rows: SparseRows, options: PredictOptions, threads: int = 1) -> Predictions:
        """Do as `Predictor.predict`."""
        return super().predict(self.embedding.rows(rows), options, threads)

    def score_labels(self, rows: SparseRows, label_ptr: I64, labels: I32) -> LabelScores:
        """Do as `Predictor.score_labels`."""
        return super().score_labels(self.embedding.rows(rows), label_ptr, labels)

    @property
    def nodes_explained(self) -> int:
        """Do as `Predictor.nodes_explained`; here a node costs a look at each dimension for each feature."""
        n_dims: int = self.embedding.dim
        return super().nodes_explained * n_dims

    def rows_to_search(self, rows: SparseRows, chosen: I64) -> SparseRows:
        """Return as many rows: those chosen dense, the others without features."""
        sizes = np.zeros(rows.n_rows, np.int64)
        sizes[chosen] = self.embedding.dim
        dense = self.embedding.rows(rows.take(np.flatnonzero(sizes)))
        return dense._replace(indptr=offsets(sizes))

    @contextmanager
    def row_search(self, prepared: NodeThresholds, n_features: int) -> Iterator[RowSearch]:
        """Do as `Predictor.row_search`, for rows as `rows_to_search` returns them."""
        with super().row_search(prepared, max(n_features, self.embedding.dim)) as search:
            yield search

    def explain(self, rows: SparseRows, row: int, label: int) -> Explanation:
        """Return how one row of `rows` comes by its score for a label: what each of its features adds.

        A node's margin is linear in the features: a feature's share of it is told less its share of what the
        node's children have on average, by their probabilities.
        """
        alone = rows.cut(row, row + 1)
        dense = self.embedding.rows(alone)
        shares = self.embedding.shares(alone.indices, alone.values)
        found = super().explain(dense, 0, label)
        trees = []
        for path in found.trees:
            nodes = []
            for node in path:
                added = shares @ self._pull_of(node.node, dense.values.astype(np.float64))
                features = top_features(alone.indices, added.astype(np.float32))
                nodes.append(node._replace(features=features))
            trees.append(nodes)
        return Explanation(trees)

    def _pull_of(self, node: int, r: F64) -> F64:
        """Return the weights of a node less the mean of its siblings' and its own, by their probabilities."""
        above = int(self._ensemble.parent[node])
        first, last = self._ensemble.child_ptr[above : above + 2].tolist()
        weights = dense_weights(self._ensemble, above, self.embedding.dim)
        margins = weights @ r + self._ensemble.node_bias[first:last]
        p = np.exp(margins - margins.max())
        pull: F64 = weights[node - first] - (p / p.sum()) @ weights
        return pull
