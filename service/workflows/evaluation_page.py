"""An evaluation as one HTML file: tables and pictures, no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from model_store.names import NameTable
from service.base.errors import BadInput
from service.evaluation.ranking import KS
from service.workflows.charts import new_chart
from service.workflows.evaluate import Evaluation, list_unknown
from service.workflows.evaluation_charts import draw_bands, draw_reliability, draw_sweep
from service.workflows.label_table import COLUMNS, label_lines

FILE_NAME = "report.html"

LABELS_MAX = 50
"""So many labels are listed: those by which the most decisions went wrong."""

_RANKINGS = ("P", "nDCG", "PSP", "PSnDCG")

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
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
    """What a page is about: the version with the names of its labels, and the file it was measured on."""

    version: str
    data: str
    names: NameTable


def prepare_page(out: Path) -> None:
    """Make the directory of a page. Raises BadInput where that cannot be, and without matplotlib."""
    new_chart()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"--report: expected a directory, or a place to make one, found: {error.strerror}: {out}"
        ) from error


def write_page(out: Path, subject: PageSubject, evaluation: Evaluation) -> Path:
    """Write the page of an evaluation, its sweep included, into a directory; return the file.

    Raises BadInput without matplotlib, OSError.
    """
    file = out / FILE_NAME
    file.write_text(page_of(subject, evaluation), encoding="utf-8")
    return file


def page_of(subject: PageSubject, evaluation: Evaluation) -> str:
    """Return the page. Names of labels, files and models are text in it, whatever they hold."""
    report = evaluation.report
    title = f"{subject.version} on {subject.data}"
    at = "the tuned thresholds" if report["threshold"] == "tuned" else f"a threshold of {report['threshold']}"
    parts = [
        _HEAD.format(title=escape(title)),
        f"<p>{report['rows']:,} rows. Shares are in percent; labels are decided at {escape(at)}.</p>",
        _table(("", *(f"@{k}" for k in KS)), [(m, *(report[f"{m}@{k}"] for k in KS)) for m in _RANKINGS]),
        _table(
            ("macro-F", "micro-F", "instance-F", "recall@5"),
            [tuple(report[key] for key in ("macro_f", "micro_f", "instance_f", "R@5"))],
        ),
        f"<p>{escape(_how_macro_f(report))}</p>",
        *([f"<p>{escape(report['note'])}</p>"] if "note" in report else []),
        "<h2>By frequency of the labels</h2>",
        *_bands(evaluation),
        "<h2>Scores against the share of true labels</h2>",
        *_reliability(evaluation),
        "<h2>Precision against recall, one threshold for all labels</h2>",
        draw_sweep(evaluation.sweep),
        "<h2>Labels by which the most decisions went wrong</h2>",
        _table(COLUMNS, label_lines(subject.names, evaluation, _worst(evaluation))),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _how_macro_f(report: dict[str, Any]) -> str:
    """Return what macro-F is the mean of."""
    unknown = list_unknown(report)
    text = f"In macro-F a label that is never true nor predicted counts as {report['empty_label_convention']}"
    return f"{text}; those that the model does not know count as zero: {unknown}" if unknown else f"{text}."


def _bands(evaluation: Evaluation) -> list[str]:
    bands = evaluation.report["bands"]
    if bands is None:
        return ["<p>Nobody knows how often the labels of this version occurred in training.</p>"]
    return [draw_bands(bands), _table(list(bands[0]), [tuple(band.values()) for band in bands])]


def _reliability(evaluation: Evaluation) -> list[str]:
    bins, error = evaluation.reliability, evaluation.report["calibration_error"]
    if error is None:
        return ["<p>Nothing was predicted.</p>"]
    rows = [(f"{each.low:.2f} to {each.high:.2f}", *each[2:]) for each in bins]
    return [
        f"<p>The expected calibration error of the first five labels of each row is {error:.3f}: so far are "
        "score and share of true labels apart, on average.</p>",
        draw_reliability(bins),
        _table(("score", "labels", "mean score", "share true"), rows),
    ]


def _worst(evaluation: Evaluation) -> list[int]:
    """Return the labels with the most misses and false predictions, of equals by id."""
    counts = evaluation.counts
    wrong = counts.support + counts.predicted - 2 * counts.hits
    order = np.argsort(-wrong, kind="stable")[:LABELS_MAX]
    return [int(i) for i in order if wrong[i] > 0]


def _table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; every cell is escaped."""
    lines = ["<table>", f"<tr>{''.join(f'<th>{_cell(head)}</th>' for head in heads)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return escape(f"{value:,.2f}" if isinstance(value, float) else str(value))
