"""Draw reports of versions and evaluations as pictures, and write them as a page of HTML.

matplotlib is imported only when something is drawn.
"""

import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xylem.base import BadInput
from xylem.evaluation import KS, ReliabilityBin, ThresholdPoint
from xylem.workflows import TABLE_COLUMNS, Band, Evaluation, label_lines, list_unknown
from xylem_store import NameTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_report(report: dict[str, Any], title: str, out: Path) -> list[Path]:
    """Draw the parts of a report as PNG files in a directory; return the files.

    Decision trees: criteria.png and error.png (against the number of splits), objective.png (J,
    balance and purity by depth). Learned trees: updates.png (at each update, J of the first levels
    as a share of J*, and the share of labels that the update moved: Jernite et al. 2017, section
    5). Label trees: features.png and alpha.png (features used by depth, and the ratio to the depth
    above). Raises BadInput if the directory cannot be made.
    """
    make_directory(out)
    charts: list[tuple[str, list[dict[str, float]], str, list[str], str]] = []
    if forest := report.get("forest"):
        splits = forest["splits"]
        errors = [name for name in ("error", "test_error") if name in splits[0]]
        charts += [
            (
                "criteria",
                splits,
                "splits",
                ["shannon", "gini", "modified_gini"],
                "entropy of the leaves",
            ),
            ("error", splits, "splits", errors, "share of labels not answered"),
            (
                "objective",
                forest["depths"],
                "depth",
                ["objective", "smaller_side", "purity"],
                "mean over splits",
            ),
        ]
    if updates := report.get("training", {}).get("updates"):
        points, names = _points_of(updates)
        charts.append(("updates", points, "rows", names, "share of J*; of labels"))
    if size := report.get("size"):
        deeper = [line for line in size["depths"] if "alpha" in line]
        charts += [
            ("features", size["depths"], "depth", ["features_mean"], "features"),
            ("alpha", deeper, "depth", ["alpha"], "alpha"),
        ]
    drawn = []
    for name, points, x, names, y in charts:
        if not points:
            continue
        figure, axes = new_chart()
        for curve in names:
            axes.plot(
                [point[x] for point in points],
                [point[curve] for point in points],
                marker=".",
                label=curve.replace("_", " "),
            )
        axes.set(title=title, xlabel=x, ylabel=y)
        axes.grid(alpha=0.3)
        axes.legend()
        drawn.append(out / f"{name}.png")
        figure.savefig(drawn[-1])
    return drawn


def make_directory(out: Path) -> None:
    """Make the directory of a page or of pictures if it does not exist. Raises BadInput."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"{out}: expected a directory, or a place to make one, found: {error.strerror}"
        ) from error


def _points_of(updates: list[dict[str, Any]]) -> tuple[list[dict[str, float]], list[str]]:
    """Return the points of a learned tree's curves, and the names of the curves.

    A level that does not exist yet is nan.
    """
    n_levels = min(3, max(len(update["levels"]) for update in updates))
    names = [f"J, level {level}" for level in range(n_levels)]
    points = []
    for update in updates:
        shares = [line["share"] for line in update["levels"]] + [np.nan] * n_levels
        points.append(
            {
                "rows": update["rows"],
                **dict(zip(names, shares, strict=False)),
                "labels moved": update["share_moved"],
            }
        )
    return points, [*names, "labels moved"]


def new_chart() -> "tuple[Figure, Axes]":
    """Return an empty figure and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), dpi=120, layout="constrained")  # inches
    return figure, figure.subplots()


def draw_bands(bands: Sequence[Band]) -> str:
    """Return P@k of each band as an SVG element."""
    figure, axes = new_chart()
    width = 0.8 / len(KS)
    for i, k in enumerate(KS):
        axes.bar(
            [place + (i - 1) * width for place in range(len(bands))],
            [float(band[f"P@{k}"] or 0.0) for band in bands],
            width,
            label=f"P@{k}",
        )
    axes.set_xticks(range(len(bands)), [str(band["band"]) for band in bands])
    axes.set(xlabel="training rows of the label", ylabel="percent", ylim=(0, 100))
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    return _svg(figure, "bands")


