"""Macro-F against 1 / c: figure 1 of Jasinska et al. 2016, on other data.

"Extreme F-Measure Maximization using Sparse Probability Estimates": kappa of STO and FTA is 1 / c, OFO starts
from a = 1 and b = c. Models and tuning rows are those of `thresholds`, empty labels count 1 as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import Prepared
from benchmarks.runs import Settings, note, show
from benchmarks.thresholds import model_of, quiet, split
from model_store.version import Model
from service.thresholds.methods.fta import GRID
from service.thresholds.methods.ofo import Start
from service.workflows.tune import TuneRequest, tune

METHODS = ("sto", "fta", "ofo")
_PANEL_INCHES = 4.0


class Point(NamedTuple):
    """Macro-F of each of METHODS on the validation and the test rows, percent, where kappa is 1 / c."""

    kappa: float
    validation: list[float]
    test: list[float]


def run(settings: Settings) -> None:
    """Print a table for each data set and trainer, and plot them where matplotlib is installed."""
    found: dict[str, list[Point]] = {}
    for data in settings.data:
        for trainer in settings.trainers or ("label-tree",):
            model = model_of(data, trainer, settings.threads)
            title = f"{data.name}, {trainer}"
            found[title] = [_point(model, data, kappa, settings.threads) for kappa in GRID]
            _show(settings, title, found[title])
    _plot(settings.out / "macro-f.svg", found)


def _point(model: Model, data: Prepared, kappa: float, threads: int) -> Point:
    note(f"{data.name}: c = {1 / kappa:g}")
    valid, test = (split(data) / f"{part}.X.npz" for part in ("valid", "test"))
    requests = (
        TuneRequest(("sto", "fta"), valid, test, "one", kappa, threads=threads),
        TuneRequest(("ofo",), valid, test, "one", start=Start(1.0, 1 / kappa), threads=threads),
    )
    outcomes = [outcome for request in requests for outcome in tune(model, request, quiet)]
    tests = [outcome.test.macro_f for outcome in outcomes if outcome.test is not None]
    return Point(kappa, [outcome.validation.macro_f for outcome in outcomes], tests)


def _show(settings: Settings, title: str, points: Sequence[Point]) -> None:
    """Print the macro-F of every c; the test figure where validation is best is what a search would take."""
    columns = ("c", *(f"{method}, {part}" for method in METHODS for part in ("valid", "test")))
    rows = [
        (
            f"{1 / point.kappa:,.0f}",
            *(f"{f:.2f}" for pair in zip(point.validation, point.test, strict=True) for f in pair),
        )
        for point in points
    ]
    best = [max(points, key=lambda point: point.validation[i]) for i in range(len(METHODS))]
    chosen = [
        cell
        for i, point in enumerate(best)
        for cell in (f"c = {1 / point.kappa:,.0f}", f"{point.test[i]:.2f}")
    ]
    show(settings, f"{title}: macro-F by 1 / c (figure 1), percent", columns, [*rows, ("best", *chosen)])


def _plot(file: Path, found: dict[str, list[Point]]) -> None:
    """Draw a panel for each table: dashed on the validation rows, solid on the test rows."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        note("macro-f: no plot, matplotlib is not installed")
        return
    figure = Figure(figsize=(_PANEL_INCHES * len(found), _PANEL_INCHES), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (title, points) in zip(panels, found.items(), strict=True):
        kappas = [point.kappa for point in points]
        for i, method in enumerate(METHODS):
            color = f"C{i}"
            axes.plot(kappas, [point.test[i] for point in points], color=color, marker=".", label=method)
            axes.plot(kappas, [point.validation[i] for point in points], color=color, linestyle="--")
        axes.set(title=title, xscale="log", xlabel="1 / c", ylabel="macro-F, percent")
        axes.grid(alpha=0.3)
    panels[0].legend()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.hashsalt": "macro-f", "svg.fonttype": "none"}):  # the same bytes each time
        figure.savefig(file, format="svg", metadata=nothing)
    note(f"macro-f: plotted in {file}")
