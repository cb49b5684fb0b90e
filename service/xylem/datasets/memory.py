"""Labels of rows in memory become a data set, as those of a file do."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import BadData, Dataset, LabelRows
from xylem.datasets.data_reports import refuse, report_of
from xylem.datasets.dataset import first_labels
from xylem.datasets.json_lines import RowCollector
from xylem.datasets.stream import DataFile
from xylem.datasets.survey import Survey
from xylem_store import NameTable

SOURCE = "python"  # the source of the data in a version's origin; for a file it is the file's name


class _Memory(DataFile):
    """The source of rows in memory: its errors name the row, from 0."""

    def __init__(self) -> None:
        super().__init__(Path(SOURCE))

    def fault(self, line: int | None, message: str) -> BadData:
        """Return an error that names the row."""
        return BadData(message if line is None else f"row {line}: {message}")


def dataset_in_memory(
    labels: LabelRows | Sequence[Any],
    model: NameTable | None,
    texts: list[str] | None,
    named_rows: list[dict[str, float]] | None,
) -> Dataset:
    """Return labels with the texts or the named features of their rows, as `read_dataset` does.

    labels      the names of each row's labels, in a list or with weights in a dictionary; or ids,
                whose names are their numbers
    model       the label names of an existing model
    texts       a text for each row; None: the rows are no texts
    named_rows  the values by feature name of each row; None: they have other features, which the
                caller adds, as it adds the digest

    Raises BadData, which names the row, from 0.
    """
    file = _Memory()
    if isinstance(labels, LabelRows):
        return _dataset_of_ids(Survey(file), labels, model, texts=texts, named_rows=named_rows)
    collector = RowCollector(file)
    for number, names in enumerate(labels):
        if texts is not None:
            collector.add_text(number, texts[number], names)
        else:
            collector.add_named(number, named_rows[number] if named_rows else {}, names)
    dataset = collector.finish(model, SOURCE)
    refuse(file, dataset.report, strict=False)
    return replace(dataset, named_rows=named_rows)


def _dataset_of_ids(
    survey: Survey,
    labels: LabelRows,
    model: NameTable | None,
    *,
    texts: list[str] | None,
    **features: Any,
) -> Dataset:
    if texts is not None:
        survey.n_blank = sum(not text or text.isspace() for text in texts)
    survey.add(labels, texts, np.arange(labels.n_rows, dtype=np.int64))
    unknown = np.zeros(labels.n_rows, np.int32)
    unknown_names = list[str]()
    if model is not None:
        labels, unknown, unknown_names = first_labels(labels, model.n_names)
    return Dataset(
        source=SOURCE,
        sha256="",
        n_rows=labels.n_rows,
        labels=labels,
        unknown_labels=unknown,
        texts=texts,
        label_names=[str(i) for i in range(labels.n_labels)] if model is None else None,
        unknown_names=unknown_names,
        report=report_of(survey, SOURCE, None),
        **features,
    )
