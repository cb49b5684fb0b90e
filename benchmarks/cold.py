"""Cold start and memory: from the start of a process to its first answer, and what a loaded model takes."""

from __future__ import annotations

import time

from benchmarks.runs import Settings, able, note, predict, show, spread, trained
from benchmarks.systems import Figures

_FIGURES = {
    "load_seconds": ("load, ms", 1e3),
    "own_bytes": ("own MB", 1e-6),
    "file_bytes": ("mapped MB", 1e-6),
}


def run(settings: Settings) -> None:
    """Print, for each system, the median of fresh processes; files are in the page cache, kernels compiled.

    What is mapped from files is shared by all processes that serve the model; the rest each has for itself.
    """
    for data in settings.data:
        rows = []
        for system in able(settings, data):
            model_bytes = trained(system, data, settings.threads)["model_bytes"]
            runs: list[Figures] = [predict(system, data, settings.threads) for _ in range(settings.repeats)]
            note(f"{data.name}: {system.name} starts")
            seconds = []
            for _ in range(settings.repeats):
                start = time.perf_counter()
                system.run("first", data.work)
                seconds.append(time.perf_counter() - start)
            cells = [spread([run[key] * scale for run in runs], 1) for key, (_, scale) in _FIGURES.items()]
            rows.append((system.name, spread(seconds, 2), *cells, f"{model_bytes / 1e6:,.1f}"))
        columns = ("", "start to first answer, s", *(name for name, _ in _FIGURES.values()), "on disk, MB")
        show(settings, f"{data.name}: one process, one thread", columns, rows)
