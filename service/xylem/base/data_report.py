"""What a reader has understood of a data file: counts, frequent labels, and findings."""

import shlex
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Self

from xylem.base.errors import BadData


class RowPlace(NamedTuple):
    """A row, as a user finds it.

    row   the line of a text file, the row of another file from 1, of rows in memory from 0
    file  the name of the file, if several were read; else ""
    """

    row: int
    file: str = ""

    def __str__(self) -> str:
        return f"row {self.row:,}" + (f" of {self.file}" if self.file else "")


class Finding(NamedTuple):
    """A sign that a file means something else than what was read of it.

    code      a name that stays the same; docs/findings.md explains it
    severity  "refused" if nothing else can be meant, else "warning"
    message   a sentence that says where, what was expected and what was found
    place     the row; None: the finding is about no row
    mend      what to do about it, with the option
    """

    code: str
    severity: Literal["refused", "warning"]
    message: str
    place: RowPlace | None
    mend: str

    def about(self, place: RowPlace | None = None, **values: object) -> Self:
        """Return a finding whose message has the place, and values, where this one has braces."""
        return self._replace(message=self.message.format(place=place, **values), place=place)

    def as_json(self) -> dict[str, Any]:
        """Return an item of `findings` in reports."""
        return {
            "code": self.code,
            "message": self.message,
            "row": self.place and self.place.row,
            "file": (self.place and self.place.file) or None,
            "mend": self.mend,
        }

    def __str__(self) -> str:
        return f"{self.message}. {self.mend} ({self.code})"


class DataReport(NamedTuple):
    """What was read of a file.

    source           the file's base name
    rows             how many
    without_text     rows whose text is empty or blank; None if the rows are no texts
    without_labels   rows that have no label
    labels           distinct labels that occur
    median, largest  labels a row
    examples         the most frequent labels: each with the number of its rows, and the first row
    scripts          the share of each script in a sample of the texts, if there are several
    options          how a table was read, as options of commands; empty for other files
    findings         of the checks; workflows add theirs
    without_fields   rows in which a column of text is empty or missing, by its name
    weight           the sum of the weights of the rows; None: they have none
    """

    source: str
    rows: int
    without_text: int | None
    without_labels: int
    labels: int
    median: float
    largest: int
    examples: tuple[tuple[str, int, RowPlace], ...]
    scripts: dict[str, float]
    options: tuple[str, ...]
    findings: list[Finding]
    without_fields: dict[str, int]
    weight: float | None = None

    def note(self, finding: Finding, *, strict: bool = False) -> None:
        """Add a finding of a workflow. Raises BadData if findings are refused."""
        self.findings.append(finding)
        if strict:
            raise BadData(f"{self.source}: {finding}")

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `data` in reports."""
        return {
            "source": self.source,
            "rows": self.rows,
            **({} if self.weight is None else {"weight": self.weight}),
            "without_text": self.without_text,
            "without_labels": self.without_labels,
            "labels": self.labels,
            "labels_a_row": {"median": self.median, "most": self.largest},
            "examples": [
                {"label": label, "rows": rows, "row": place.row, "file": place.file or None}
                for label, rows, place in self.examples
            ],
            "scripts": self.scripts,
            "options": list(self.options),
            "without_fields": self.without_fields,
        }

    @classmethod
    def result_of(cls, reports: Iterable[Self | None]) -> dict[str, Any]:
        """Return `data` of the first report, and the `findings` of all, for a result."""
        counted = [report for report in reports if report is not None]
        return (
            {
                "data": counted[0].as_json(),
                "findings": [
                    finding.as_json() for report in counted for finding in report.findings
                ],
            }
            if counted
            else {}
        )

    def lines(self) -> tuple[str, str]:
        """Return the report as two lines for people."""
        lacking = [
            f"{count:,} without {part}"
            for part, count in (
                ("text", self.without_text),
                *self.without_fields.items(),
                ("labels", self.without_labels),
            )
            if count
        ]
        scripts = (f"{100 * share:.0f} % {name}" for name, share in self.scripts.items())
        weight = "" if self.weight is None else f" of weight {self.weight:,.10g}"
        first = ", ".join(
            [
                f"{self.source}: {self.rows:,} rows{weight}",
                *lacking,
                f"{self.labels:,} labels, {self.median:g} a row (the most: {self.largest:,})",
                *scripts,
            ]
        )
        examples = ", ".join(
            f"{label!r:.60} ({rows:,}, {place})" for label, rows, place in self.examples
        )
        options = f"; read with {shlex.join(self.options)}" if self.options else ""
        return first, f"  most frequent: {examples or 'none'}{options}"
