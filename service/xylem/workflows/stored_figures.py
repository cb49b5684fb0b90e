"""The figures on validation rows that a version stores, so that versions can be compared later."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xylem.base import LabelRows
from xylem.evaluation import (
    KS,
    RECALL_K,
    EmptyConvention,
    LabelCounts,
    PredictedRows,
    ReliabilityBin,
    calibration_error,
    mark_true,
    ranks_of,
)
from xylem_store import I64, Bools, NameTable, name_of

STARTS = (0, 1, 10, 100, 1000)  # the lowest number of training rows of each band

BANDS = ("0", "1-9", "10-99", "100-999", "1000+")

# The figures of a band by name; None for a share of nothing.
Band = dict[str, str | int | float | None]


def frequency_bands(
    ranked: PredictedRows,
    counts: LabelCounts,
    truth: LabelRows,
    training_rows: I64 | None,
    empty: EmptyConvention,
) -> list[Band] | None:
    """Return the figures of each band that has labels, the rarest first, as `group_figures` does.

    ranked         the first 5 labels of each row, or more; without repeats
    training_rows  int64[K], the training rows of each label; None if they are not known: then there
                   are no bands, and None is returned
    """
    if training_rows is None:
        return None
    band_of = np.searchsorted(STARTS, training_rows, "right") - 1
    return group_figures(
        "band",
        [(BANDS[band], band_of == band) for band in np.unique(band_of).tolist()],
        ranked,
        counts,
        truth,
        empty,
    )


def group_figures(
    kind: str,
    groups: Sequence[tuple[str, Bools]],
    ranked: PredictedRows,
    counts: LabelCounts,
    truth: LabelRows,
    empty: EmptyConvention,
) -> list[Band]:
    """Return the figures of groups of labels; shares in percent.

    groups  the name of each group, and whether each label is in it, bool[K]; none is empty

    `kind`   the name of the group
    labels   number of its labels
    support  how often they are true
    P@k      of the group's labels among the first k of all rows, the share that is true
    R@5      of the group's true labels, the share that is among the first 5 of their row
    macro_f  the mean F of the group's labels, as decided
    """
    is_true = mark_true(ranked, truth)
    weights = np.ones(len(is_true)) if truth.weights is None else truth.weights_at(ranked.ptr)
    rank = ranks_of(ranked.ptr)
    f = counts.f(empty)
    bands = []
    for name, members in groups:
        in_band = members[ranked.labels]
        support = float(counts.support[members].sum())
        shares: Band = {}
        for k in KS:
            first = in_band & (rank < k)
            shares[f"P@{k}"] = (
                100.0 * float(np.average(is_true[first], weights=weights[first]))
                if first.any()
                else None
            )
        first_hits = is_true & in_band & (rank < RECALL_K)
        bands.append(
            {
                kind: name,
                "labels": int(members.sum()),
                "support": round(support),
                **shares,
                f"R@{RECALL_K}": (
                    100.0 * float(weights[first_hits].sum()) / support if support else None
                ),
                "macro_f": 100.0 * float(f[members].mean()),
            }
        )
    return bands


# The figures of at most this many labels are stored: those that are true most often.
LABELS_MAX = 1000

# The limit for the names of these labels, in bytes of UTF-8: longer names mean fewer labels.
NAMES_BYTES_MAX = 100_000

_DIGITS = 6


def kept_figures(
    counts: LabelCounts, bins: list[ReliabilityBin], bands: list[Band] | None, names: NameTable
) -> dict[str, Any]:
    """Return the figures that a version stores, as JSON takes them.

    bands              see `frequency_bands`
    calibration_error  from 0 to 1, None without a prediction
    reliability        the bins that calibration_error is computed from
    labels             {label, support, hits, predicted} of the labels that are true most often, at
                       most LABELS_MAX; among equals the smaller id first
    labels_true        number of labels that are true in some row
    """
    return {
        "bands": bands
        and [{key: _rounded(value) for key, value in band.items()} for band in bands],
        "calibration_error": _rounded(calibration_error(bins)),
        "reliability": [
            {key: _rounded(value) for key, value in reliability_bin._asdict().items()}
            for reliability_bin in bins
        ],
        "labels": _label_figures(counts, names),
        "labels_true": int((counts.support > 0).sum()),
    }


def _label_figures(counts: LabelCounts, names: NameTable) -> list[dict[str, Any]]:
    order = np.argsort(-counts.support, kind="stable")[:LABELS_MAX]
    figures: list[dict[str, Any]] = []
    room = NAMES_BYTES_MAX
    for label in order[counts.support[order] > 0].tolist():
        name = name_of(names, label)
        room -= len(name.encode())
        if room < 0:
            break
        support, hits, predicted = (round(float(column[label])) for column in counts)
        figures.append({"label": name, "support": support, "hits": hits, "predicted": predicted})
    return figures


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if type(value) is float else value
