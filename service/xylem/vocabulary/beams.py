"""Choose the beam width of a combined version on the rows that its ranker is fitted to.

A narrow beam misses labels that the members would propose, a wide one takes longer: which one is
enough depends on the trees and the number of labels. The alternative was a constant: a beam of 3
lost 1.3 of 43.3 F1@5 on 213 questions to librarians.
"""

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from xylem.base import OnProgress, no_progress
from xylem.engine import CombinedPredictor, make_predictor
from xylem.evaluation import Labelled
from xylem.vocabulary.combined import CombinedParts
from xylem.vocabulary.ranker import best_of, candidates_of, rank_by_folds, ranking_figures
from xylem_store import BEAM_MAX

# The beam widths that are tried, the smallest first.
BEAMS = (3, 5, 10, 20, 50, 100, 200, 500)

# the most F1@5, in percent, that a chosen beam may lose against BEAM_MAX
LOSS_MAX = 0.2

# the most rows that beams are measured on: each beam answers them, and fits a ranker by folds
ROWS_MAX = 2000


class MeasuredBeam(NamedTuple):
    """What a beam width is worth, and what it costs.

    f1_at_5     F1@5 by folds of the rows, in percent
    us_per_row  microseconds of processor time that the candidates of a row take
    """

    beam_width: int
    f1_at_5: float
    us_per_row: float


def measure_beams(
    parts: CombinedParts, labelled: Labelled, kind: str, seed: int, on_progress: OnProgress
) -> list[MeasuredBeam]:
    """Return the measured beams: BEAM_MAX, then those of BEAMS up to the chosen one.

    The chosen one is the last: the smallest that loses at most LOSS_MAX. If each of them loses
    more, it is BEAM_MAX, which then stands at the end too.

    kind  of the ranker, as `fit_ranker` takes it

    Deterministic but for the times. Cost: for each beam that of answering at most ROWS_MAX rows,
    and of fitting a ranker by folds.
    """
    rows = np.sort(np.random.default_rng(seed).permutation(labelled.n_rows)[:ROWS_MAX])
    labelled = labelled._replace(
        rows=labelled.rows.take(rows),
        labels=labelled.labels.take(rows),
        unknown=labelled.unknown[rows],
    )
    measured: list[MeasuredBeam] = []
    for number, beam_width in enumerate((BEAM_MAX, *BEAMS)):
        on_progress("beam width", number, len(BEAMS) + 1)
        predictor = make_predictor(with_beam(parts, beam_width).unranked(seed))
        assert isinstance(predictor, CombinedPredictor)
        began = time.thread_time()
        candidates = candidates_of(predictor, labelled, no_progress)
        seconds = time.thread_time() - began
        f1_at_5 = ranking_figures(
            best_of(candidates, rank_by_folds(kind, candidates, seed)),
            labelled.labels,
            labelled.unknown,
        )["F1@5"]
        measured.append(MeasuredBeam(beam_width, f1_at_5, seconds * 1e6 / labelled.n_rows))
        if number and f1_at_5 >= measured[0].f1_at_5 - LOSS_MAX:
            break
    else:
        measured.append(measured[0])
    on_progress("beam width", len(BEAMS) + 1, len(BEAMS) + 1)
    return measured


def with_beam(parts: CombinedParts, beam_width: int) -> CombinedParts:
    """Return the parts of a combined version whose members search with this beam width."""
    return replace(parts, proposing=parts.proposing._replace(beam_width=beam_width))
