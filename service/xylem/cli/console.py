"""The output of commands: tables for people, JSON for machines, progress on standard error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from json import dumps
from typing import TYPE_CHECKING, Any

import xylem_store
from xylem import base, datasets

if TYPE_CHECKING:  # rich is imported only where a person is shown something
    from rich.console import Console
    from rich.table import Table


_WIDTH_PIPED = 120


# What the command has understood of the files that it has read, in their order.
_reports: list[base.DataReport] = []


def print_json(value: object) -> None:
    """Print an object as one line: the last line on standard output that `--json` promises.

    It gets `data`, the report of the first file that was read, and the `findings` of all files.
    """
    import orjson

    if _reports and isinstance(value, dict):
        value = {**value, **_reports[0].result_of(_reports)}
        _reports.clear()
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")
    sys.stdout.flush()


def print_summary(json: bool, facts: object, title: str, summary: Mapping[str, object]) -> None:
    """Print the facts with `json`, else a title and a summary of them."""
    if json:
        print_json(facts)
    else:
        print_facts(title, summary)


def print_result(json: bool, line: str, **facts: object) -> None:
    """Print what was done: a line for a person, or with `json` the facts for a machine."""
    if json:
        print_json(facts)
    else:
        print_line(line)


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDTH_PIPED, highlight=False)


def print_line(text: str) -> None:
    """Print a line for a person, without markup; it is not wrapped, so that a file can keep it."""
    _console().print(text, markup=False, soft_wrap=True)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns of numbers are aligned to the right."""
    from rich.table import Table

    table = Table()
    for i, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    _print(title, table)


def print_list(
    json: bool,
    facts: object,
    table: tuple[str, Sequence[str], Sequence[Sequence[object]]],
    nothing: str,
) -> None:
    """Print a list: the facts with `json`, else a table, or `nothing` if the table is empty.

    table  its title, its columns and its rows
    """
    if json:
        print_json(facts)
    elif table[2]:
        print_table(*table)
    else:
        print_line(nothing)


def print_facts(title: str, facts: Mapping[str, object]) -> None:
    """Print names and values, each pair on a line."""
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, cell(value))
    _print(title, table)


def _print(title: str, table: Table) -> None:
    console = _console()
    if title:
        console.print(title, style="bold", markup=False)
    console.print(table, markup=False)


def flat(facts: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return facts in which nested objects are replaced by their own facts.

    The names of these are the path to them, with blanks between.
    """
    leaves: dict[str, object] = {}
    for name, value in facts.items():
        path = f"{prefix} {name}".strip()
        leaves |= flat(value, path) if isinstance(value, dict) else {path: value}
    return leaves


_ROW_CHARACTERS = 200  # how much of the text of a row is shown


def first_rows(dataset: base.Dataset, n_rows: int) -> list[dict[str, Any]]:
    """Return the first rows as they were understood: `text` or `features`, and `labels`."""
    names = dataset.names
    rows = []
    for row in range(min(n_rows, dataset.n_rows)):
        labels = dataset.labels.cut(row, row + 1).indices.tolist()
        if dataset.texts is not None:
            instance: dict[str, Any] = {"text": dataset.texts[row][:_ROW_CHARACTERS]}
        elif dataset.named_rows is not None:
            instance = {"features": dataset.named_rows[row]}
        else:
            assert dataset.rows is not None
            pairs = dataset.rows.cut(row, row + 1)
            values = zip(pairs.indices.tolist(), pairs.values.tolist(), strict=True)
            instance = {"features": {str(feature): value for feature, value in values}}
        rows.append({**instance, "labels": [names[label] for label in labels]})
    return rows


def print_rows(dataset: base.Dataset, n_rows: int) -> None:
    """Print the first rows as they were understood, as a table."""
    print_table(
        "The first rows as they were read",
        ("instance", "labels"),
        [
            (str(row.get("text", row.get("features")))[:_ROW_CHARACTERS], ", ".join(row["labels"]))
            for row in first_rows(dataset, n_rows)
        ],
    )


def cell(value: object) -> str:
    """Return a value as text for people: empty for None, the items of a list with commas."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def as_option(value: object) -> str:
    """Return the value of a parameter in the form that -p takes: true, null, 0.25, a text."""
    if isinstance(value, float):
        return f"{value:g}"
    return dumps(value) if value is None or isinstance(value, bool) else str(value)


def mebibytes(n_bytes: int) -> str:
    """Return a number of bytes as text for people."""
    return f"{n_bytes / 2**20:,.1f} MiB"


@contextmanager
def progress(json: bool) -> Iterator[base.OnProgress]:
    """Show progress bars while the block runs, on a terminal and without `json`.

    Yields the callback that reports progress. At the end it prints what was understood of the files
    that were read in the block; with `json` it is printed with the result.
    """

    if not json:
        _announce_compilation()
    with datasets.collect_reports() as reports:
        try:
            if json or not sys.stderr.isatty():  # then rich need not be imported
                yield lambda phase, done, total: None
            else:
                with base.progress_bar(True) as show:
                    yield show
        except base.BadData:
            # what was understood of a file explains why it is refused for a finding
            _show_reports([report for report in reports if report.findings], json)
            raise
        _show_reports(reports, json)


def _show_reports(reports: list[base.DataReport], json: bool) -> None:
    """Print reports in two lines each, or keep them for `print_json`; complain of warnings."""
    _reports[:] = reports if json else []
    for report in reports:
        if not json:
            for line in report.lines():
                print_line(line)
        for finding in report.findings:
            if finding.severity == "warning":
                complain(f"warning: {report.source}: {finding}")


def _announce_compilation() -> None:
    """Explain why the first command takes long, and let another process compile meanwhile.

    It compiles the kernels of answers, and ends by itself. The process that needs a kernel first
    compiles it, the other one waits for it.
    """

    cache = xylem_store.cache_dir()
    if xylem_store.shipped_dir() is not None or any(cache.rglob("*.nbi")):
        return
    complain(f"the first run compiles the kernels, about a minute; they are kept in {cache}")
    if base.n_processors() > 1:
        nowhere = subprocess.DEVNULL
        subprocess.Popen(
            [sys.executable, "-m", "xylem.warm", "answers"],
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,
        )


def complain(message: str) -> None:
    """Print one line on standard error.

    If that cannot be written, nothing happens: the exit status tells it too.
    """
    line: Any = " ".join(message.split())
    with suppress(OSError):
        sys.stderr.write(f"xylem: {line}\n")
        sys.stderr.flush()
