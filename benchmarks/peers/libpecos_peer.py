"""libpecos's XLinearModel with its defaults. Runs in the peer's environment; one JSON line a figure.

python libpecos_peer.py train WORK --threads N
python libpecos_peer.py predict WORK --top-r 10 --beam-width 10
python libpecos_peer.py threads WORK --threads N
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from ctypes import byref
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sp
from pecos.core import ScipyCompressedSparseAllocator, ScipyCsrF32, clib
from pecos.utils import smat_util
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


def say(figure: str, value: float) -> None:
    print(json.dumps({"peer": "libpecos", "figure": figure, "value": value}), flush=True)


def directory_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def train(work: Path, threads: int) -> None:
    rows = smat_util.load_matrix(str(work / "train.rows.npz")).astype(np.float32)
    labels = smat_util.load_matrix(str(work / "train.labels.npz")).astype(np.float32)
    start = time.perf_counter()
    embedding = LabelEmbeddingFactory.create(labels, rows, method="pifa")
    chain = Indexer.gen(embedding, indexer_type="hierarchicalkmeans", threads=threads)
    model = XLinearModel.train(rows, labels, C=chain, threads=threads)
    say("train_seconds", time.perf_counter() - start)
    say("peak_memory_bytes", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    model.save(str(work / "libpecos"))
    say("model_bytes", directory_bytes(work / "libpecos"))


VARIANTS = ("HASH_CHUNKED", "BINARY_SEARCH_CHUNKED")
"""The layouts of its weights; of each figure the faster one counts."""


def load(work: Path, variant: str) -> XLinearModel:
    return XLinearModel.load(str(work / "libpecos"), is_predict_only=True, weight_matrix_type=variant)


def timed(calls: list) -> list[float]:
    """Return the seconds that each call took."""
    seconds = []
    for call in calls:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def c_call(model: XLinearModel, row: sp.csr_matrix, top_r: int, beam_width: int) -> Callable[[], None]:
    """Return the call of the C function alone for one row, everything converted before."""
    allocator = ScipyCompressedSparseAllocator()
    matrix = ScipyCsrF32.init_from(row)
    function, handle = clib.clib_float32.c_xlinear_predict_csr_f32, model.model.model_chain
    arguments = handle, byref(matrix), beam_width, None, top_r, 1, allocator.cfunc
    return lambda: function(*arguments)


def predict(work: Path, top_r: int, beam_width: int, repeats: int, calls: int) -> None:
    rows = smat_util.load_matrix(str(work / "test.rows.npz")).astype(np.float32)
    rows.sort_indices()
    options = {"only_topk": top_r, "beam_size": beam_width, "threads": 1}
    single = [rows[i % rows.shape[0]] for i in range(calls)]
    figures: dict[str, list[float]] = {}
    for variant in VARIANTS:
        start = time.perf_counter()
        model = load(work, variant)
        figures.setdefault("load_seconds", []).append(time.perf_counter() - start)
        batch = timed([partial(model.predict, rows, **options)] * repeats)
        figures.setdefault("batch_us_per_row", []).append(median(batch) / rows.shape[0] * 1e6)
        ways = {
            "one_call": [partial(model.predict, row, **options) for row in single],
            "one_call_below": [c_call(model, row, top_r, beam_width) for row in single],
        }
        for way, made in ways.items():
            seconds = timed(made)
            for name, quantile in (("p50", 0.5), ("p99", 0.99)):
                figures.setdefault(f"{way}_us_{name}", []).append(float(np.quantile(seconds, quantile)) * 1e6)
    for figure, values in figures.items():
        say(figure, min(values))
    sp.save_npz(work / "libpecos.found.npz", model.predict(rows, **options).tocsr())


def threads(work: Path, top_r: int, beam_width: int, threads_max: int, repeats: int) -> None:
    """Say the rows a second of a batch on 1 to threads_max threads, taking turns."""
    rows = smat_util.load_matrix(str(work / "test.rows.npz")).astype(np.float32)
    rows.sort_indices()
    model = load(work, VARIANTS[0])
    seconds: dict[int, list[float]] = {n: [] for n in range(1, threads_max + 1)}
    for repeat in range(repeats + 1):
        for n, found in seconds.items():
            start = time.perf_counter()
            model.predict(rows, only_topk=top_r, beam_size=beam_width, threads=n)
            if repeat:
                found.append(time.perf_counter() - start)
    for n, found in seconds.items():
        say(f"rows_per_second_{n}", rows.shape[0] / median(found))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict", "threads"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--top-r", type=int, default=10)
    parser.add_argument("--beam-width", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    given = parser.parse_args()
    if given.command == "train":
        train(given.work, given.threads)
    elif given.command == "threads":
        threads(given.work, given.top_r, given.beam_width, given.threads, given.repeats)
    else:
        predict(given.work, given.top_r, given.beam_width, given.repeats, given.calls)


if __name__ == "__main__":
    main()
