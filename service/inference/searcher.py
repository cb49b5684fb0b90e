"""What answers rows from an opened model, whatever its kind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.base.rows import SparseRows
from service.inference.answering import Predictions
from service.inference.explain import Explanation, RoutedExplanation
from service.inference.options import LabelScores, NodeThresholds, NodeWeights, PredictOptions
from service.kernels.search.threshold_update import RowSearch


class Searcher(Protocol):
    """Answers rows from one opened version. Safe to call from several threads at once.

    The answer to a row depends on the row, the options and the model only.
    """

    n_labels: int
    n_features: int

    @property
    def nodes_explained(self) -> int:
        """A bound on the nodes of a label's explanation, each with a look at all features of the row."""

    def predict(self, rows: SparseRows, options: PredictOptions) -> Predictions:
        """Answer rows one after the other, on the calling thread."""

    def predict_shortly(self, rows: SparseRows, options: PredictOptions) -> Predictions | None:
        """Return what `predict` does if that surely takes no longer than usual, else None."""

    def predict_batch(self, rows: SparseRows, options: PredictOptions, threads: int) -> Predictions:
        """Answer rows on `threads` threads; the same bits as `predict`."""

    def rows_to_search(self, rows: SparseRows, chosen: NDArray[np.int64]) -> SparseRows:
        """Return as many rows, of which those chosen are what `row_search` takes."""

    def score_labels(
        self, rows: SparseRows, label_ptr: NDArray[np.int64], labels: NDArray[np.int32]
    ) -> LabelScores:
        """Return the scores of labels[label_ptr[i] : label_ptr[i + 1]] for row i, as an exact search's."""

    def row_search(self, options: PredictOptions, n_features: int) -> AbstractContextManager[RowSearch]:
        """Return the exact search for prepared thresholds, for a kernel that calls it row by row.

        Rows have so many features at most.
        """

    def explain(self, rows: SparseRows, row: int, label: int) -> Explanation | RoutedExplanation:
        """Return how one row of `rows` comes by its score for a label."""

    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children that a search of this width scores for a row at once."""

    def label_mask(
        self,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        among: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8] | None:
        """Return the mask for PredictOptions of the labels that are allowed (None: all) and not denied.

        among  uint8[K], 0 for labels that are denied in any case; None: there are none

        Raises UnknownLabel.
        """

    def node_thresholds(self, thresholds: NDArray[np.float32]) -> NodeThresholds:
        """Prepare one threshold a label, float32[K] in [0, 1], for PredictOptions."""

    def node_weights(self, weights: NDArray[np.float32]) -> NodeWeights:
        """Prepare one weight a label, float32[K], finite and > 0, for PredictOptions."""

    def move_thresholds(
        self, prepared: NodeThresholds, labels: NDArray[np.int32], thresholds: NDArray[np.float32]
    ) -> None:
        """Bring `prepared` up to date in place where thresholds[labels], float32[K] in [0, 1], have changed.

        Predictions may go on meanwhile, see `service.thresholds.live.served`; two such calls may not.
        """

    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need."""
