"""F-measures of predicted sets of labels."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import kernel
from service.base.errors import BadParameter
from service.base.rows import LabelRows

EmptyConvention = Literal["one", "zero"]
"""What F is where nothing is true and nothing predicted: "zero" is scikit-learn's default, "one" the
convention of the papers on extreme F-measures."""

CONVENTIONS: tuple[EmptyConvention, ...] = ("zero", "one")

USUAL_EMPTY: EmptyConvention = "zero"
"""The convention where none is named: a label that never occurs earns nothing."""


def empty_convention(text: object, name: str) -> EmptyConvention:
    """Return the convention of empty labels that an option of this name says. Raises BadParameter."""
    for convention in CONVENTIONS:
        if text == convention:
            return convention
    raise BadParameter(f"{name}: expected {' or '.join(CONVENTIONS)}, found {text!r}")


class FMeasures(NamedTuple):
    """F-measures in percent, and the convention under which they hold."""

    macro_f: float
    micro_f: float
    instance_f: float
    empty_label_convention: EmptyConvention


def f_measures(
    pred_ptr: NDArray[np.int64],
    pred_labels: NDArray[np.int32],
    labels: LabelRows,
    *,
    empty: EmptyConvention,
    unknown_labels: NDArray[np.int32] | None = None,
    n_unknown: int = 0,
) -> FMeasures:
    """Return macro-F (mean over labels), micro-F (of all decisions) and instance-F (mean over rows).

    F is 2 hits / (true + predicted). `empty` says what it is where that is 0 / 0: of a label for macro-F, of
    a row for instance-F, of everything for micro-F.

    pred_ptr, pred_labels  int64[n + 1], int32[..]: labels predicted for each row, without repeats, in [0, K)
    labels                 the true labels, n rows, out of K = n_labels
    unknown_labels         int32[n], true labels of each row outside the K: they count as missed in micro-F
                           and instance-F
    n_unknown              how many labels these are: macro-F is the mean over K + n_unknown, theirs is 0

    Raises ValueError when the numbers of rows differ, or there are no rows or no labels. Deterministic.
    """
    n = labels.n_rows
    if unknown_labels is None:
        unknown_labels = np.zeros(n, np.int32)
    if not n or not labels.n_labels or len(pred_ptr) - 1 != n or len(unknown_labels) != n:
        raise ValueError(
            f"expected predictions for {max(n, 1)} rows and some labels, found {len(pred_ptr) - 1}"
        )
    rows, per_label = np.empty((n, 2), np.int64), np.zeros((labels.n_labels, 2), np.int64)
    _count(pred_ptr, pred_labels, labels.indptr, labels.indices, unknown_labels, rows, per_label)
    return FMeasures(
        100.0 * float(f_scores(per_label, empty).sum()) / (labels.n_labels + n_unknown),
        100.0 * float(f_scores(rows.sum(0, keepdims=True), empty)[0]),
        100.0 * float(f_scores(rows, empty).mean()),
        empty,
    )


def f_scores(counts: NDArray[np.int64], empty: EmptyConvention) -> NDArray[np.float64]:
    """Return F in [0, 1] of each pair (hits, true + predicted), int64[n, 2]."""
    f = np.full(len(counts), 1.0 if empty == "one" else 0.0)
    np.divide(2.0 * counts[:, 0], counts[:, 1], out=f, where=counts[:, 1] > 0)
    return f


@kernel
def _count(
    pred_ptr: NDArray[np.int64],
    pred_labels: NDArray[np.int32],
    true_ptr: NDArray[np.int64],
    true_labels: NDArray[np.int32],
    unknown: NDArray[np.int32],
    rows_out: NDArray[np.int64],
    labels_out: NDArray[np.int64],
) -> None:
    """Count (hits, true + predicted) of every row and, added to what is there, of every label."""
    last_row = np.full(len(labels_out), -1, np.int64)  # the last row in which a label was true
    for row in range(len(true_ptr) - 1):
        hits = 0
        for i in range(true_ptr[row], true_ptr[row + 1]):
            last_row[true_labels[i]] = row
            labels_out[true_labels[i], 1] += 1
        for i in range(pred_ptr[row], pred_ptr[row + 1]):
            label = pred_labels[i]
            labels_out[label, 1] += 1
            if last_row[label] == row:
                labels_out[label, 0] += 1
                hits += 1
        n_true = true_ptr[row + 1] - true_ptr[row] + unknown[row]
        rows_out[row, 0] = hits
        rows_out[row, 1] = n_true + pred_ptr[row + 1] - pred_ptr[row]
