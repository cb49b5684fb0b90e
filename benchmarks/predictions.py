"""Predictions of every system for the same rows: how good they are, and how long one takes.

Time is of one thread, top 10, beam 10: a batch, one row a call from Python, and below Python.
"Compiled alone" is the call of the compiled function (ours, libpecos's C) with everything converted
before.
"""

from statistics import median

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.data import Prepared
from benchmarks.ours import labels_of
from benchmarks.runs import Settings, able, predict, show, spread
from benchmarks.systems import Figures, System
from xylem.evaluation import PredictedRows, Truth, propensities, ranking_metrics

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def metrics_of(
    ptr: NDArray[np.int64], labels: NDArray[np.int32], data: Prepared
) -> dict[str, float]:
    """Return the metrics of predictions for the test rows: labels, best first, of each row."""
    train = sp.load_npz(data.work / "train.labels.npz").tocsr()
    truth = sp.load_npz(data.work / "test.labels.npz").tocsr()
    counts = np.bincount(train.indices, minlength=train.shape[1])
    judged = Truth(labels_of(truth), np.load(data.work / "unknown.npy"))
    return ranking_metrics(PredictedRows(ptr, labels), judged, propensities(counts, train.shape[0]))


def metrics(system: System, data: Prepared) -> dict[str, float]:
    """Return the metrics of the predictions that a system left."""
    found = sp.load_npz(data.work / system.found).tocsr()
    row_of = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    order = np.lexsort((found.indices, -found.data, row_of))
    return metrics_of(found.indptr.astype(np.int64), found.indices[order].astype(np.int32), data)


def quality(settings: Settings) -> None:
    """Print P@k, nDCG@5 and PSP@k of every system, each with its own defaults."""
    for data in settings.data:
        rows = []
        for system in able(settings, data):
            predict(system, data, settings.threads)
            found = metrics(system, data)
            rows.append((system.name, *(f"{found[key]:.2f}" for key in (*SHOWN, "nDCG@5"))))
        title = f"{data.name}: {data.n_rows:,} training rows, {data.n_labels:,} labels; percent"
        show(settings, title, ("", *SHOWN, "nDCG@5"), rows)


_FIGURES = {
    "one_call_us_p50": "one call p50, us",
    "one_call_us_p99": "p99, us",
    "one_call_below_us_p50": "compiled alone p50, us",
    "batch_us_per_row": "batch, us a row",
}
_RATIOS = {
    "one_call_us_p50": "one call, ratio",
    "one_call_below_us_p50": "compiled alone, ratio",
    "batch_us_per_row": "batch, ratio",
}


def latency(settings: Settings) -> None:
    """Print the time to predict on one thread."""
    for data in settings.data:
        systems = able(settings, data)
        runs: dict[str, list[Figures]] = {system.name: [] for system in systems}
        for _ in range(settings.repeats):
            for system in systems:
                runs[system.name].append(predict(system, data, settings.threads))
        ours = next(iter(runs.values()))
        rows = []
        for name, figures in runs.items():
            cells = [
                spread([f[key] for f in figures], 0) if key in figures[0] else ""
                for key in _FIGURES
            ]
            ratios = [_ratio(figures, ours, key) for key in _RATIOS]
            rows.append((name, *cells, *ratios))
        columns = ("", *_FIGURES.values(), *_RATIOS.values())
        show(settings, f"{data.name}: prediction, one thread, top 10, beam 10", columns, rows)


def _ratio(figures: list[Figures], ours: list[Figures], key: str) -> str:
    """Return the median time of a system over ours, empty where it was not measured."""
    if key not in figures[0]:
        return ""
    return f"{median(f[key] for f in figures) / median(f[key] for f in ours):.1f}"
