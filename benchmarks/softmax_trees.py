"""Trees of softmax nodes beside fastText: P@1, seconds to train, microseconds a row.

All get the same rows: the features that a row has, each with the value 1, as fastText takes words. The same
dimensions, passes and rate, one thread, and the best label of each row by an exact search. Times are of the
processor: others may use the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.data import Prepared
from benchmarks.ours import labels_of, rows_of
from benchmarks.peers.environments import HERE, NotInstalled, python_of
from benchmarks.quality import metrics_of
from benchmarks.runs import Settings, note, show
from benchmarks.systems import Failed, System
from model_store.manifest import DataInfo, TrainerInfo
from model_store.names import build_names
from model_store.store import Store
from model_store.version import Draft
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.rows import SparseRows
from service.trainers import Trained, parse_parameters, train

DIMENSIONS = (50, 200)
RATE = 0.5
PASSES, MANY_ROWS, PASSES_OF_MANY = 15, 100_000, 5
FLAT_MAX = 2_000
"""Labels of a flat softmax, at most: beyond, training takes hours."""

FASTTEXT = System(
    "fastText 0.9.2",
    lambda: [str(python_of("fasttext")), str(HERE / "fasttext_peer.py")],
    (),
    "fasttext.found",
)
_TREES = (
    *(f"huffman-tree:arity={arity}" for arity in (2, 5, 20)),
    *(f"learned-tree:arity={arity}" for arity in (2, 5, 20)),
    *(f"huffman-tree:arity=20,tree={tree}" for tree in ("random", "clustered", "kmeans")),
    "huffman-tree:tree=flat",
)
_COLUMNS = ("", "dimensions", "P@1", "train s", "us a row")
_WARM_UP_ROWS = 200


class Measured(NamedTuple):
    """The figures of one training, on one thread."""

    precision: float
    train_seconds: float
    us_per_row: float


def run(settings: Settings) -> None:
    """Print a table for each data set; fastText is left out, with the reason, where it is not installed."""
    has_peer = any(not system.name.startswith("Xylem") for system in settings.systems)
    for data in settings.data:
        passes = PASSES_OF_MANY if data.n_rows > MANY_ROWS else PASSES
        rows = []
        for dim in DIMENSIONS:
            if has_peer:
                rows += [_cells(title, dim, found) for title, found in _peers(data, dim, passes)]
            for variant in settings.trainers or _TREES:
                if "flat" in variant and data.n_labels > FLAT_MAX:
                    continue
                note(f"{data.title}: {variant}, {dim} dimensions")
                rows.append(
                    _cells(
                        variant.replace(":", ",").replace(",", ", "), dim, _ours(data, variant, dim, passes)
                    )
                )
        size = f"{data.n_rows:,} training rows, {data.n_labels:,} labels"
        title = f"{data.title}: {size}; {passes} passes, rate {RATE:g}, values 1, one thread"
        show(settings, title, _COLUMNS, rows)


def _cells(title: str, dim: int, found: Measured) -> tuple[str, ...]:
    precision, seconds, us = found
    note(f"  {precision:.2f}, {seconds:.1f} s, {us:.1f} us a row")
    return title, str(dim), f"{precision:.2f}", f"{seconds:.1f}", f"{us:.1f}"


def _matrix(data: Prepared, part: str) -> sp.csr_matrix:
    """Return the rows of a part with all values 1."""
    found = sp.load_npz(data.work / f"{part}.rows.npz").tocsr()
    found.data[:] = 1.0
    return found


def _ours(data: Prepared, variant: str, dim: int, passes: int) -> Measured:
    """Train in this process, and answer the test rows through an opened version."""
    trainer, _, given = variant.partition(":")
    items = [f"dim={dim}", f"epochs={passes}", f"rate={RATE:g}", *given.split(",")]
    parameters = parse_parameters(trainer, items)
    x, y = _matrix(data, "train"), sp.load_npz(data.work / "train.labels.npz").tocsr()
    train(trainer, parameters, rows_of(x[:_WARM_UP_ROWS]), labels_of(y[:_WARM_UP_ROWS]))
    rows, labels = rows_of(x), labels_of(y)
    start = time.process_time()
    trained = train(trainer, parameters, rows, labels)
    seconds = time.process_time() - start
    found, us = _answers(data, trained, trainer, rows_of(_matrix(data, "test")))
    return Measured(_precision(found, data), seconds, us)


def _answers(
    data: Prepared, trained: Trained, trainer: str, rows: SparseRows
) -> tuple[NDArray[np.int32], float]:
    """Return the best label of each row, and the microseconds a row of an exact search."""
    draft = Draft(
        kind=trained.kind,
        link=trained.link,
        weights="float32",
        n_features=rows.n_features,
        trainer=TrainerInfo(trainer, trained.parameters),
        seed=0,
        data=DataInfo(data.name, data.n_rows, "0" * 64),
        metrics={},
        features={"kind": "raw", "norm": "none"},
        ensemble=trained.ensemble,
        labels=build_names(f"label {i}" for i in range(data.n_labels)),
        extra=trained.extra,
    )
    options = PredictOptions(top_r=1, exact=True)
    store = Store(data.work / "softmax-store")
    version = store.publish("model", draft).version
    predictor = make_predictor(store.open("model", version))
    predictor.predict_batch(rows, options, 1)
    start = time.process_time()
    found = predictor.predict_batch(rows, options, 1)
    us = 1e6 * (time.process_time() - start) / rows.n_rows
    labels = np.full(rows.n_rows, -1, np.int32)
    has = np.diff(found.ptr) > 0
    labels[has] = found.labels[found.ptr[:-1][has]]
    return labels, us


def _peers(data: Prepared, dim: int, passes: int) -> Iterator[tuple[str, Measured]]:
    """Yield what fastText does with each loss; nothing where it is not installed or fails, which is said."""
    for part in ("train", "test"):
        _write(data, part)
    options = ("--dim", str(dim), "--rate", str(RATE), "--epochs", str(passes))
    for loss in ("hs", "softmax") if data.n_labels <= FLAT_MAX else ("hs",):
        note(f"{data.title}: {FASTTEXT.name}, {loss}, {dim} dimensions")
        try:
            figures = FASTTEXT.run("train", data.work, "--loss", loss, *options)
            figures |= FASTTEXT.run("predict", data.work)
        except (NotInstalled, Failed) as reason:
            note(f"{FASTTEXT.name} is left out: {reason}")
            return
        found = np.loadtxt(data.work / FASTTEXT.found, np.int32, ndmin=1)
        measured = Measured(_precision(found, data), figures["train_seconds"], figures["predict_us_per_row"])
        yield f"{FASTTEXT.name}, {loss}", measured


def _write(data: Prepared, part: str) -> Path:
    """Write rows as fastText takes them: labels, and the numbers of features as words."""
    file = data.work / f"{part}.ft"
    if not file.exists():
        x = _matrix(data, part)
        y = sp.load_npz(data.work / f"{part}.labels.npz").tocsr()
        with file.open("w") as out:
            for row in range(x.shape[0]):
                labels = y.indices[y.indptr[row] : y.indptr[row + 1]].tolist() if part == "train" else ()
                words = x.indices[x.indptr[row] : x.indptr[row + 1]].tolist()
                out.write(" ".join([*(f"__label__{label}" for label in labels), *map(str, words)]) + "\n")
    return file


def _precision(found: NDArray[np.int32], data: Prepared) -> float:
    """Return P@1 of one label a row, -1 for none."""
    ptr = np.concatenate([[0], np.cumsum(found >= 0)])
    return metrics_of(ptr, found[found >= 0], data)["P@1"]
