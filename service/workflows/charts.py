"""Reports of versions and evaluations as pictures. matplotlib, an extra, is imported when they are drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.base.errors import BadInput
from service.evaluation.kept_figures import Band
from service.evaluation.ranking import KS
from service.evaluation.reliability import ReliabilityBin, ThresholdPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_SIZE_INCHES = (7.0, 4.5)
_DPI = 120


def draw_report(report: dict[str, Any], title: str, out: Path) -> list[Path]:
    """Draw what a report has into PNG files of a directory; return them.

    Decision trees: criteria.png and error.png (against the number of splits), objective.png (J, balance and
    purity by depth). Label trees: features.png and alpha.png (features used by depth, and the ratio to the
    depth above). Raises BadInput without matplotlib, and where there can be no such directory.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fault = f"{out}: expected a directory, or a place to make one, found: {error.strerror}"
        raise BadInput(fault) from error
    drawn = []
    forest, size = report.get("forest"), report.get("size")
    if forest:
        splits, depths = forest["splits"], forest["depths"]
        criteria = ["shannon", "gini", "modified_gini"]
        drawn.append(_lines(out / "criteria.png", title, splits, "splits", criteria, "entropy of the leaves"))
        errors = ["error", *(["test_error"] if "test_error" in splits[0] else [])]
        drawn.append(
            _lines(out / "error.png", title, splits, "splits", errors, "share of labels not answered")
        )
        if depths:
            names = ["objective", "smaller_side", "purity"]
            drawn.append(_lines(out / "objective.png", title, depths, "depth", names, "mean over splits"))
    if size:
        depths = size["depths"]
        drawn.append(_lines(out / "features.png", title, depths, "depth", ["features_mean"], "features"))
        deeper = [line for line in size["depths"] if "alpha" in line]
        if deeper:
            drawn.append(_lines(out / "alpha.png", title, deeper, "depth", ["alpha"], "alpha"))
    return drawn


def new_chart() -> tuple[Figure, Axes]:
    """Return an empty figure and its axes. Raises BadInput without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput(
            f"expected matplotlib to draw with (pip install xylem-serve[report]), found none: {error}"
        ) from error
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    return figure, figure.subplots()


def _lines(
    file: Path, title: str, points: Sequence[dict[str, float]], x: str, names: Sequence[str], y: str
) -> Path:
    figure, axes = new_chart()
    for name in names:
        values = [point[name] for point in points]
        axes.plot([point[x] for point in points], values, marker=".", label=name.replace("_", " "))
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)
    return file


_MARKED_PERCENT = (10, 30, 50, 70, 90)
"""So many hundredths are the thresholds that the curve names."""


def draw_bands(bands: Sequence[Band]) -> str:
    """Return P@k of each band as an SVG element. Raises BadInput without matplotlib."""
    figure, axes = new_chart()
    width = 0.8 / len(KS)
    for i, k in enumerate(KS):
        shares = [float(band[f"P@{k}"] or 0.0) for band in bands]
        axes.bar([place + (i - 1) * width for place in range(len(bands))], shares, width, label=f"P@{k}")
    axes.set_xticks(range(len(bands)), [str(band["band"]) for band in bands])
    axes.set(xlabel="training rows of the label", ylabel="percent", ylim=(0, 100))
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    return _svg(figure, "bands")


def draw_reliability(bins: Sequence[ReliabilityBin]) -> str:
    """Return the reliability diagram as an SVG element. Raises BadInput without matplotlib."""
    figure, axes = new_chart()
    low, width = [each.low for each in bins], [each.high - each.low for each in bins]
    axes.bar(low, [each.share_true for each in bins], width, align="edge", alpha=0.4, label="share true")
    means, shares = [each.mean_score for each in bins], [each.share_true for each in bins]
    axes.plot(means, shares, marker="o", label="share true at the mean score")
    axes.plot([0, 1], [0, 1], linestyle="--", color="grey", label="scores that are probabilities")
    axes.set(xlabel="score", ylabel="share of labels that are true", xlim=(0, 1), ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    return _svg(figure, "reliability")


def draw_sweep(points: Sequence[ThresholdPoint]) -> str:
    """Return precision against recall, some thresholds named, as an SVG element.

    Raises BadInput without matplotlib.
    """
    figure, axes = new_chart()
    known = [(point, point.precision) for point in points if point.precision is not None]
    axes.plot([point.recall for point, _ in known], [precision for _, precision in known], marker=".")
    for point, precision in known:
        if round(100 * point.threshold) in _MARKED_PERCENT:
            axes.annotate(f"{point.threshold:.1f}", (point.recall, precision))
    axes.set(xlabel="recall, percent", ylabel="precision, percent", xlim=(0, 100), ylim=(0, 100))
    axes.grid(alpha=0.3)
    return _svg(figure, "sweep")


def _svg(figure: Figure, salt: str) -> str:
    """Return a figure as an SVG element: the same bytes each time, text as text, nothing from elsewhere."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):  # the salt keeps ids of figures apart
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    return text[text.index("<svg") :]
