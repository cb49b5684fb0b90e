"""The table of an evaluation's labels, a line a label: .csv, .tsv or .jsonl."""

import codecs
import csv
from collections.abc import Iterable
from pathlib import Path

import orjson

from xylem.base import BadParameter, unfinished
from xylem.workflows.evaluate import Evaluation
from xylem_store import NameTable, name_of

# The columns of a table of labels; shares are in percent.
#
# Precision and recall of nothing are empty (null in .jsonl), and so is F of a label that is never
# true nor predicted.
TABLE_COLUMNS = ("label", "support", "hits", "precision", "recall", "F", "threshold")

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl")

# The values of TABLE_COLUMNS for a label.
LabelLine = tuple[str, int, int, float | None, float | None, float | None, float]


def label_lines(
    names: NameTable, evaluation: Evaluation, labels: Iterable[int] | None = None
) -> Iterable[LabelLine]:
    """Yield the values of TABLE_COLUMNS for each label by its id, or only for `labels`."""
    for i in range(names.n_names) if labels is None else labels:
        support, hits, predicted = (int(column[i]) for column in evaluation.counts)
        yield (
            name_of(names, i),
            support,
            hits,
            _percent(hits, predicted),
            _percent(hits, support),
            _percent(2 * hits, support + predicted),
            float(str(evaluation.thresholds[i])),  # the fewest digits that identify the float32
        )


def check_table_file(file: Path) -> None:
    """Check the file of a table before anything is measured.

    Raises BadParameter for a file that cannot be written.
    """
    if file.suffix not in TABLE_SUFFIXES:
        raise BadParameter(
            f"--per-label: expected a file {' or '.join(TABLE_SUFFIXES)}, found {file.name!r}"
        )
    if file.is_dir() or not file.parent.is_dir():
        raise BadParameter(
            "--per-label: expected a file in a directory that is there, found "
            f"{'a directory' if file.is_dir() else 'no such directory'}: {file}"
        )


def write_label_table(file: Path, lines: Iterable[LabelLine]) -> None:
    """Write lines in the format of the file's suffix. Raises OSError.

    The file is written whole or not at all.
    """
    with unfinished(file) as out:
        if file.suffix == ".jsonl":
            out.writelines(
                orjson.dumps(dict(zip(TABLE_COLUMNS, line, strict=True))) + b"\n" for line in lines
            )
        else:
            writer = csv.writer(
                codecs.getwriter("utf-8")(out),
                delimiter="," if file.suffix == ".csv" else "\t",
                lineterminator="\n",
            )
            writer.writerow(TABLE_COLUMNS)
            writer.writerows((plain_cell(name), *figures) for name, *figures in lines)


def plain_cell(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula.

    A ' is put before it, as OWASP advises.
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _percent(part: int, total: int) -> float | None:
    return round(100.0 * part / total, 4) if total else None
