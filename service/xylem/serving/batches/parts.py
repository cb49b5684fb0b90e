"""Batches that are answered into files: each step answers one part of the data.

A step runs on this machine, or on a node of a cluster. The file of a part's answers is complete or
does not exist. `_plan.json` beside the files describes the batch, so that a second run makes only
the missing files, and only for the same batch.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from xylem.base import (
    JSON_LINES,
    BadData,
    BadParameter,
    Crew,
    Limits,
    TableColumns,
    absolute,
    faults_of,
    file_path,
    is_table,
    n_bytes_of,
    names_in,
    one_step,
    plain_name,
    whole_file,
)
from xylem.datasets import DataFile, find_files, kind_of
from xylem.serving.batches.answer_table import answer_table
from xylem.serving.batches.blocks import answers_of
from xylem.serving.batches.line_files import blocks_of, in_order, opened
from xylem.serving.batches.lines import Answered, LineBlock
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.live.opening import open_named
from xylem.serving.parse import parse_options
from xylem.serving.stores import store_of
from xylem.thresholds import Head, Tuned
from xylem_store import U8, StoreError

Format = Literal["jsonl", "parquet"]

# The least bytes of a part, if a file of JSON lines that is not packed is divided.
PART_BYTES = 1 << 26

PARTS_MAX = 1_000_000

PLAN = "_plan.json"


class Part(NamedTuple):
    """One part of the data: lines of a file of `size` bytes.

    first       the number of its first line
    start, end  the bytes of its lines; end 0: the whole file
    """

    number: int
    file: str
    size: int
    first: int = 1
    start: int = 0
    end: int = 0

    @property
    def n_bytes(self) -> int:
        """Return how many bytes of the file belong to it."""
        return self.end - self.start if self.end else self.size

    def name(self, form: Format) -> str:
        """Return the name of the file with its answers."""
        return f"part-{self.number:06}.{form}"


@dataclass(frozen=True)
class AnswerParts:
    """The step that answers one part, as `answer_block` does, and writes a file.

    store    the directory of the store, on every node; it must have the version with this digest
    query    the options of the search, as a query string
    denied   labels that the alias denies
    tuned    the thresholds in force with their head, if answers are at tuned thresholds; else None
    out      a directory, or the URL of one
    threads  how many threads answer the lines of a part
    """

    store: str
    model: str
    version: int
    digest: str
    query: str
    denied: tuple[str, ...]
    tuned: tuple[Tuned, Head] | None
    columns: TableColumns
    limits: Limits
    out: str
    form: Format
    threads: int

    def workspace(self) -> Callable[[LineBlock], Answered]:
        """Open the version; return a function that answers blocks of lines."""
        served = open_named(
            store_of(Path(self.store)), self.model, self.version, denied=self.denied
        )
        if self.tuned is not None:
            served.thresholds.replace(*self.tuned)
        return answers_of(served, self.options, self.limits)

    @property
    def options(self) -> Options:
        """Return the options of the search."""
        return parse_options(self.query.encode(), self.limits)

    def run(self, item: Part, workspace: Callable[[LineBlock], Answered], stop: U8) -> Answered:
        """Write the answers of one part; return how many lines were valid, and how many were not.

        Raises BadData if the file cannot be read.
        """
        n_rows = n_bad = 0
        with ExitStack() as stack:
            file = stack.enter_context(whole_file(file_path(self.out) / item.name(self.form)))
            write: Callable[[bytes], object] = (
                file.write if self.form == "jsonl" else stack.enter_context(answer_table(file))
            )
            source = stack.enter_context(opened(item.file, self.columns, item.start, item.end))
            if source.n_bytes != item.size:
                raise BadData(
                    f"{item.file}: expected {item.size} bytes, as there were at first, found "
                    f"{source.n_bytes}: it has changed"
                )
            todo = blocks_of(
                source, self.limits.line_bytes_max, self.options.block_rows(self.limits), item.first
            )
            for answered in in_order(todo, workspace, self.threads, lambda: False):
                if stop[0]:
                    raise InterruptedError
                write(answered.lines)
                n_rows += answered.n_rows
                n_bad += answered.n_bad
        return Answered(b"", n_rows, n_bad)

    def check(self, file: str) -> None:
        """Check that this machine has the version, can read a data file, and can write answers.

        Raises BadInput if not.
        """
        store = Path(self.store)
        try:
            digest = store_of(store).manifest(self.model, self.version).digest
        except StoreError as error:
            raise BadParameter(
                f"{store}: expected a store that can be read here, found: {error}"
            ) from None
        if digest != self.digest:
            raise BadParameter(
                f"{store}: expected {self.model}@{self.version} of digest {self.digest[:12]}, "
                f"found one of {digest[:12]}"
            )
        with opened(file, self.columns) as source:
            source.file.read1(1)  # type: ignore[attr-defined]
        trial = file_path(self.out) / ".check"
        with whole_file(trial) as written:
            written.write(b"x")
        with suppress(*faults_of(trial)):  # permission to write need not include to remove
            trial.unlink(missing_ok=True)

    def settings(self) -> dict[str, Any]:
        """Return the settings that a later run must share, which makes missing parts; for JSON."""
        epoch = None if self.tuned is None else [self.tuned[1].base_epoch, self.tuned[1].epoch]
        settings = {
            "model": self.model,
            "version": self.version,
            "digest": self.digest,
            "format": self.form,
            "query": self.query,
            "denied": self.denied,
            "epoch": epoch,
            "columns": self.columns,
        }
        return dict(json.loads(json.dumps(settings, default=str)))


class AnswerOutcome(NamedTuple):
    """The outcome of a run.

    n_parts   parts in all
    n_there   parts that existed before
    n_rows    valid lines of the other parts
    n_bad     their lines that are not valid
    """

    n_parts: int
    n_there: int
    n_rows: int
    n_bad: int


def answer_files(
    step: AnswerParts,
    data: Path,
    crew_of: AbstractContextManager[Crew],
    on_progress: Callable[[str, int, int], None],
) -> AnswerOutcome:
    """Write the answers to all lines of the files that `data` names; skip parts that exist.

    crew_of  the context manager of the crew that runs the steps; entered only if there is work

    Raises BadInput before any part is written: for data that cannot be used, for a directory with
    other files, and if `AnswerParts.check` fails on any machine of the crew.
    """
    with one_step(on_progress, "plan"):
        is_divided = not (step.columns.encoding or step.columns.vectors)
        parts = list(parts_of(data, is_divided=is_divided))
        existing = _begin_or_resume(file_path(step.out), step.settings(), parts)
        todo = [part for part in parts if part.name(step.form) not in existing]
    total = sum(part.n_bytes for part in todo)
    n_bytes = n_rows = n_bad = 0

    def done(part: Part, answered: Answered) -> None:
        nonlocal n_bytes, n_rows, n_bad
        n_bytes += part.n_bytes
        n_rows += answered.n_rows
        n_bad += answered.n_bad
        on_progress("predict", n_bytes, total)

    if todo:
        with crew_of as crew:
            crew.everywhere(lambda: step.check(todo[0].file))
            crew.steps(step, todo, done)
    return AnswerOutcome(len(parts), len(parts) - len(todo), n_rows, n_bad)


def parts_of(data: Path, *, is_divided: bool = True) -> Iterator[Part]:
    """Yield the parts of files, in the order of their names. Raises BadData.

    is_divided  whether a file of JSON lines that is not packed is divided every PART_BYTES. It is
                not with vectors beside it, nor if its text has another encoding than UTF-8, whose
                lines may end with other bytes

    Else each file is one part.
    """
    number = 0
    kinds = set()
    for path, n_bytes in find_files(absolute(data)):
        kinds.add(kind_of(path))
        is_lines = kind_of(path) in JSON_LINES
        if not (is_lines or is_table(path)):
            raise BadData(f"{path}: expected a file of JSON lines or a table, found another")
        if len(kinds - set(JSON_LINES)) + any(kind in JSON_LINES for kind in kinds) > 1:
            raise BadData(f"{data}: expected files of one kind, found {', '.join(sorted(kinds))}")
        size = n_bytes
        if not size:
            next(DataFile(path).blocks(), None)  # raises BadData if it cannot be read
            size = n_bytes_of(path)
        is_plain = is_lines and plain_name(path) == path.name
        has_pieces = is_divided and is_plain and size > 2 * PART_BYTES
        for piece in _pieces(path, size) if has_pieces else [(1, 0, 0)]:
            if number == PARTS_MAX:
                raise BadData(f"{data}: expected at most {PARTS_MAX} parts, found more")
            yield Part(number, str(path), size, *piece)
            number += 1


def _pieces(path: Path, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first line, start, end) of each part of a file. Cost: the file is read once."""
    first = 1
    start = 0
    line = 1
    block_start = 0
    for block in DataFile(path).blocks():
        counted = 0
        while (newline := block.find(b"\n", max(0, start + PART_BYTES - block_start))) >= 0:
            line += block.count(b"\n", counted, newline + 1)
            counted = newline + 1
            end = block_start + newline + 1
            yield first, start, end
            first = line
            start = end
        line += block.count(b"\n", counted)
        block_start += len(block)
    if start < size:
        yield first, start, size


