"""Xylem itself, run as the peers are: in a fresh process, one JSON line a figure.

python -m benchmarks.ours train WORK --threads N --trees T
python -m benchmarks.ours predict WORK --trees T --top-r 10 --beam-width 10
python -m benchmarks.ours threads WORK --trees T --threads N
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sp

from model_store.ensemble import LINK_CODES
from model_store.store import Store
from model_store.version import Model
from service.inference.predictor import PredictOptions, Predictor
from service.kernels.beam import beam_rows
from service.kernels.beam_workspace import BEAM_KINDS, BeamShape
from service.kernels.forest import ENSEMBLE_KINDS
from service.kernels.lending import lend
from service.kernels.workspace import WORKSPACE_KINDS, make_workspace
from service.rows import SparseRows
from service.workflows import TrainRequest, train_and_publish


def say(trees: int, figure: str, value: float) -> None:
    print(json.dumps({"peer": f"xylem-{trees}", "figure": figure, "value": value}), flush=True)


def store_of(work: Path, trees: int) -> Path:
    """Return the store of the model with so many trees, alone in it."""
    return work / f"store-{trees}"


def train(work: Path, trees: int, threads: int, parameters: list[str]) -> None:
    request = TrainRequest(
        trainer="label-tree",
        data=work / "train.txt",
        parameters=(f"trees={trees}", *parameters),
        threads=threads,
    )
    report = train_and_publish(Store(store_of(work, trees)), "model", request)
    say(trees, "train_seconds", report.train_seconds)
    say(trees, "peak_memory_bytes", report.peak_memory_bytes)
    say(trees, "model_bytes", report.model_bytes)


def predict(work: Path, trees: int, options: PredictOptions, repeats: int, calls: int) -> None:
    matrix = sp.load_npz(work / "test.rows.npz").tocsr()
    matrix.sort_indices()
    start = time.perf_counter()
    model = Store(store_of(work, trees)).open("model")
    predictor = Predictor(model)
    say(trees, "load_seconds", time.perf_counter() - start)
    predictor.warm_up()
    rows = rows_of(matrix)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = predictor.predict_batch(rows, options, 1)
        seconds.append(time.perf_counter() - start)
    say(trees, "batch_us_per_row", median(seconds) / rows.n_rows * 1e6)
    single = [one_row(rows, i % rows.n_rows) for i in range(calls)]
    ways = {"one_call": lambda row: predictor.predict(row, options), "one_call_below": below(model, options)}
    for way, call in ways.items():
        seconds = []
        for row in single:
            start = time.perf_counter()
            call(row)
            seconds.append(time.perf_counter() - start)
        say(trees, f"{way}_us_p50", float(np.quantile(seconds, 0.5)) * 1e6)
        say(trees, f"{way}_us_p99", float(np.quantile(seconds, 0.99)) * 1e6)
    shape = (rows.n_rows, predictor.n_labels)
    sp.save_npz(
        work / f"xylem-{trees}.found.npz", sp.csr_matrix((found.scores, found.labels, found.ptr), shape)
    )


def below(model: Model, options: PredictOptions) -> Callable[[SparseRows], None]:
    """Return the call of the compiled traversal alone for one row, its buffers made before."""
    ensemble, top_r, width = model.ensemble, options.top_r, options.beam_width
    work = make_workspace(ensemble, n_features=model.manifest.n_features, maps_features=False)
    beam = BeamShape(ensemble).make(n_rows=1, beam_width=width, top_r=top_r)
    found = np.empty((1, top_r), np.int32), np.empty((1, top_r), np.float32), np.empty((0, 2), np.int64)
    samples = np.empty(0, ensemble.sparse.dtype), np.empty(0, ensemble.dense.dtype)
    everything = np.empty(0, np.uint8), np.empty(0, np.float32)
    search = LINK_CODES[model.manifest.link], width, top_r, *everything
    buffers = lend(work, WORKSPACE_KINDS), lend(beam, BEAM_KINDS), np.empty(1, np.int64), *found
    lent = lend(ensemble, ENSEMBLE_KINDS), *samples

    def call(row: SparseRows) -> None:
        beam_rows(*lent, row.indptr, row.indices, row.values, 0, 1, *search, *buffers)

    call.kept = work, beam  # type: ignore[attr-defined]
    return call


def threads(work: Path, trees: int, options: PredictOptions, threads_max: int, repeats: int) -> None:
    """Say the rows a second of a batch on 1 to threads_max threads, taking turns."""
    matrix = sp.load_npz(work / "test.rows.npz").tocsr()
    matrix.sort_indices()
    rows = rows_of(matrix)
    predictor = Predictor(Store(store_of(work, trees)).open("model"))
    seconds: dict[int, list[float]] = {n: [] for n in range(1, threads_max + 1)}
    for repeat in range(repeats + 1):
        for n, found in seconds.items():
            start = time.perf_counter()
            predictor.predict_batch(rows, options, n)
            if repeat:
                found.append(time.perf_counter() - start)
    for n, found in seconds.items():
        say(trees, f"rows_per_second_{n}", rows.n_rows / median(found))


def rows_of(matrix: sp.csr_matrix) -> SparseRows:
    return SparseRows(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float32),
        matrix.shape[1],
    )


def one_row(rows: SparseRows, i: int) -> SparseRows:
    cut = slice(int(rows.indptr[i]), int(rows.indptr[i + 1]))
    indptr = np.array([0, cut.stop - cut.start], np.int64)
    return SparseRows(indptr, rows.indices[cut].copy(), rows.values[cut].copy(), rows.n_features)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict", "threads"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--trees", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--top-r", type=int, default=10)
    parser.add_argument("--beam-width", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("-p", dest="parameters", action="append", default=[])
    given = parser.parse_args()
    if given.command == "train":
        train(given.work, given.trees, given.threads, given.parameters)
        return
    options = PredictOptions(top_r=given.top_r, beam_width=given.beam_width)
    if given.command == "threads":
        threads(given.work, given.trees, options, given.threads, given.repeats)
    else:
        predict(given.work, given.trees, options, given.repeats, given.calls)


if __name__ == "__main__":
    main()
