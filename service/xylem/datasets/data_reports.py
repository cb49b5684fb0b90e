"""Report what was understood of the rows of a file.

A command sees the reports of all files that it reads: `collect_reports`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from xylem.base import DataReport
from xylem.datasets.findings import CHECKS, IDS_FROM_ONE
from xylem.datasets.stream import DataFile
from xylem.datasets.survey import Survey

EXAMPLES = 3  # how many of the most frequent labels a report has

_reports: ContextVar[list[DataReport] | None] = ContextVar("reports", default=None)


@contextmanager
def collect_reports() -> Iterator[list[DataReport]]:
    """Yield a list that gets the report of each file that is read in the block, each once."""
    reports: list[DataReport] = []
    token = _reports.set(reports)
    try:
        yield reports
    finally:
        _reports.reset(token)


def report_of(survey: Survey, source: str, names: Sequence[str] | None) -> DataReport:
    """Return the report, and hand it to those who collect reports.

    source  the file's base name
    names   of the labels by their ids; None: they have no names
    """
    half = np.searchsorted(
        np.cumsum(survey.sizes), [(survey.n_rows + 1) // 2, survey.n_rows // 2 + 1]
    )
    occurring = np.flatnonzero(survey.label_rows)
    order = np.argsort(-survey.label_rows[occurring], kind="stable")
    findings = [*survey.file.findings]
    if names is not None:
        for check in CHECKS:
            if not any(finding.severity == "refused" for finding in findings):
                findings += check(survey, names)
    elif survey.file.kind == ".svm" and list(survey.label_rows[:2] > 0) == [False, True]:
        findings.append(IDS_FROM_ONE)
    report = DataReport(
        source=source,
        rows=survey.n_rows,
        without_text=survey.n_blank if survey.has_texts else None,
        without_labels=int(survey.sizes[0]),
        labels=len(occurring),
        median=float(half.mean()),
        largest=int(np.flatnonzero(survey.sizes).max(initial=0)),
        examples=tuple(
            (
                names[i] if names else str(i),
                int(survey.label_rows[i]),
                survey.file.place(int(survey.first_places[i])),
            )
            for i in occurring[order[:EXAMPLES]].tolist()
        ),
        scripts=survey.script_shares,
        options=tuple(survey.file.options),
        findings=findings,
        without_fields={name: n for name, n in survey.n_lacking.items() if n},
        weight=survey.weight,
    )
    collected = _reports.get()
    if collected is not None and report not in collected:
        collected.append(report)
    return report


def refuse(file: DataFile, report: DataReport | None, *, strict: bool) -> None:
    """Raise BadData for a finding that is refused; with `strict` for the first one."""
    for finding in report.findings if report else ():
        if finding.severity == "refused" or strict:
            raise file.fault(None, str(finding))