def _begin_or_resume(out: Path, settings: dict[str, Any], parts: Iterable[Part]) -> set[str]:
    """Return the names of existing files; write the plan if there is none.

    Raises BadParameter if there is another plan, or other files without one.
    """
    plan = {**settings, "parts": [list(part) for part in parts]}
    existing = names_in(out)
    if PLAN not in existing:
        if other_names := sorted(name for name in existing if not name.startswith(".")):
            raise BadParameter(
                f"{out}: expected an empty directory, or one of the same batch, "
                f"found {other_names[0]!r}"
            )
        with whole_file(out / PLAN) as file:
            file.write(json.dumps(plan).encode())
        return set()
    try:
        existing_plan = json.loads((out / PLAN).read_bytes())
        changed_settings = [
            name for name, value in plan.items() if existing_plan.get(name) != value
        ]
    except (ValueError, AttributeError, OSError):
        raise BadParameter(
            f"{out / PLAN}: expected a plan of xylem predict, found another file"
        ) from None
    if changed_settings:
        name = changed_settings[0]
        difference = (
            "others" if name == "parts" else f"{existing_plan.get(name)!r}, now {plan[name]!r}"
        )
        raise BadParameter(
            f"{out}: expected answers of the same {name}, found {difference}: "
            "name another directory"
        )
    return existing
