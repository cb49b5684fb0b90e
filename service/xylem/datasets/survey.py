"""Count rows as they are read, in one pass, and report what was understood of them.

A command sees the reports of all files that it reads: `collect_reports`.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from xylem.base import DataReport, LabelRows
from xylem.datasets.findings import CHECKS, IDS_FROM_ONE, ONE_A_ROW
from xylem.datasets.stream import DataFile
from xylem_store import I32, I64

EXAMPLES = 3  # how many of the most frequent labels a report has

# How many rows are compared with each other, from the first: to hash all texts would take a good
# part of the time in which they are read.
SAMPLE_ROWS = 5000

SCRIPT_ROWS = 200  # of how many rows of a part the script is looked at, spread evenly

# A script of fewer rows is not reported: names and quotations are often in another one.
SCRIPT_SHARE_LEAST = 0.02

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


class Survey:
    """What was counted of the rows so far; ids of labels are those that the reader gives.

    n_rows        how many
    n_blank       how many of them have an empty or a blank text; whoever adds rows counts them
    n_lacking     how many lack a text in each of their fields; whoever joins fields counts them
    has_texts     whether rows are texts
    weight        the sum of the weights of rows; None: they have none
    sizes         int64[n], how many rows have i labels
    label_rows    int64[n], how many rows have label i
    first_places  int64[n], the number of the first row of label i, for `file.place`; -1: none
    lengths       how many labels rows list: one number if all list as many, else some
    """

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self.n_rows = self.n_blank = 0
        self.has_texts = False
        self.n_lacking: Counter[str] = Counter()
        self.weight: float | None = None
        self.sizes: I64 = np.zeros(1, np.int64)
        self.label_rows: I64 = np.zeros(0, np.int64)
        self.first_places: I64 = np.zeros(0, np.int64)
        self.lengths: set[int] = set()
        self._hashes: list[tuple[int, int]] = []
        self._scripts: Counter[str] = Counter()

    def add(
        self,
        labels: LabelRows,
        texts: Sequence[str] | None = None,
        places: I64 | None = None,
        lengths: I32 | None = None,
    ) -> None:
        """Count the rows of a part.

        places   int64[n], the numbers of the rows, ascending; None: they count from 1
        lengths  int32[n], how many labels each row lists, also repeated ones
        """
        n_rows = labels.n_rows
        if labels.weights is not None:
            self.weight = (self.weight or 0.0) + float(labels.weights.rows.sum(dtype=np.float64))
        counts = np.diff(labels.indptr)
        if places is None:
            places = np.arange(self.n_rows + 1, self.n_rows + n_rows + 1, dtype=np.int64)
        self.sizes = _sum(self.sizes, np.bincount(counts))
        n_before = len(self.label_rows)
        self.label_rows = _sum(self.label_rows, np.bincount(labels.indices))
        grown = np.pad(self.first_places, (0, len(self.label_rows) - n_before), constant_values=-1)
        indices, places_of_labels = labels.indices, np.repeat(places, counts)
        if n_before:
            is_new = grown[indices] < 0
            indices, places_of_labels = indices[is_new], places_of_labels[is_new]
        # of several rows of a label the last one that is assigned stays: the first one
        grown[indices[::-1]] = places_of_labels[::-1]
        self.first_places = grown
        if lengths is not None:
            self.lengths |= {int(lengths.min()), int(lengths.max())}
        self.n_rows += n_rows
        if texts is not None:
            self._add_texts(texts, labels, counts)

    def _add_texts(self, texts: Sequence[str], labels: LabelRows, counts: I64) -> None:
        self.has_texts = True
        for text in texts[:: max(1, len(texts) // SCRIPT_ROWS)]:
            letter = next((character for character in text if character.isalpha()), "")
            self._scripts[unicodedata.name(letter, "").partition(" ")[0] if letter else ""] += 1
        n_sampled = min(len(texts), SAMPLE_ROWS - len(self._hashes))
        n_labels = int(labels.indptr[n_sampled])
        if n_labels <= ONE_A_ROW * n_sampled:  # else the rows are no pairs of a text and a label
            first_labels = np.full(n_sampled, -1, np.int32)
            rows = np.repeat(np.arange(n_sampled), counts[:n_sampled])
            first_labels[rows] = labels.indices[:n_labels]
            self._hashes += zip(map(hash, texts[:n_sampled]), first_labels.tolist(), strict=True)

    @property
    def n_sampled(self) -> int:
        """Return how many rows were compared with each other."""
        return len(self._hashes)

    @property
    def n_repeated(self) -> int:
        """Return how many of the sampled rows have the text of an earlier one, and other labels."""
        return len(set(self._hashes)) - len({text for text, _ in self._hashes})

    @property
    def n_labelled(self) -> int:
        """Return how many rows have a label."""
        return self.n_rows - int(self.sizes[0])

    def report(self, source: str, names: Sequence[str] | None) -> DataReport:
        """Return the report, and hand it to those who collect reports.

        source  the file's base name
        names   of the labels by their ids; None: they have no names
        """
        half = np.searchsorted(
            np.cumsum(self.sizes), [(self.n_rows + 1) // 2, self.n_rows // 2 + 1]
        )
        frequent = np.argsort(-self.label_rows, kind="stable")[:EXAMPLES].tolist()
        findings = [*self.file.findings]
        if names is not None:
            for check in CHECKS:
                if not any(finding.severity == "refused" for finding in findings):
                    findings += check(self, names)
        elif self.file.kind == ".svm" and list(self.label_rows[:2] > 0) == [False, True]:
            findings.append(IDS_FROM_ONE)
        report = DataReport(
            source=source,
            rows=self.n_rows,
            without_text=self.n_blank if self.has_texts else None,
            without_labels=int(self.sizes[0]),
            labels=int(np.count_nonzero(self.label_rows)),
            median=float(half.mean()),
            largest=int(np.flatnonzero(self.sizes).max(initial=0)),
            examples=tuple(
                (
                    names[i] if names else str(i),
                    int(self.label_rows[i]),
                    self.file.place(int(self.first_places[i])),
                )
                for i in frequent
                if self.label_rows[i]
            ),
            scripts=self._script_shares(),
            options=tuple(self.file.options),
            findings=findings,
            without_fields={name: n for name, n in self.n_lacking.items() if n},
            weight=self.weight,
        )
        collected = _reports.get()
        if collected is not None and report not in collected:
            collected.append(report)
        return report

    def _script_shares(self) -> dict[str, float]:
        counts = {script: n for script, n in self._scripts.most_common() if script}
        total = sum(counts.values())
        shares = {
            script.lower(): round(n / total, 3)
            for script, n in counts.items()
            if n >= SCRIPT_SHARE_LEAST * total
        }
        return shares if len(shares) > 1 else {}


def refuse(file: DataFile, report: DataReport | None, *, strict: bool) -> None:
    """Raise BadData for a finding that is refused; with `strict` for the first one."""
    for finding in report.findings if report else ():
        if finding.severity == "refused" or strict:
            raise file.fault(None, str(finding))


def _sum(sums: I64, increments: I64) -> I64:
    """Return the sum of two arrays, the shorter one continued with zeros."""
    n = max(len(sums), len(increments))
    return np.pad(sums, (0, n - len(sums))) + np.pad(increments, (0, n - len(increments)))
