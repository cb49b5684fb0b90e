"""Time to predict on one thread, top 10, beam 10: a batch, one row a call from Python, and below Python.

"Compiled alone" is the call of the compiled function (ours, libpecos's C) with everything converted before.
"""

from __future__ import annotations

from statistics import median

from benchmarks.runs import Settings, able, predict, show, spread
from benchmarks.systems import Figures

_FIGURES = {
    "one_call_us_p50": "one call p50, us",
    "one_call_us_p99": "p99, us",
    "one_call_below_us_p50": "compiled alone p50, us",
    "batch_us_per_row": "batch, us a row",
}
_RATIOS = {
    "one_call_us_p50": "one call, ratio",
    "one_call_below_us_p50": "compiled alone, ratio",
    "batch_us_per_row": "batch, ratio",
}


def run(settings: Settings) -> None:
    for data in settings.data:
        systems = able(settings, data)
        runs: dict[str, list[Figures]] = {system.name: [] for system in systems}
        for _ in range(settings.repeats):
            for system in systems:
                runs[system.name].append(predict(system, data, settings.threads))
        ours = next(iter(runs.values()))
        rows = []
        for name, figures in runs.items():
            cells = [spread([f[key] for f in figures], 0) if key in figures[0] else "" for key in _FIGURES]
            ratios = [_ratio(figures, ours, key) for key in _RATIOS]
            rows.append((name, *cells, *ratios))
        columns = ("", *_FIGURES.values(), *_RATIOS.values())
        show(settings, f"{data.name}: prediction, one thread, top 10, beam 10", columns, rows)


def _ratio(figures: list[Figures], ours: list[Figures], key: str) -> str:
    """Return the median time of a system over ours, empty where it was not measured."""
    if key not in figures[0]:
        return ""
    return f"{median(f[key] for f in figures) / median(f[key] for f in ours):.1f}"
