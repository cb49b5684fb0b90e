"""What a version keeps of its figures on validation rows, so that two versions can be compared later."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable, name_of
from service.base.rows import LabelRows
from service.evaluation.bands import frequency_bands
from service.evaluation.decisions import LabelCounts, count_labels, mark_true
from service.evaluation.fmeasure import USUAL_EMPTY, EmptyConvention
from service.evaluation.reliability import calibration_error, reliability
from service.evaluation.report import PredictedRows

LABELS_MAX = 1000
"""Labels whose figures are kept, at most: those that are true most often."""

NAMES_BYTES_MAX = 100_000
"""The names of these labels, in bytes of UTF-8, at most: with longer names fewer labels are kept."""

_DIGITS = 6


def kept_figures(
    ranked: PredictedRows,
    scores: NDArray[np.float32],
    decided: PredictedRows,
    truth: LabelRows,
    names: NameTable,
    training_rows: NDArray[np.int64] | None,
    empty: EmptyConvention = USUAL_EMPTY,
) -> dict[str, Any]:
    """Return the figures that a version keeps, as JSON takes them.

    rows               how many rows were measured
    bands              see `frequency_bands`; None without `training_rows`
    calibration_error  from 0 to 1, None without a prediction; reliability: the bins behind it
    labels             {label, support, hits, predicted} of the labels that are true most often, at most
                       LABELS_MAX; of equals the smaller id first
    labels_true        how many labels are true in some row

    ranked, scores  the first labels of each row, and float32[..] their scores
    decided         the labels that reach their threshold
    training_rows   int64[K], the training rows of each label
    """
    counts = count_labels(decided, truth)
    bins = reliability(scores, mark_true(ranked, truth))
    bands = None
    if training_rows is not None:
        bands = [
            {key: _rounded(value) for key, value in band.items()}
            for band in frequency_bands(ranked, counts, truth, training_rows, empty)
        ]
    return {
        "rows": truth.n_rows,
        "bands": bands,
        "calibration_error": _rounded(calibration_error(bins)),
        "reliability": [{key: _rounded(value) for key, value in each._asdict().items()} for each in bins],
        "labels": _label_figures(counts, names),
        "labels_true": int((counts.support > 0).sum()),
    }


def _label_figures(counts: LabelCounts, names: NameTable) -> list[dict[str, Any]]:
    """Return the figures of the labels with the most support."""
    order = np.argsort(-counts.support, kind="stable")[:LABELS_MAX]
    found: list[dict[str, Any]] = []
    room = NAMES_BYTES_MAX
    for label in order[counts.support[order] > 0].tolist():
        name = name_of(names, label)
        room -= len(name.encode())
        if room < 0:
            break
        support, hits, predicted = (int(column[label]) for column in counts)
        found.append({"label": name, "support": support, "hits": hits, "predicted": predicted})
    return found


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if type(value) is float else value
