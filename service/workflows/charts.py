"""The report of a version as pictures. matplotlib is imported when they are drawn: it is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.base.errors import BadInput

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
    """Draw named columns of `points` over the column x."""
    figure, axes = new_chart()
    for name in names:
        values = [point[name] for point in points]
        axes.plot([point[x] for point in points], values, marker=".", label=name.replace("_", " "))
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)
    return file
