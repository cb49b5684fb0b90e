"""Xylem itself, run as the peers are: in a fresh process, one JSON line a figure.

python -m benchmarks.ours train WORK --threads N --trees T
python -m benchmarks.ours predict WORK --trees T --top-r 10 --beam-width 10
python -m benchmarks.ours threads WORK --trees T --threads N
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sp

from model_store.store import Store
from service.inference.predictor import PredictOptions, Predictor
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
    predictor = Predictor(Store(store_of(work, trees)).open("model"))
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
    one_call = []
    for row in single:
        start = time.perf_counter()
        predictor.predict(row, options)
        one_call.append(time.perf_counter() - start)
    say(trees, "one_call_us_p50", float(np.quantile(one_call, 0.5)) * 1e6)
    say(trees, "one_call_us_p99", float(np.quantile(one_call, 0.99)) * 1e6)
    shape = (rows.n_rows, predictor.n_labels)
    sp.save_npz(
        work / f"xylem-{trees}.found.npz", sp.csr_matrix((found.scores, found.labels, found.ptr), shape)
    )


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
