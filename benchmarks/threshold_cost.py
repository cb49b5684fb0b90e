"""What thresholds of a million labels cost: memory, and time beside predictions without thresholds.

python -m benchmarks threshold-cost [--labels N ...] [--weights float32|bfloat16|int8]

Generated trees, as in `growth`. Each is published by one fresh process and measured by another.
"""

from __future__ import annotations

import ctypes
import gc
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.growth import generate_rows, main, of_generated
from benchmarks.ours import one_row
from benchmarks.runs import Settings, note, show
from benchmarks.systems import Figures
from model_store.store import Store
from service.inference.answering import Predictions
from service.inference.predictor import PredictOptions, Predictor
from service.inference.thresholded import Thresholded
from service.rows import SparseRows
from service.thresholds.live.served import ServedThresholds
from service.thresholds.methods.ofo import Start, no_counts
from service.thresholds.store.state import Head
from service.thresholds.store.tuned import Tuned

LABELS_A_ROW = 5
"""Labels that pass their thresholds, on average."""

LEAST = 0.1
"""No threshold is lower; at it some hundred labels a row pass."""

SPREADS = (0.25, 0.5)
"""Standard deviations of the logarithm of thresholds. Those tuned on two sets of packages have 0.24, 0.69."""

_HEAD = Head(1, "model", 1, 1, 1, 0)
_THRESHOLDS = ("one for all", "equal", *(f"spread {spread}" for spread in SPREADS))
_SEARCHES = {"beam": False, "exact": True}
_COLUMNS = (
    "labels",
    "memory, MB",
    "search",
    "no threshold, us a row",
    *_THRESHOLDS,
    "labels a row",
)


def run(settings: Settings) -> None:
    """Print a line for each size."""
    rows = []
    for n_labels in settings.labels:
        note(f"threshold-cost: {n_labels:,} labels")
        found = of_generated("threshold_cost", settings, n_labels)
        for search in _SEARCHES:
            without = found[f"{search} none us"]
            some = [found[f"{search} {thresholds} us"] for thresholds in _THRESHOLDS]
            n_found = [found[f"{search} {thresholds} labels"] for thresholds in _THRESHOLDS]
            rows.append(
                (
                    f"{n_labels:,}",
                    f"{found['memory_bytes'] / 1e6:.1f}",
                    search,
                    f"{without:,.0f}",
                    *(f"{us:,.0f} ({us / without:.2f} x)" for us in some),
                    " / ".join(f"{n:.2f}" for n in n_found),
                )
            )
    title = f"Thresholds of generated trees, {settings.weights} weights; one call a row, one thread"
    show(settings, title, _COLUMNS, rows)


def measure(store: Path, n_rows: int = 512, repeats: int = 7) -> Figures:
    """Measure the one model of a store: the fastest of interleaved repeats, one call for each row."""
    model = Store(store).open("model", verify=False)
    predictor, rows = Predictor(model), generate_rows(n_rows)
    candidates = predictor.predict_batch(rows, PredictOptions(top_r=1000, exact=True, threshold=LEAST), 1)
    wanted = LABELS_A_ROW * n_rows
    fixed = float(np.partition(candidates.scores, -wanted)[-wanted])
    spread = [_spread_thresholds(predictor.n_labels, candidates, wanted, sd) for sd in SPREADS]
    options = PredictOptions(top_r=1000, threshold=0.5)
    predictor.predict_batch(rows, options, 1)
    gc.collect()
    before = _anonymous_bytes()
    live = ServedThresholds("model", 1, predictor.n_labels, Thresholded(predictor))
    live.replace(Tuned("ofo", "one", Start(), spread[0], no_counts(predictor.n_labels)), _HEAD)
    gc.collect()
    # spread[0] was there before, and is part of what is kept
    figures: Figures = {"memory_bytes": _anonymous_bytes() - before + spread[0].nbytes}
    equal = np.full(predictor.n_labels, fixed, np.float32)
    prepared = [predictor.node_thresholds(thresholds) for thresholds in (equal, *spread)]
    ways = {}
    for search, is_exact in _SEARCHES.items():
        ways[f"{search} none"] = PredictOptions(exact=is_exact)
        for name, threshold in zip(_THRESHOLDS, (fixed, *prepared), strict=True):
            ways[f"{search} {name}"] = PredictOptions(top_r=100, exact=is_exact, threshold=threshold)
    singles = [one_row(rows, i) for i in range(n_rows)]
    for _ in range(repeats):
        for way, options in ways.items():
            seconds, n_found = _one_by_one(predictor, singles, options)
            us = 1e6 * seconds / n_rows
            figures[f"{way} us"] = min(figures.get(f"{way} us", us), us)
            figures[f"{way} labels"] = n_found / n_rows
    return figures


def _spread_thresholds(
    n_labels: int, candidates: Predictions, wanted: int, spread: float
) -> NDArray[np.float32]:
    """Return log-normal thresholds, in no order, scaled so that `wanted` of the candidates pass."""
    shape = np.exp(spread * np.random.default_rng(2).standard_normal(n_labels)).astype(np.float32)
    ratios = candidates.scores / shape[candidates.labels]
    scale = np.partition(ratios, -wanted)[-wanted]
    return np.clip(scale * shape, LEAST, 1.0).astype(np.float32)


def _one_by_one(predictor: Predictor, rows: list[SparseRows], options: PredictOptions) -> tuple[float, int]:
    """Return the seconds that rows take one by one, and how many labels they get."""
    n_found, start = 0, time.perf_counter()
    for row in rows:
        n_found += len(predictor.predict(row, options).labels)
    return time.perf_counter() - start, n_found


def _anonymous_bytes() -> int:
    """Return the bytes of this process that are in use and no file's."""
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back to the system first
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


if __name__ == "__main__":
    main(measure)
