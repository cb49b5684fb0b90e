"""Results by how often a label was seen in training: what is good on the whole may be bad for rare labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.base.rows import LabelRows
from service.evaluation.decisions import LabelCounts, mark_true, ranks_of
from service.evaluation.fmeasure import EmptyConvention
from service.evaluation.ranking import KS, RECALL_K
from service.evaluation.report import PredictedRows

STARTS = (0, 1, 10, 100, 1000)
"""The training rows at which bands begin."""

Band = dict[str, str | int | float | None]
"""A band's figures by name; None for a share of nothing."""


def frequency_bands(
    ranked: PredictedRows,
    counts: LabelCounts,
    truth: LabelRows,
    training_rows: NDArray[np.int64],
    empty: EmptyConvention,
) -> list[Band]:
    """Return the figures of each band that has labels, the rarest first; shares in percent.

    band     its numbers of training rows: "0", "1-9", "10-99", "100-999" or "1000+"
    labels   how many there are; support: how often they are true
    P@k      of the band's labels among the first k of all rows, the share that is true
    R@5      of the band's true labels, the share among the first 5 of their row
    macro_f  the mean of F of the band's labels, as decided

    ranked         the first 5 labels of each row, or more; without repeats
    training_rows  int64[K], the training rows of each label
    """
    is_true, rank = mark_true(ranked, truth), ranks_of(ranked)
    band_of = np.searchsorted(STARTS, training_rows, "right") - 1
    predicted_in, f = band_of[ranked.labels], counts.f(empty)
    found = []
    for band in np.unique(band_of).tolist():
        members, here = band_of == band, predicted_in == band
        support = int(counts.support[members].sum())
        shares = {f"P@{k}": _percent(is_true[here & (rank < k)]) for k in KS}
        hits = int(is_true[here & (rank < RECALL_K)].sum())
        found.append(
            {
                "band": _name(band),
                "labels": int(members.sum()),
                "support": support,
                **shares,
                f"R@{RECALL_K}": 100.0 * hits / support if support else None,
                "macro_f": 100.0 * float(f[members].mean()),
            }
        )
    return found


def _percent(are_true: NDArray[np.bool_]) -> float | None:
    return 100.0 * float(are_true.mean()) if len(are_true) else None


def _name(band: int) -> str:
    """Return what a band is called: the numbers of training rows that its labels have."""
    first = STARTS[band]
    if band + 1 == len(STARTS):
        return f"{first}+"
    last = STARTS[band + 1] - 1
    return str(first) if first == last else f"{first}-{last}"
