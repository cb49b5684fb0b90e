"""The predictor of label trees: it predicts labels and probabilities of sparse rows.

If a model has softmax nodes, its embedding first makes the rows dense. Predictions of all labels
that reach their thresholds are returned part by part, so that memory stays bounded.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from xylem.base import RowArrays, SparseRows, writeable
from xylem.engine.answering import Predictions
from xylem.engine.buffers import Need
from xylem.engine.explain import Explanation, PathNode, empty_shares, feature_shares
from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.best_first import best_first_rows, threshold_rows
from xylem.engine.kernels.search.call import FIRST, LAST, set_rows
from xylem.engine.kernels.search.explain import depth_of, explain_leaf
from xylem.engine.kernels.search.ready_beam import ReadyBeam
from xylem.engine.kernels.search.scores import QueueWorkspace, make_queue, score_rows
from xylem.engine.kernels.search.subtrees import Paths, greatest_below
from xylem.engine.kernels.search.workspace import BeamShape, BeamWorkspace, widest_level
from xylem.engine.options import (
    ALL_ALLOWED,
    LabelScores,
    NodeThresholds as NodeThresholds,
    NodeWeights as NodeWeights,
    PredictOptions as PredictOptions,
    log_thresholds,
    logs_of,
)
from xylem.engine.ready_beams import ReadyBeams
from xylem.engine.searcher import Searcher, SearchPlan
from xylem_store import (
    F32,
    I32,
    I64,
    LANES,
    U8,
    Model,
    TreeEnsemble,
    read_only,
)

_BLOCK_ROWS_MIN = 32  # with fewer rows, each row is searched by itself: few share a chunk

# The most rows of a block times trees times the beam width (or top_r): a few megabytes.
_BLOCK_ENTRIES_MAX = 1 << 17


class Predictor(Searcher):
    """Predicts the labels of rows with one opened version of label trees.

    Several threads may call it at once.
    """

    def __init__(self, model: Model) -> None:
        """Make a predictor of an opened model of label trees, whose arrays have been checked."""
        self.shape = BeamShape(model.ensemble)
        self._n_chunks = len(model.ensemble.directory)
        self._widest = int(np.diff(model.ensemble.child_ptr).max())
        super().__init__(model, partial(_make_buffers, model.ensemble, self.shape))
        self._scoring = self._plan(PredictOptions(top_r=1, exact=True))

    def predict_on_event_loop(
        self, rows: SparseRows, options: PredictOptions
    ) -> Predictions | None:
        """Return the predictions if a beam search suffices for them, else None.

        If an exact answer is requested, a beam search is tried first: most often it finds the exact
        answer and proves it. An ensemble does not try it, because there the proof hardly ever
        succeeds. A request with costs or weights does not try it either: the costs, and the scores
        that weights change, would not be those of the exact search.
        """
        threshold = options.threshold
        is_number = threshold is not None and not isinstance(threshold, np.ndarray)
        if not (options.exact or is_number):
            return self.predict(rows, options)
        if self.shape.n_trees > 1 or options.costs or options.weights is not None:
            return None
        prepared = (
            NodeThresholds(log_thresholds(threshold, self._knots)) if is_number else threshold
        )
        predictions = self.predict(rows, options._replace(exact=False, threshold=prepared))
        return predictions if predictions.exact.all() else None

    def explain(self, rows: SparseRows, row: int, label: int) -> Explanation:
        """Return the explanation of a label's score for one row of `rows`, tree by tree.

        Cost: for each node on the label's paths its chunk, and a look-up of each feature's weight.
        """
        paths = []
        first_tail = rows.n_features - rows.tail
        with self._row(rows, row) as buffers:
            for leaf in self._ensemble.label_leaf[:, label].tolist():
                depth = depth_of(self._ensemble.parent, leaf) if leaf >= 0 else 0
                nodes, (features, shares) = np.empty(depth, np.int32), empty_shares(depth)
                probabilities, scores = np.empty((2, depth), np.float32)
                if depth:
                    outputs = nodes, probabilities, scores, features, shares
                    explain_leaf(buffers.call, leaf, *outputs, first_tail)
                node_features = feature_shares(features, shares)
                paths.append(
                    list(map(PathNode, nodes.tolist(), probabilities, scores, node_features))
                )
        return Explanation(paths)

    def score_labels(self, rows: SparseRows, label_ptr: I64, labels: I32) -> LabelScores:
        """Return the scores of labels[label_ptr[i] : label_ptr[i + 1]], int32[..], for row i.

        No search is needed, but they have the bits of an exact search's. Cost: the chunks on the
        labels' paths.
        """
        arrays = writeable(rows.indptr), writeable(rows.indices), writeable(rows.values)
        n_labels = len(labels)
        label_scores = LabelScores(np.empty(n_labels, np.float32), np.empty(n_labels, np.float32))
        buffers = self._take(self._scoring, rows.n_rows, int(np.diff(arrays[0]).max(initial=0)))
        set_rows(buffers.rows, *arrays)
        buffers.call[FIRST] = 0
        buffers.call[LAST] = rows.n_rows
        score_rows(buffers.call, writeable(label_ptr), writeable(labels), *label_scores)
        self.pool.give(buffers)
        return label_scores

    def ready_beams(self, rows: RowArrays, number: F32, mask: U8 | None) -> ReadyBeams:
        """Return beam searches of the rows that a kernel reads into the arrays `rows`.

        number  float32[2]: receives a threshold for all labels, and its logarithm
        mask    the labels that answers may have, as `label_mask` prepared it; None: all
        """
        beam_with = partial(
            ReadyBeam,
            link=self._link,
            n_labels=self.n_labels,
            n_chunks=self._n_chunks,
            n_levels=self.shape.n_levels,
            n_trees=self.shape.n_trees,
            n_children=self._widest,
            allowed=ALL_ALLOWED if mask is None else mask,
        )
        return ReadyBeams(self.pool, beam_with, rows, number)

    @property
    def nodes_explained(self) -> int:
        """A bound on the nodes of a label's explanation: one path in each tree."""
        return self.shape.n_trees * self.shape.n_levels

    def children_scored(self, beam_width: int) -> int:
        """Return a bound on the children, of all trees, that a beam search scores for a row and
        level.
        """
        return self.shape.n_trees * min(beam_width, self._n_chunks) * self._widest

    def node_thresholds(self, thresholds: F32) -> NodeThresholds:
        """Prepare one threshold for each label, float32[K] in [0, 1], for PredictOptions.

        A node's threshold is the least one of the labels below it (Jasinska et al. 2016, appendix
        B). Cost: O(nodes).
        """
        least = -greatest_below(self._ensemble, -logs_of(thresholds, self._knots), -np.inf)
        return NodeThresholds(np.append(least, np.full(LANES, np.inf, np.float32)))

    def node_weights(self, weights: F32) -> NodeWeights:
        """Prepare one weight for each label, float32[K], finite and > 0, for PredictOptions.

        Cost: O(nodes).
        """
        return NodeWeights(greatest_below(self._ensemble, logs_of(weights), -np.inf))

    def warm_up(self) -> None:
        """Compile or load every kernel that a request can need, by predicting empty rows with all
        kinds of options.
        """
        no_features = np.empty(0, np.int32), np.empty(0, np.float32), self.n_features
        row = SparseRows(np.zeros(2, np.int64), *no_features)
        self.predict(
            SparseRows(np.zeros(_BLOCK_ROWS_MIN + 1, np.int64), *no_features), PredictOptions()
        )
        thresholds = self.node_thresholds(np.ones(self.n_labels, np.float32))
        self.move_thresholds(thresholds, np.zeros(1, np.int32), np.ones(self.n_labels, np.float32))
        mask = self.label_mask(np.ones(self.n_labels, np.uint8))
        weights = self.node_weights(np.ones(self.n_labels, np.float32))
        for options in (
            PredictOptions(),
            PredictOptions(exact=True, weights=weights),
            PredictOptions(exact=True, threshold=1.0, mask=mask),
            PredictOptions(exact=True, threshold=thresholds),
        ):
            self.predict(row, options)
        self.explain(row, 0, int(self._ensemble.node_label.max()))
        self.score_labels(row, np.array([0, 1]), np.zeros(1, np.int32))
        self.pool.clear()

    def label_mask(self, allowed: U8) -> U8:
        return greatest_below(self._ensemble, allowed, 0)

    def _paths(self) -> Paths:
        trees = self._ensemble
        return read_only(trees.child_ptr), read_only(trees.parent), read_only(trees.label_leaf)

    def _plan(self, options: PredictOptions) -> SearchPlan:
        beam_width = min(options.beam_width, self._n_chunks)
        has_thresholds = options.threshold is not None
        search = self._search(options, beam_width, True)
        widest = widest_level(beam_width, self.shape.n_levels, self._n_chunks, has_thresholds)
        return SearchPlan(_traversal(options), widest, search[2], search, options.stop)

    def _block_rows(self, plan: SearchPlan, n_rows: int) -> int:
        if plan.traversal is not beam_rows:
            return 0
        if n_rows < _BLOCK_ROWS_MIN:
            return 1
        in_entries = _BLOCK_ENTRIES_MAX // (self.shape.n_trees * max(plan.beam_width, plan.top_r))
        rows_max = max(1, min(in_entries, self.shape.rows_at_once(plan.beam_width)))
        n_blocks = -(-n_rows // rows_max)
        return -(-n_rows // n_blocks)


def _traversal(options: PredictOptions) -> Callable[..., None]:
    if options.threshold is None:
        return best_first_rows if options.exact else beam_rows
    is_one_for_all = not isinstance(options.threshold, np.ndarray)
    return threshold_rows if options.exact or is_one_for_all else beam_rows


def _make_buffers(
    ensemble: TreeEnsemble, shape: BeamShape, need: Need
) -> BeamWorkspace | QueueWorkspace:
    return (
        make_queue(ensemble, top_r=need.top_r)
        if need.block_rows == 0
        else shape.make(n_rows=need.block_rows, beam_width=need.beam_width, top_r=need.top_r)
    )