def draw_reliability(bins: Sequence[ReliabilityBin]) -> str:
    """Return the reliability diagram as an SVG element."""
    figure, axes = new_chart()
    axes.bar(
        [reliability_bin.low for reliability_bin in bins],
        [reliability_bin.share_true for reliability_bin in bins],
        [reliability_bin.high - reliability_bin.low for reliability_bin in bins],
        align="edge",
        alpha=0.4,
        label="share true",
    )
    axes.plot(
        [reliability_bin.mean_score for reliability_bin in bins],
        [reliability_bin.share_true for reliability_bin in bins],
        marker="o",
        label="share true at the mean score",
    )
    axes.plot([0, 1], [0, 1], linestyle="--", color="grey", label="scores that are probabilities")
    axes.set(xlabel="score", ylabel="share of labels that are true", xlim=(0, 1), ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    return _svg(figure, "reliability")


def draw_sweep(points: Sequence[ThresholdPoint]) -> str:
    """Return a curve of precision against recall, with some thresholds named, as an SVG element."""
    figure, axes = new_chart()
    measured = [(point, point.precision) for point in points if point.precision is not None]
    axes.plot(
        [point.recall for point, _ in measured],
        [precision for _, precision in measured],
        marker=".",
    )
    for point, precision in measured:
        if round(100 * point.threshold) in (10, 30, 50, 70, 90):
            axes.annotate(f"{point.threshold:.1f}", (point.recall, precision))
    axes.set(xlabel="recall, percent", ylabel="precision, percent", xlim=(0, 100), ylim=(0, 100))
    axes.grid(alpha=0.3)
    return _svg(figure, "sweep")


def _svg(figure: "Figure", salt: str) -> str:
    """Return a figure as an SVG element, with the same bytes each time.

    Text stays text, and nothing is loaded from elsewhere.
    """
    from matplotlib import rc_context

    out = io.StringIO()
    # the salt keeps the ids of several figures on a page distinct
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(
            out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    text = out.getvalue()
    return text[text.index("<svg") :]


FILE_NAME = "report.html"

LABELS_MAX = 50  # at most this many labels are listed: those with the most wrong decisions

_RANKINGS = ("P", "nDCG", "PSP", "PSnDCG")

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ border-bottom: 1px solid #ccc; padding: .2rem .8rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; overflow-wrap: anywhere; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>{title}</h1>
"""


class PageSubject(NamedTuple):
    """The subject of a page: a version, the names of its labels, and the file of the figures."""

    version: str
    data: str
    names: NameTable


def write_page(directory: Path, subject: PageSubject, evaluation: Evaluation) -> Path:
    """Write the page into a directory; return its file. Raises OSError."""
    file = directory / FILE_NAME
    file.write_text(page_of(subject, evaluation), encoding="utf-8")
    return file


def page_of(subject: PageSubject, evaluation: Evaluation) -> str:
    """Return the page. Names of labels, files and models are escaped, whatever they contain."""
    report = evaluation.report
    threshold_text = (
        "the tuned thresholds"
        if report["threshold"] == "tuned"
        else f"a threshold of {report['threshold']}"
    )
    bands = ["<p>Nobody knows how often the labels of this version occurred in training.</p>"]
    if band_figures := report["bands"]:
        bands = [
            draw_bands(band_figures),
            _table(list(band_figures[0]), [tuple(band.values()) for band in band_figures]),
        ]
    reliability = ["<p>Nothing was predicted.</p>"]
    error = report["calibration_error"]
    if error is not None:
        reliability = [
            "<p>The expected calibration error of the first five labels of each row is "
            f"{error:.3f}: so far are score and share of true labels apart, on average.</p>",
            draw_reliability(evaluation.reliability),
            _table(
                ("score", "labels", "mean score", "share true"),
                [
                    (
                        f"{reliability_bin.low:.2f} to {reliability_bin.high:.2f}",
                        *reliability_bin[2:],
                    )
                    for reliability_bin in evaluation.reliability
                ],
            ),
        ]
    unknown = list_unknown(report)
    macro_note = (
        "In macro-F a label that is never true nor predicted counts as "
        f"{report['empty_label_convention']}"
    )
    macro_note += (
        f"; those that the model does not know count as zero: {unknown}" if unknown else "."
    )
    n_wrong = evaluation.counts.support + evaluation.counts.predicted - 2 * evaluation.counts.hits
    worst = [
        label
        for label in np.argsort(-n_wrong, kind="stable")[:LABELS_MAX].tolist()
        if n_wrong[label] > 0
    ]
    parts = [
        _HEAD.format(title=escape(f"{subject.version} on {subject.data}")),
        f"<p>{report['rows']:,} rows. Shares are in percent; labels are decided at "
        f"{escape(threshold_text)}.</p>",
        _table(
            ("", *(f"@{k}" for k in KS)),
            [(m, *(report[f"{m}@{k}"] for k in KS)) for m in _RANKINGS],
        ),
        _table(
            ("macro-F", "micro-F", "instance-F", "recall@5"),
            [tuple(report[key] for key in ("macro_f", "micro_f", "instance_f", "R@5"))],
        ),
        f"<p>{escape(macro_note)}</p>",
        *([f"<p>{escape(report['note'])}</p>"] if "note" in report else []),
        "<h2>By frequency of the labels</h2>",
        *bands,
        "<h2>Scores against the share of true labels</h2>",
        *reliability,
        "<h2>Precision against recall, one threshold for all labels</h2>",
        draw_sweep(evaluation.sweep),
        "<h2>Labels by which the most decisions went wrong</h2>",
        _table(TABLE_COLUMNS, label_lines(subject.names, evaluation, worst)),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [
        "<table>",
        f"<tr>{''.join(f'<th>{_cell(head)}</th>' for head in heads)}</tr>",
        *(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows),
        "</table>",
    ]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return escape(f"{value:,.2f}" if isinstance(value, float) else str(value))
