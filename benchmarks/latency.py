"""Time to predict on one thread, top 10, beam 10: a batch, and one row a call from Python."""

from __future__ import annotations

from benchmarks.runs import Settings, predict, show, spread
from benchmarks.systems import Figures

_FIGURES = ("one_call_us_p50", "one_call_us_p99", "batch_us_per_row")


def run(settings: Settings) -> None:
    for data in settings.data:
        runs: dict[str, list[Figures]] = {system.name: [] for system in settings.systems}
        for _ in range(settings.repeats):
            for system in settings.systems:
                runs[system.name].append(predict(system, data, settings.threads))
        first = min(figures["one_call_us_p50"] for figures in runs[settings.systems[0].name])
        rows = []
        for name, figures in runs.items():
            cells = [spread([f[key] for f in figures], 0) if key in figures[0] else "" for key in _FIGURES]
            ratio = min(f["one_call_us_p50"] for f in figures) / first
            rows.append(
                (name, *cells, f"{ratio:.2f}", spread([f["load_seconds"] * 1000 for f in figures], 0))
            )
        columns = ("", "one call p50, us", "p99, us", "batch, us a row", "one call, ratio", "load, ms")
        show(settings, f"{data.name}: prediction, one thread, top 10, beam 10", columns, rows)
