"""napkinXC's PLT with its defaults. Runs in the peer's environment; one JSON line a figure.

python napkinxc_peer.py train WORK --threads N
python napkinxc_peer.py predict WORK --top-r 10

It searches exactly, so there is no beam.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sp
from napkinxc.models import PLT


def say(figure: str, value: float) -> None:
    print(json.dumps({"peer": "napkinxc", "figure": figure, "value": value}), flush=True)


def train(work: Path, threads: int) -> None:
    rows = sp.load_npz(work / "train.rows.npz").tocsr().astype(np.float32)
    labels = sp.load_npz(work / "train.labels.npz").tocsr()
    model = PLT(str(work / "napkinxc"), threads=threads, seed=1)
    start = time.perf_counter()
    model.fit(rows, labels)
    say("train_seconds", time.perf_counter() - start)
    say("peak_memory_bytes", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    say("model_bytes", sum(file.stat().st_size for file in (work / "napkinxc").iterdir()))


def predict(work: Path, top_r: int, repeats: int, calls: int) -> None:
    rows = sp.load_npz(work / "test.rows.npz").tocsr().astype(np.float32)
    rows.sort_indices()
    start = time.perf_counter()
    model = PLT(str(work / "napkinxc"), threads=1)
    model.load()
    say("load_seconds", time.perf_counter() - start)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = model.predict_proba(rows, top_k=top_r)
        seconds.append(time.perf_counter() - start)
    say("batch_us_per_row", median(seconds) / rows.shape[0] * 1e6)
    one_call = []
    for i in range(calls):
        row = rows[i % rows.shape[0]]
        start = time.perf_counter()
        model.predict_proba(row, top_k=top_r)
        one_call.append(time.perf_counter() - start)
    say("one_call_us_p50", float(np.quantile(one_call, 0.5)) * 1e6)
    say("one_call_us_p99", float(np.quantile(one_call, 0.99)) * 1e6)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in found])])
    labels = [label for row in found for label, _ in row]
    scores = np.array([score for row in found for _, score in row], np.float32)
    shape = rows.shape[0], sp.load_npz(work / "test.labels.npz").shape[1]
    sp.save_npz(work / "napkinxc.found.npz", sp.csr_matrix((scores, labels, indptr), shape))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--top-r", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    given = parser.parse_args()
    if given.command == "train":
        train(given.work, given.threads)
    else:
        predict(given.work, given.top_r, given.repeats, given.calls)


if __name__ == "__main__":
    main()
