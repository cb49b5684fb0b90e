"""P@k, nDCG@5 and PSP@k of every system on the same rows, each with its own defaults."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.data import Prepared
from benchmarks.ours import labels_of
from benchmarks.runs import Settings, able, predict, show
from benchmarks.systems import System
from service.evaluation import propensities, ranking_metrics

SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def metrics_of(ptr: NDArray[np.int64], labels: NDArray[np.int32], data: Prepared) -> dict[str, float]:
    """Return the metrics of predictions for the test rows: labels, best first, of each row."""
    train = sp.load_npz(data.work / "train.labels.npz").tocsr()
    truth = sp.load_npz(data.work / "test.labels.npz").tocsr()
    counts = np.bincount(train.indices, minlength=train.shape[1])
    return ranking_metrics(
        ptr,
        labels,
        labels_of(truth),
        propensities(counts, train.shape[0]),
        unknown_labels=np.load(data.work / "unknown.npy"),
    )


def metrics(system: System, data: Prepared) -> dict[str, float]:
    """Return the metrics of the predictions that a system left."""
    found = sp.load_npz(data.work / system.found).tocsr()
    row_of = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    order = np.lexsort((found.indices, -found.data, row_of))
    return metrics_of(found.indptr.astype(np.int64), found.indices[order].astype(np.int32), data)


def run(settings: Settings) -> None:
    for data in settings.data:
        rows = []
        for system in able(settings, data):
            predict(system, data, settings.threads)
            found = metrics(system, data)
            rows.append((system.name, *(f"{found[key]:.2f}" for key in (*SHOWN, "nDCG@5"))))
        title = f"{data.name}: {data.n_rows:,} training rows, {data.n_labels:,} labels; percent"
        show(settings, title, ("", *SHOWN, "nDCG@5"), rows)
