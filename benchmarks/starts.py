"""What has to begin, of this checkout and of another one (`--against`), in turns.

A server from its start to ready, the first `xylem predict` of a process, all kernels compiled from
nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.requests import described, trained_stores
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import run_cli, served, source_path


def run(settings: Settings) -> None:
    """Print the seconds of each; kernels are cached but where
    they are compiled, which is done once.
    """
    stores = trained_stores(settings)
    checkouts = {name: checkout for name, (checkout, _) in stores.items()}
    store_of = dict(stores.values())
    line = settings.out / "line.jsonl"
    line.write_text(json.dumps({"text": described("test")[0][0]}) + "\n")

    def ready(checkout: Path) -> float:
        with served(store_of[checkout], 1, checkout, own_database=True) as (_, seconds, _):
            return seconds

    def first(checkout: Path) -> float:
        start = time.perf_counter()
        options = ["--data", str(line), "--store", str(store_of[checkout])]
        run_cli(checkout, "predict", "text", *options)
        return time.perf_counter() - start

    rows = [
        _row("xylem serve: start to ready", ready, checkouts, settings.repeats),
        _row("xylem predict of one text", first, checkouts, settings.repeats),
        _row("all kernels, from nothing", _compiled, checkouts, 1, is_warm=False),
    ]
    ratios = ("this / other",) if settings.against is not None else ()
    show(settings, "starts, seconds", ("", *checkouts, *ratios), rows)


def _row(
    name: str,
    measure: Callable[[Path], float],
    checkouts: dict[str, Path],
    repeats: int,
    *,
    is_warm: bool = True,
) -> tuple[str, ...]:
    """Return a row of the table: what each checkout takes, and the ratio of the two, turn by turn.

    is_warm   whether a turn that does not count goes before, which fills the caches
    """
    note(name)
    n_turns = repeats + is_warm
    turns = [[measure(checkout) for checkout in checkouts.values()] for _ in range(n_turns)][
        is_warm:
    ]
    cells = [spread(list(seconds), 2) for seconds in zip(*turns, strict=True)]
    if len(checkouts) > 1:
        cells.append(spread([ours / other for ours, other in turns], 2))
    return (name, *cells)


def _compiled(checkout: Path) -> float:
    """Return the seconds in which a checkout compiles all its kernels into an empty directory."""
    with tempfile.TemporaryDirectory() as kernels:
        environment = {
            **os.environ,
            "PYTHONPATH": source_path(checkout),
            "XYLEM_KERNEL_CACHE": kernels,
        }
        warm = "xylem.warm" if (checkout / "service" / "xylem").is_dir() else "service.warm"
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", warm],
            cwd=checkout,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - start
