"""Training against the number of labels: generated rows with the statistics of Amazon-670k
(`growth --train`).

Each training is a process of its own: `xylem train` on the file in memory, the same with --stream,
and libpecos. What counts is the whole process, with reading the rows and writing the model.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import write_rows
from benchmarks.growth_rows import generate_labelled
from benchmarks.runs import Settings, note, show
from benchmarks.systems import LIBPECOS, installed

_COLUMNS = ("labels", "rows", "", "seconds", "processor, s", "peak MB", "model MB", "growth")
_BYTES_A_MB = 1e6
_FIRST_LABELS = 300


class _Cost(NamedTuple):
    """What a training took; `seconds` are by the clock."""

    seconds: float
    processor_seconds: float
    peak_bytes: int
    model_bytes: int


def run(settings: Settings) -> None:
    """Print a line for each size and way of training."""
    # kernels are compiled or loaded now, so that the first size does not count it
    for _ in _trainings(settings, _FIRST_LABELS):
        pass
    costs: dict[tuple[int, str], _Cost] = {}
    rows: list[tuple[str, ...]] = []
    for n_labels in settings.labels:
        for n_rows, way, cost in _trainings(settings, n_labels):
            if cost is None:
                rows.append((f"{n_labels:,}", f"{n_rows:,}", way, "failed", *("",) * 4))
                continue
            costs[n_labels, way] = cost
            rows.append(_cells(n_labels, n_rows, way, costs))
            note(" ".join(rows[-1]))
    title = f"Growth: label trees trained on generated rows with {settings.threads} threads"
    show(settings, title, _COLUMNS, rows)


def _trainings(settings: Settings, n_labels: int) -> Iterator[tuple[int, str, _Cost | None]]:
    """Generate rows of so many labels, and train on them in each way.

    Yield (number of rows, way, cost); the cost is None if a training failed.
    """
    with tempfile.TemporaryDirectory(dir=settings.out) as directory:
        work = Path(directory)
        note(f"growth: rows of {n_labels:,} labels")
        data, labels = generate_labelled(n_labels)
        write_rows(work, "train", data, labels)
        n_rows = data.n_rows
        del data, labels
        for way, command in _commands(settings, work).items():
            note(f"growth: {n_labels:,} labels, {way}")
            yield n_rows, way, _cost(command, work)


def _cells(
    n_labels: int, n_rows: int, way: str, costs: dict[tuple[int, str], _Cost]
) -> tuple[str, ...]:
    """Return the cells of a line; the last one is the exponent by which the processor time grew
    from the size before, 1 if it grew as the labels did.
    """
    cost = costs[n_labels, way]
    smaller = [size for size, other in costs if other == way and size < n_labels]
    growth = ""
    if smaller:
        ratio = cost.processor_seconds / costs[max(smaller), way].processor_seconds
        growth = f"{math.log(ratio) / math.log(n_labels / max(smaller)):.2f}"
    return (
        f"{n_labels:,}",
        f"{n_rows:,}",
        way,
        f"{cost.seconds:,.1f}",
        f"{cost.processor_seconds:,.1f}",
        f"{cost.peak_bytes / _BYTES_A_MB:,.0f}",
        f"{cost.model_bytes / _BYTES_A_MB:,.1f}",
        growth,
    )


def _commands(settings: Settings, work: Path) -> dict[str, list[str]]:
    """Return the command of each way of training on the rows in `work`."""
    threads = ["--threads", str(settings.threads)]
    ours = [sys.executable, "-m", "xylem", "train", "label-tree", "--model", "model", *threads]
    ours += ["--data", str(work / "train.txt"), "--store"]
    commands = {
        "in memory": [*ours, str(work / "in memory")],
        "as a stream": [*ours, str(work / "as a stream"), "--stream"],
    }
    for peer in installed(system for system in settings.systems if system is LIBPECOS):
        commands[peer.name] = [*peer.command(), "train", str(work), *threads]
    return commands


def _cost(command: Sequence[str], work: Path) -> _Cost | None:
    """Run a training; return what it took, None if it failed, for example for want of memory."""
    before = _size_of(work)
    start = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        training = subprocess.Popen(command, stdout=log, stderr=log)
        _, status, usage = os.wait4(training.pid, 0)
        training.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        if training.returncode:
            log.seek(0)
            note(f"growth: it ended with {training.returncode}: {log.read().decode()[-2000:]}")
            return None
    processor_seconds = usage.ru_utime + usage.ru_stime
    return _Cost(seconds, processor_seconds, usage.ru_maxrss * 1024, _size_of(work) - before)


def _size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
