"""What the script of every system measures alike, ours too: one JSON line a figure.

Runs in the environments of the peers, so it imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

Call = Callable[[], Any]


def say(figure: str, value: float) -> None:
    """Print a figure."""
    print(json.dumps({"figure": figure, "value": value}), flush=True)


def arguments(description: str | None, commands: list[str], calls: int = 2000) -> argparse.ArgumentParser:
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
    """Say what a training that began at `started` and has just ended took; save, and say the model's size."""
    say("train_seconds", time.perf_counter() - started)
    say("peak_memory_bytes", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    save()
    files = [model] if model.is_file() else model.rglob("*")
    say("model_bytes", sum(file.stat().st_size for file in files if file.is_file()))


def timed(calls: Iterable[Call]) -> list[float]:
    """Return the seconds that each call took."""
    seconds = []
    for call in calls:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def loaded(load: Callable[[], Any]) -> Any:
    """Return what `load` returns, and say what loading took."""
    start = time.perf_counter()
    model = load()
    say("load_seconds", time.perf_counter() - start)
    return model


def say_batch(predict: Call, n_rows: int, repeats: int) -> None:
    """Say the median time of a batch, a row."""
    say("batch_us_per_row", median(timed([predict] * repeats)) / n_rows * 1e6)


def say_calls(way: str, calls: Iterable[Call]) -> None:
    """Say the median and the 99th percentile of calls of one row each."""
    seconds = sorted(timed(calls))
    say(f"{way}_us_p50", median(seconds) * 1e6)
    say(f"{way}_us_p99", seconds[int(0.99 * len(seconds))] * 1e6)


def say_threads(predict: Callable[[int], Any], n_rows: int, threads_max: int, repeats: int) -> None:
    """Say the rows a second of a batch on 1 to threads_max threads, taking turns; the first turn warms up."""
    seconds: dict[int, list[float]] = {n: [] for n in range(1, threads_max + 1)}
    for repeat in range(repeats + 1):
        for n, found in seconds.items():
            seconds_of_turn = timed([partial(predict, n)])
            if repeat:
                found += seconds_of_turn
    for n, found in seconds.items():
        say(f"rows_per_second_{n}", n_rows / median(found))


class Memory:
    """The memory of this process from now on: what is its own, and what it shares with others that map it."""

    def __init__(self) -> None:
        self._before = _resident()

    def say(self) -> None:
        """Say how much has come since."""
        for kind, now in _resident().items():
            say(f"{kind}_bytes", now - self._before[kind])


def _resident() -> dict[str, int]:
    """Return the resident bytes: of the process alone, and of files that are mapped."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        kind: 1024 * int(lines[key].split()[0]) for kind, key in (("own", "RssAnon"), ("file", "RssFile"))
    }
