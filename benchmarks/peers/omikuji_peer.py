"""omikuji with its defaults. Runs in the peer's environment; one JSON line a figure.

    python omikuji_peer.py train WORK --threads N --trees T
    python omikuji_peer.py predict WORK --trees T --top-r 10 --beam-width 10

omikuji reads the Extreme Classification Repository's text format and refuses rows without a feature; it
predicts one row a call.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import time
from pathlib import Path
from statistics import median

import numpy as np
import omikuji
import scipy.sparse as sp
from omikuji import _ThreadPoolHandle
from omikuji._libomikuji import ffi, lib


def say(trees: int, figure: str, value: float) -> None:
    peer = f"omikuji ({trees} tree{'s' if trees > 1 else ''})"
    print(json.dumps({"peer": peer, "figure": figure, "value": value}), flush=True)


def train(work: Path, trees: int, threads: int) -> None:
    pool = _ThreadPoolHandle(threads, initialize=True)
    data = lib.load_omikuji_data_set(ffi.new("char[]", str(work / "train.txt").encode()), pool.ptr)
    if data == ffi.NULL:
        raise SystemExit("omikuji could not read the rows")
    parameters = omikuji.Model.default_hyper_param()
    parameters.n_trees = trees
    start = time.perf_counter()
    found = lib.train_omikuji_model(data, parameters, pool.ptr)
    say(trees, "train_seconds", time.perf_counter() - start)
    say(trees, "peak_memory_bytes", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    if found == ffi.NULL:
        raise SystemExit("omikuji could not train")
    out = work / f"omikuji-{trees}"
    shutil.rmtree(out, ignore_errors=True)  # omikuji adds its trees to those that it finds there
    omikuji.Model(found).save(str(out))
    say(trees, "model_bytes", sum(file.stat().st_size for file in out.iterdir()))


def predict(work: Path, trees: int, top_r: int, beam_width: int, calls: int) -> None:
    rows = sp.load_npz(work / "test.rows.npz").tocsr()
    rows.sort_indices()
    start = time.perf_counter()
    model = omikuji.Model.load(str(work / f"omikuji-{trees}"))
    say(trees, "load_seconds", time.perf_counter() - start)
    model.init_prediction_thread_pool(1)
    indptr, indices, values = [0], [], []
    seconds = []
    for i in range(rows.shape[0]):
        low, high = rows.indptr[i], rows.indptr[i + 1]
        pairs = list(zip(rows.indices[low:high].tolist(), rows.data[low:high].tolist(), strict=True))
        start = time.perf_counter()
        found = model.predict(pairs, beam_size=beam_width, top_k=top_r)
        seconds.append(time.perf_counter() - start)
        indices.extend(label for label, _ in found)
        values.extend(score for _, score in found)
        indptr.append(len(indices))
    say(trees, "one_call_us_p50", median(seconds[:calls]) * 1e6)
    say(trees, "one_call_us_p99", float(np.quantile(seconds[:calls], 0.99)) * 1e6)
    n_labels = sp.load_npz(work / "test.labels.npz").shape[1]
    matrix = sp.csr_matrix((np.array(values, np.float32), indices, indptr), (rows.shape[0], n_labels))
    sp.save_npz(work / f"omikuji-{trees}.found.npz", matrix)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--trees", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--top-r", type=int, default=10)
    parser.add_argument("--beam-width", type=int, default=10)
    parser.add_argument("--calls", type=int, default=2000)
    given = parser.parse_args()
    if given.command == "train":
        train(given.work, given.trees, given.threads)
    else:
        predict(given.work, given.trees, given.top_r, given.beam_width, given.calls)


if __name__ == "__main__":
    main()
