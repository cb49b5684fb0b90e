"""Traversals of random forests: what hypothesis draws for them, and how each is run."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.helpers.calls import dicts_of, make_call, no_answers
from tests.helpers.forests import draw_forests, search_of
from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.best_first import best_first_rows, threshold_rows
from xylem.engine.kernels.search.scores import make_queue
from xylem.engine.kernels.search.workspace import BeamShape, make_workspace
from xylem_store.ensemble import LINKS

N_ROWS = 4
EVERYTHING = np.full(1, -np.inf, np.float32)
WAYS = {
    "beam": (beam_rows, {}),
    "block": (beam_rows, {"block_rows": N_ROWS}),
    "exact": (best_first_rows, {}),
    "threshold": (threshold_rows, {"log_threshold": EVERYTHING}),
}

SHAPES = ["label-tree"], 3, 60, [1, 5, 31, 32, 33, 70, 1500], [2, 5, 17, 40]
forests, forests_of_a_row = draw_forests(*SHAPES), draw_forests(*SHAPES, n_rows=1)
forests_of_any_weights = draw_forests(*SHAPES, ("float32", "bfloat16", "int8"), n_rows=40)
links, low_thresholds = st.sampled_from(LINKS["label-tree"]), st.floats(0.001, 0.5)


def run(
    kernel: Any,
    forest: Any,
    link: str,
    top_r: int | None,
    *,
    block_rows: int = 1,
    costs: Any = None,
    exact: Any = None,
    stop: Any = None,
    **fields: Any,
) -> str:
    """Return one {label: score} a row, in the order answered.

    costs   int64[n, 2], filled in
    exact   uint8[n], filled in
    stop    chooses from the workspaces the array whose first byte is looked at as the flag: one
            that the traversal itself writes to stops it at a known point.
    fields  of the search
    """
    search, ensemble = search_of(link, top_r, **fields), forest.ensemble
    indptr, indices, _ = forest.rows
    work = make_workspace(ensemble, n_features=max(1, len(indices)), maps_features=block_rows > 1)
    if kernel is beam_rows:
        shape = BeamShape(ensemble)
        kept = search.beam_width * (shape.n_levels if len(search.log_threshold) else 1)
        own = shape.make(n_rows=block_rows, beam_width=kept, top_r=top_r)
    else:
        own = make_queue(ensemble, top_r=top_r)
    answers = no_answers(len(indptr) - 1, top_r, costs, exact)
    flag = None if stop is None else stop(work, own)
    call = make_call(ensemble, forest.rows, search, work, own, answers, stop=flag)
    kernel(call.handle)
    return dicts_of(answers)
