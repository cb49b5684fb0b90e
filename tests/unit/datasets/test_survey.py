"""What is counted of rows, and the memory that it takes."""

import os
from itertools import chain
from pathlib import Path

import numpy as np

from xylem.base.rows import LabelRows
from xylem.datasets.data_reports import report_of
from xylem.datasets.stream import DataFile
from xylem.datasets.survey import Survey

LARGEST_ID = (1 << 28) - 1


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def part(*labels_of_rows: list[int]) -> LabelRows:
    """Return rows with these labels."""
    ptr = np.cumsum([0, *map(len, labels_of_rows)])
    return LabelRows(ptr, np.array(list(chain(*labels_of_rows)), np.int32), LARGEST_ID + 1)


def test_a_label_takes_no_memory_for_those_below_it(tmp_path: Path) -> None:
    """Counts of as many labels as the largest id says would take gigabytes."""
    survey = Survey(DataFile(tmp_path / "a.svm"))
    before = resident_bytes()
    survey.add(part([3], [LARGEST_ID]))
    survey.add(part([2], [], [2, LARGEST_ID], [LARGEST_ID]))
    assert resident_bytes() - before < 64 << 20
    report = report_of(survey, "a.svm", None)
    assert (report.rows, report.without_labels, report.labels) == (6, 1, 3)
    assert (report.median, report.largest) == (1, 2)
    examples = [(label, n_rows, place.row) for label, n_rows, place in report.examples]
    assert examples == [(str(LARGEST_ID), 3, 2), ("2", 2, 3), ("3", 1, 1)]
