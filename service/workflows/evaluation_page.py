"""An evaluation as files: a page of HTML without a script, and a table with a line a label."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from model_store.names import NameTable, name_of
from service.base.errors import BadInput, BadParameter
from service.evaluation.ranking import KS
from service.workflows.charts import draw_bands, draw_reliability, draw_sweep, new_chart
from service.workflows.evaluate import Evaluation, list_unknown

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


def prepare_files(table: Path | None, page: Path | None) -> None:
    """Make the directory of a page. Raises BadInput where a file cannot be written: before it is measured."""
    if table is not None:
        check_label_table(table)
    if page is None:
        return
    new_chart()
    try:
        page.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"--report: expected a directory, or a place to make one, found: {error.strerror}: {page}"
        ) from error


def write_files(
    table: Path | None, page: Path | None, subject: PageSubject, evaluation: Evaluation
) -> dict[str, str]:
    """Write the files that are wanted; return their names, by what they are. Raises as `write_page`."""
    written: dict[str, str] = {}
    if table is not None:
        write_label_table(table, label_lines(subject.names, evaluation))
        written["per_label"] = str(table)
    if page is not None:
        written["report"] = str(write_page(page, subject, evaluation))
    return written


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
    lines = ["<table>", f"<tr>{''.join(f'<th>{_cell(head)}</th>' for head in heads)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return escape(f"{value:,.2f}" if isinstance(value, float) else str(value))


COLUMNS = ("label", "support", "hits", "precision", "recall", "F", "threshold")
"""In percent. Precision and recall of nothing are empty (null in .jsonl), and F of a label never true nor
predicted."""

SUFFIXES = (".csv", ".tsv", ".jsonl")
_PERCENT_DIGITS = 4

LabelLine = tuple[str, int, int, float | None, float | None, float | None, float]
"""The values of COLUMNS for a label."""


def check_label_table(file: Path) -> None:
    """Raise BadParameter where no such file can be written: before anything is measured."""
    if file.suffix not in SUFFIXES:
        raise BadParameter(f"--per-label: expected a file {' or '.join(SUFFIXES)}, found {file.name!r}")
    if file.is_dir() or not file.parent.is_dir():
        found = "a directory" if file.is_dir() else "no such directory"
        raise BadParameter(
            f"--per-label: expected a file in a directory that is there, found {found}: {file}"
        )


def label_lines(
    names: NameTable, evaluation: Evaluation, labels: Iterable[int] | None = None
) -> Iterable[LabelLine]:
    """Yield the values of COLUMNS for each label by its id, or for those asked for."""
    counts, thresholds = evaluation.counts, evaluation.thresholds
    for i in range(names.n_names) if labels is None else labels:
        support, hits, predicted = (int(column[i]) for column in counts)
        yield (
            name_of(names, i),
            support,
            hits,
            _percent(hits, predicted),
            _percent(hits, support),
            _percent(2 * hits, support + predicted),
            float(str(thresholds[i])),  # the fewest digits that say which float32 it is
        )


def write_label_table(file: Path, lines: Iterable[LabelLine]) -> None:
    """Write lines in the format of the suffix; the file is there whole or not at all. Raises OSError."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        if file.suffix == ".jsonl":
            with unfinished.open("wb") as out:
                out.writelines(orjson.dumps(dict(zip(COLUMNS, line, strict=True))) + b"\n" for line in lines)
        else:
            with unfinished.open("w", encoding="utf-8", newline="") as table:
                delimiter = "," if file.suffix == ".csv" else "\t"
                writer = csv.writer(table, delimiter=delimiter, lineterminator="\n")
                writer.writerow(COLUMNS)
                writer.writerows(lines)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _percent(part: int, whole: int) -> float | None:
    return round(100.0 * part / whole, _PERCENT_DIGITS) if whole else None
