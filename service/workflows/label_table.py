"""How each label fares, as a file: a line a label."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import orjson

from model_store.names import NameTable, name_of
from service.base.errors import BadParameter
from service.workflows.evaluate import Evaluation

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
