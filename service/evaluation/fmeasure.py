"""F-measures of predicted sets of labels."""

from typing import Literal, NamedTuple

import numpy as np

from model_store.compiled.handles import F64, I64
from service.base.errors import BadParameter
from service.base.rows import LabelRows
from service.evaluation.ranking import PredictedRows, Truth, mark_true, rows_of

EmptyConvention = Literal["one", "zero"]
"""What F is where nothing is true and nothing predicted: "zero" is scikit-learn's default, "one" the
convention of the papers on extreme F-measures."""

CONVENTIONS: tuple[EmptyConvention, ...] = ("zero", "one")

USUAL_EMPTY: EmptyConvention = "zero"
"""The convention where none is named: a label that never occurs earns nothing."""


def empty_convention(text: object, name: str) -> EmptyConvention:
    """Return the convention of empty labels that an option of this name says. Raises BadParameter."""
    if text in CONVENTIONS:
        return text
    raise BadParameter(f"{name}: expected {' or '.join(CONVENTIONS)}, found {text!r}")


class FMeasures(NamedTuple):
    """F-measures in percent, and the convention under which they hold."""

    macro_f: float
    micro_f: float
    instance_f: float
    empty_label_convention: EmptyConvention


def f_measures(predicted: PredictedRows, truth: Truth, empty: EmptyConvention) -> FMeasures:
    """Return macro-F (mean over labels), micro-F (of all decisions) and instance-F (mean over rows).

    F is 2 hits / (true + predicted). `empty` says what it is where that is 0 / 0: of a label for macro-F, of
    a row for instance-F, of everything for micro-F.

    predicted  the labels of each row, without repeats, out of the K that the model knows
    truth      labels that the model does not know count as missed in micro-F and instance-F; macro-F is the
               mean over K + n_unknown labels, theirs is 0

    There is a row and a label at least. Raises ValueError when the numbers of rows differ. Deterministic.
    """
    labels, unknown, n_unknown = truth
    hits = np.bincount(rows_of(predicted.ptr)[mark_true(predicted, labels)], minlength=labels.n_rows)
    rows = np.stack([hits, np.diff(labels.indptr) + unknown + np.diff(predicted.ptr)], axis=1)
    of_labels = count_labels(predicted, labels).f(empty)
    return FMeasures(
        100.0 * float(of_labels.sum()) / (labels.n_labels + n_unknown),
        100.0 * float(f_scores(rows.sum(0, keepdims=True), empty)[0]),
        100.0 * float(f_scores(rows, empty).mean()),
        empty,
    )


class LabelCounts(NamedTuple):
    """What was decided of each label, int64[K] each.

    support    rows in which it is true
    hits       rows in which it is true and predicted
    predicted  rows in which it is predicted
    """

    support: I64
    hits: I64
    predicted: I64

    def f(self, empty: EmptyConvention) -> F64:
        """Return F of each label in [0, 1], float64[K]."""
        return f_scores(np.stack([self.hits, self.support + self.predicted], axis=1), empty)


def count_labels(decided: PredictedRows, truth: LabelRows) -> LabelCounts:
    """Return the counts of each label. Raises ValueError when the numbers of rows differ."""
    columns = truth.indices, decided.labels[mark_true(decided, truth)], decided.labels
    return LabelCounts(*(np.bincount(labels, minlength=truth.n_labels) for labels in columns))


def f_scores(counts: I64, empty: EmptyConvention) -> F64:
    """Return F in [0, 1] of each pair (hits, true + predicted), int64[n, 2]."""
    f = np.full(len(counts), 1.0 if empty == "one" else 0.0)
    np.divide(2.0 * counts[:, 0], counts[:, 1], out=f, where=counts[:, 1] > 0)
    return f
