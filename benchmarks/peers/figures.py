"""What the script of every system measures alike, ours too: one JSON line a figure.

Runs in the environments of the peers: numpy and scipy are in all of them.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

Call = Callable[[], Any]


def say(figure: str, value: float) -> None:
    """Print a figure."""
    print(json.dumps({"figure": figure, "value": value}), flush=True)


def arguments(
    description: str | None, commands: list[str], calls: int = 2000
) -> argparse.ArgumentParser:
    """Return the parser of what all scripts are told; calls: of one row, to time."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("command", choices=commands)
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--top-r", type=int, default=10)
    parser.add_argument("--beam-width", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=calls)
    return parser


def say_training(started: float, model: Path, save: Call) -> None:
    """Say what a training that began at `started` and has just ended
    took; save, and say the model's size.
    """
    say("train_seconds", time.perf_counter() - started)
    say("peak_memory_bytes", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    save()
    files = [model] if model.is_file() else model.rglob("*")
    say("model_bytes", sum(file.stat().st_size for file in files if file.is_file()))


def load_rows(work: Path, part: str, dtype: Any) -> sp.csr_matrix:
    """Return the rows of the training or test file, their features ascending."""
    rows = sp.load_npz(work / f"{part}.rows.npz").tocsr().astype(dtype)
    rows.sort_indices()
    return rows


def save_found(work: Path, name: str, found: Sequence[Sequence[tuple[int, float]]]) -> None:
    """Save the labels and scores that were predicted for each test row."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in found])])
    labels = [label for row in found for label, _ in row]
    scores = np.array([score for row in found for _, score in row], np.float32)
    shape = len(found), sp.load_npz(work / "test.labels.npz").shape[1]
    sp.save_npz(work / f"{name}.found.npz", sp.csr_matrix((scores, labels, indptr), shape))


def timed(calls: Iterable[Call]) -> list[float]:
    """Return the seconds that each call took."""
    seconds = []
    for call in calls:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def say_batch(predict: Call, n_rows: int, repeats: int) -> None:
    """Say the median time of a batch, a row."""
    say("batch_us_per_row", median(timed([predict] * repeats)) / n_rows * 1e6)


def say_calls(way: str, calls: Iterable[Call]) -> None:
    """Say the median and the 99th percentile of calls of one row each."""
    seconds = sorted(timed(calls))
    say(f"{way}_us_p50", median(seconds) * 1e6)
    say(f"{way}_us_p99", seconds[int(0.99 * len(seconds))] * 1e6)
