"""libmultilabel's linear tree. Runs in the peer's environment; one JSON line a figure.

    python libmultilabel_peer.py train WORK --threads N --arity 100
    python libmultilabel_peer.py predict WORK --top-r 10 --beam-width 10

Its k-means and its solver print to standard output; figures are the lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from statistics import median

import libmultilabel.linear as linear
import numpy as np
import scipy.sparse as sp


def say(figure: str, value: float) -> None:
    print(json.dumps({"peer": "libmultilabel", "figure": figure, "value": value}), flush=True)


def train(work: Path, threads: int, arity: int) -> None:
    rows = sp.load_npz(work / "train.rows.npz").tocsr().astype(np.float64)
    labels = sp.load_npz(work / "train.labels.npz").tocsr().astype(np.float64)
    np.random.seed(1)  # libmultilabel draws from the global generator
    start = time.perf_counter()
    model = linear.train_tree(labels, rows, f"-s 1 -e 0.1 -m {threads} -q", K=arity, verbose=False)
    say("train_seconds", time.perf_counter() - start)
    say("peak_memory_bytes", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    linear.utils.save_pipeline(str(work / "libmultilabel"), None, model)
    say("model_bytes", sum(file.stat().st_size for file in (work / "libmultilabel").iterdir()))


def predict(work: Path, top_r: int, beam_width: int, repeats: int, calls: int) -> None:
    rows = sp.load_npz(work / "test.rows.npz").tocsr().astype(np.float64)
    rows.sort_indices()
    start = time.perf_counter()
    _, model = linear.utils.load_pipeline(str(work / "libmultilabel" / "linear_pipeline.pickle"))
    say("load_seconds", time.perf_counter() - start)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        scores = model.predict_values(rows, beam_width=beam_width)
        seconds.append(time.perf_counter() - start)
    say("batch_us_per_row", median(seconds) / rows.shape[0] * 1e6)
    one_call = []
    for i in range(calls):
        row = rows[i % rows.shape[0]]
        start = time.perf_counter()
        model.predict_values(row, beam_width=beam_width)
        one_call.append(time.perf_counter() - start)
    say("one_call_us_p50", float(np.quantile(one_call, 0.5)) * 1e6)
    say("one_call_us_p99", float(np.quantile(one_call, 0.99)) * 1e6)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top_r]
    values = np.take_along_axis(scores, best, axis=1).astype(np.float32).ravel()
    indptr = np.arange(0, best.size + 1, best.shape[1])
    found = sp.csr_matrix((values, best.ravel(), indptr), scores.shape)
    sp.save_npz(work / "libmultilabel.found.npz", found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--arity", type=int, default=100)
    parser.add_argument("--top-r", type=int, default=10)
    parser.add_argument("--beam-width", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    if given.command == "train":
        train(given.work, given.threads, given.arity)
    else:
        predict(given.work, given.top_r, given.beam_width, given.repeats, given.calls)


if __name__ == "__main__":
    main()
