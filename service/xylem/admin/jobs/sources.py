"""The rows of jobs that train: join files and feedback in one file, and split a file in two."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

import orjson

from xylem import datasets
from xylem.admin.jobs.context import JobContext, WatchedFiles, patiently
from xylem.admin.jobs.requests import VECTOR, CombineJob, FittingJob, HeldOutFeedback
from xylem.base import DEFAULT_COLUMNS, BadData, OnProgress, TableColumns, is_table, plain_name
from xylem.thresholds import FeedbackRows
from xylem_store import learnt_feedback, parse_named

_TELL_EVERY = 10_000


class _WorkFile(NamedTuple):
    """A file of lines that a job writes, and the list of their origins, which errors name."""

    lines: BinaryIO
    origins: TextIO

    def write(self, line: bytes, origin: str) -> None:
        """Write a line, and the file and the line that it comes from."""
        self.lines.write(line)
        self.origins.write(f"{origin}\n")


@contextmanager
def _work_file(path: Path, data: str) -> Iterator[_WorkFile]:
    """Open a file to be written.

    data  what errors that are about no line call it
    """

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as lines, datasets.DataFile(path).origins.open("w") as origins:
        origins.write(f"{data}\n")
        yield _WorkFile(lines, origins)


def split_lines(
    data: Path,
    directory: Path,
    share: float,
    seed: int,
    on_progress: OnProgress,
    columns: TableColumns = DEFAULT_COLUMNS,
) -> tuple[Path, Path]:
    """Write the lines of a file to two files; return the one to train on and the one to measure on.

    Each line is held out with probability `share`, by a generator with this `seed`: the same call
    writes the same files. Rows of a table become JSON lines. The header of a .txt file of numbers
    gets the new number of rows. Lines stay in their order. Raises BadData if one of the two files
    would be empty, or the file has no header.
    """

    name = f"{data.name}.jsonl" if is_table(data) else plain_name(data)
    paths = tuple(directory / part / name for part in ("train", "valid"))
    rng = random.Random(seed)
    counts = [0, 0]
    header = b""
    has_header = name.endswith(".txt") and not datasets.DataFile(data).is_fasttext
    user_data = datasets.DataFile(data).origin(None)
    with _work_file(paths[0], user_data) as train, _work_file(paths[1], user_data) as valid:
        lines = _lines(data, columns, has_header=has_header)
        if has_header:  # after a header, an empty line is a row
            header, origin = next(lines, (b"", ""))
            for file in (train, valid):
                file.write(_header_with(header, 0, data), origin)
        for number, (line, origin) in enumerate(lines):
            part = int(rng.random() < share)
            (train, valid)[part].write(line, origin)
            counts[part] += 1
            if number % _TELL_EVERY == 0:
                on_progress("split", number, 0)
        for file, n_lines in zip((train, valid), counts, strict=True):
            if header:
                file.lines.seek(0)
                file.lines.write(_header_with(header, n_lines, data))
    if not all(counts):
        raise BadData(
            f"{user_data}: expected rows to train on and rows to measure on, found {counts[0]} "
            f"and {counts[1]}: choose another share for split"
        )
    return paths[0], paths[1]


def join_sources(
    context: JobContext, files: WatchedFiles, request: FittingJob, columns: TableColumns
) -> tuple[Path, Path | None]:
    """Write the rows of a job's files and of its feedback to one file of lines.

    Returns that file, and the file of rows to measure on, or None. If the newest rows of feedback
    are to be measured on, these are in the second file only.

    Feedback means the rows that had come when the job was submitted: so a later run of the job has
    the same rows. A combination uses only feedback that came after the trainings of its members had
    read theirs: on rows that a member has learnt, its scores are better than elsewhere. Raises
    BadData if there is no feedback.
    """
    rows = FeedbackRows(context.database, context.settings)
    learnt = [
        learnt_feedback(context.store.open(*parse_named(member)).arrays)
        for member in (request.members if isinstance(request, CombineJob) else [])
    ]
    share = request.valid.feedback if isinstance(request.valid, HeldOutFeedback) else 0.0
    names = [
        Path(entry).name.split(".")[0] if isinstance(entry, str) else "feedback"
        for entry in request.sources
    ]
    directory = context.work / "joined"
    data = directory / f"{'+'.join(names)[:200]}.jsonl"
    held_out = directory / "held-out.jsonl"
    name = ", ".join(
        str(entry) if isinstance(entry, str) else "feedback" for entry in request.sources
    )
    with _work_file(data, name) as fitted, _work_file(held_out, name) as measured:
        for i, source in enumerate(request.sources):
            context.on_progress("join", i, len(request.sources))
            if isinstance(source, str):
                for row in _lines(files.find(source), columns, has_header=False):
                    fitted.write(*row)
                continue
            span = rows.span(source.feedback.model, source.feedback.days, context.job.created)
            learnt_until = max([times.get(span.model, 0.0) for times in learnt], default=0.0)
            span = span._replace(since=max(span.since, learnt_until))
            n = patiently(lambda span=span: rows.count(span))  # type: ignore[misc]
            n_fitted = n - math.ceil(share * n)
            if not n_fitted:
                least = "2 rows" if share else "1 row"
                new = " that no member was trained on" if learnt_until else ""
                raise BadData(
                    f"expected at least {least} of feedback to {span.model}{new}, found "
                    f"{n or 'none'}"
                )
            for number, line in enumerate(rows.lines(span)):
                (fitted if number < n_fitted else measured).write(
                    _with_column(line, columns.vector) + b"\n",
                    f"feedback to {span.model}:{number + 1}",
                )
    return data, held_out if share else None


def _lines(data: Path, columns: TableColumns, *, has_header: bool) -> Iterator[tuple[bytes, str]]:
    """Yield the lines of a file as UTF-8, each with its end, and the origin of each.

    Those of a table are lines of JSON. There are no empty ones, unless there is a header, after
    which an empty line is a row.
    """

    if is_table(data) or columns.vectors_of(data) is not None:
        with datasets.TableLines(data, columns, with_labels=True) as table:
            while line := table.readline():
                if line.strip():
                    yield line, f"{data}:{table.number}"
        return
    file = datasets.DataFile(data)
    file.encoding = columns.encoding
    origins = _origins(file)
    for block in file.lines():
        for line in block.removesuffix(b"\n").split(b"\n"):
            origin = next(origins)
            if has_header or line.strip():
                yield line + b"\n", origin


def _with_column(line: bytes, column: str) -> bytes:
    """Return a row of feedback with its vector, if any, in `column`; unchanged if that is ""."""
    if column in ("", VECTOR):
        return line
    row = orjson.loads(line)
    return orjson.dumps({**row, column: row.get(VECTOR)})


def _origins(file: "datasets.DataFile") -> Iterator[str]:
    """Yield the origin of each line of a file, which the job may have written itself."""
    if file.origins.exists():
        with file.origins.open() as lines:
            yield from map(str.rstrip, islice(lines, 1, None))
    yield from (f"{file.path}:{number}" for number in count(1))


def _header_with(header: bytes, count: int, data: Path) -> bytes:
    """Return the header of a .txt file with another number of rows, and with the same length."""
    fields = header.split()
    if len(fields) != 3:
        raise BadData(f"{data}:1: expected a header of 3 numbers, found {header[:60]!r}")
    return b" ".join([str(count).zfill(len(fields[0])).encode(), *fields[1:]]) + b"\n"
