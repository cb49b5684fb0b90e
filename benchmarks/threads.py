"""Rows a second of a batch on one thread and on more, of systems whose batches take a number of threads."""

from __future__ import annotations

from benchmarks.runs import Settings, able, note, show, spread
from benchmarks.systems import LIBPECOS, OURS, OURS_3

_SYSTEMS = (OURS, LIBPECOS, OURS_3)


def run(settings: Settings) -> None:
    counts = range(1, settings.threads + 1)
    for data in settings.data:
        rows, systems = [], able(settings, data)
        for system in _SYSTEMS:
            if system not in systems:
                continue
            note(f"{data.name}: {system.name} predicts on threads")
            options = ("--threads", str(settings.threads))
            runs = [system.run("threads", data.work, *options) for _ in range(settings.repeats)]
            speeds = [[run[f"rows_per_second_{n}"] for run in runs] for n in counts]
            gain = [last / first for first, last in zip(speeds[0], speeds[-1], strict=True)]
            rows.append((system.name, *(spread(found, 0) for found in speeds), spread(gain, 2)))
        columns = ("", *(f"{n} thread{'s' * (n > 1)}" for n in counts), f"{settings.threads} over 1")
        show(settings, f"{data.name}: batch, rows a second, top 10, beam 10", columns, rows)
