"""`xylem predict` and `score`: lines of instances in, lines of answers out.

Memory does not grow with their number.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from orjson import dumps, loads
from typer import Argument, Context, Option

from xylem import base, datasets, serving
from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadParameter,
    TableColumns,
    TextFields,
    file_path,
    is_directory,
    n_threads,
    unfinished,
)
from xylem.cli.answer_files import AnswerFiles
from xylem.cli.console import complain, print_result, print_table, progress
from xylem.cli.options import (
    DEFAULT_STORE,
    ChunkCharacters,
    Json,
    Model,
    Reference,
    StoreDir,
    Table,
    Threads,
    grouped,
    in_panel,
    parse_reference,
)
from xylem.cli.places import (
    Place,
    connect_server,
    opened_learning,
    read_key,
    refuse_beside_url,
)
from xylem.serving import STDIN, Source, blocks_of, in_order, opened, source_of

Instances = Annotated[
    str,
    Option(
        "--data",
        metavar="FILE",
        help="Lines of JSON or a table, also as .gz or .zst; a directory, 'DIR/*.parquet', "
        "s3://; - is "
        "standard input.",
    ),
]


@in_panel("Search and answers", common=("top_r", "threshold"))
class RequestOptions(NamedTuple):
    """The options of a request."""

    top_r: Annotated[int, Option("--top-r", help="Maximum number of labels of a row.")] = 5
    threshold: Annotated[
        str | None,
        Option(
            metavar="X",
            help="Only labels with a score of at least X, from 0 to 1; tuned: each label's "
            "threshold.",
        ),
    ] = None
    beam_width: Annotated[
        int, Option(help="Nodes to keep on each level: more is slower, closer to exact.")
    ] = 10
    exact: Annotated[bool, Option("--exact", help="Search until the answer is exact.")] = False
    explain: Annotated[
        bool,
        Option(
            "--explain",
            help="Add each label's path in the trees, and the features that counted; of a combined "
            "version what each member said, and the names in the text.",
        ),
    ] = False
    language: Annotated[
        str | None,
        Option(
            metavar="LANGUAGES",
            help="Add names of labels from the label info, in the first of these languages that "
            "has one: fi,sv,* (* is any).",
        ),
    ] = None
    label_info: Annotated[
        bool, Option("--label-info", help="Add all that the label info has about each label.")
    ] = False
    chunk_characters: ChunkCharacters = None
    allow_labels: Annotated[
        list[str] | None,
        Option("--allow", metavar="LABEL", help="Only these labels, or names; may repeat."),
    ] = None
    under: Annotated[
        list[str] | None,
        Option(
            metavar="CONCEPT",
            help="Only this concept and all below it, by the label info; may repeat.",
        ),
    ] = None
    deny_labels: Annotated[
        list[str] | None,
        Option("--deny", metavar="LABEL", help="Never these labels, or names; may repeat."),
    ] = None

    def options(self) -> dict[str, Any]:
        """Return the options as a dict. Raises BadParameter if two cannot be used together."""
        if self.chunk_characters is not None and self.explain:
            raise BadParameter(
                "--chunk-characters cannot be used with --explain, which explains one search"
            )
        fields = self._asdict()
        branches = [dumps({"under": concept}).decode() for concept in fields.pop("under") or ()]
        fields["allow_labels"] = [*(self.allow_labels or ()), *branches] or None
        return {
            name: value
            for name, value in fields.items()
            if value is not None and value is not False
        }


@in_panel("Instances", common=("data",))
class InstanceSource(NamedTuple):
    """The options for where instances are, what their lines are, and existing result files."""

    data: Instances = STDIN
    plain: Annotated[
        bool,
        Option("--plain", help="Each line of standard input is a text, not JSON; without --data."),
    ] = False
    force: Annotated[bool, Option("--force", help="Replace .labels files that exist already.")] = (
        False
    )


RESULTS = ".labels"  # the suffix of the files with the labels of documents

_LOCAL_ONLY = ("store", "threads", "out", "ray")


@grouped
def predict(
    context: Context,
    model: Model,
    text: Annotated[
        str | None, Argument(metavar="TEXT", help="A text; its labels are shown as a table.")
    ] = None,
    *,
    instances: InstanceSource,
    table: Table,
    request: RequestOptions,
    place: Place,
    files: AnswerFiles,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Predict the labels of a text, or of instances: one JSON object a line in, one a line out.

    A line is {"text": ...}, {"features": {...}} or {"indices": [...], "values": [...]}. "labels" in
    it is ignored, so that a labelled file can be predicted. In a .csv, .tsv or .parquet file each
    row is a text. A line that cannot be used has an error in its place, and the exit status is 2 at
    the end.

    For a directory of documents NAME.txt the labels go to NAME.labels, one a line: the label, its
    score, and its name if the model has label info, with tabs between them. With --out the answers
    are files, one for each part of the data, written by threads or by the nodes of a cluster
    (--ray); if you run it again, it writes those that are missing.
    """
    data = instances.data
    columns = table.columns(file_path(data))
    if place.url is None:
        columns = _columns_for(place.store, model, columns)
    options = request.options()
    if (text is not None) + (data != STDIN) + instances.plain > 1:
        raise BadParameter("expected one of a text, --data and --plain, found several")
    if (instances.plain or text is not None) and (table.vectors or table.vector_column):
        option = "--vectors" if table.vectors else "--vector-column"
        raise BadParameter(f"{option} cannot be used with --plain or a text")
    if table.vectors and _names_of(data) != [data]:
        raise BadParameter("--vectors: expected one file as --data, found several")
    files.check(
        data, tells_more=request.explain or request.label_info or request.language is not None
    )
    if files.out is not None and place.url is None:
        files.write(
            data,
            columns,
            place.store,
            n_threads(threads),
            model=model,
            query=_query(options),
            json=json,
        )
        return
    is_corpus = _is_corpus(file_path(data))
    if place.url is not None:
        refuse_beside_url(context, _LOCAL_ONLY)
        predictor: AbstractContextManager[Answers] = nullcontext(
            partial(
                _by_server, place.url, read_key(place.key_file), parse_reference(model), options
            )
        )
    else:
        # people read a table and the files beside documents; programs read lines
        predictor = _by_store(
            place.store,
            model,
            options,
            n_threads(threads),
            is_named=is_corpus or (text is not None and not json and not request.explain),
        )
    with predictor as answers:
        if text is not None:
            _print_text(answers(source_of(text)), json or request.explain)
            return
        results = ResultFiles(Path(data), force=instances.force) if is_corpus else None
        _print_answers(
            data,
            partial(opened, columns=columns, is_plain=instances.plain),
            answers,
            _write if results is None else results.write,
            "an instance",
            quiet=json,
        )
    if results is not None:
        print_result(
            json, f"{results.n_written} files *{RESULTS} written", documents=results.n_written
        )


# A function that answers the lines of a source, in blocks, in their order.
Answers = Callable[[Source], Iterator["serving.Answered"]]


def _print_answers(
    data: str,
    open_source: Callable[[str], AbstractContextManager[Source]],
    answers: Answers,
    write: Callable[[bytes], None],
    expected: str,
    *,
    quiet: bool,
) -> None:
    """Write the answers to all lines of all files.

    Raises BadData at the end if some lines could not be answered.
    """
    n_rows = n_bad = 0
    with progress(quiet or data == STDIN) as show:
        for name in _names_of(data):
            with open_source(name) as source:
                for answered in answers(source):
                    write(answered.lines)
                    n_rows += answered.n_rows
                    n_bad += answered.n_bad
                    show("answers", source.raw.tell() if source.n_bytes else 0, source.n_bytes)
                if options := getattr(source.raw, "options", None):
                    complain(f"{name}: read with {shlex.join(options)}")
    if n_bad:
        raise BadData(
            f"{data}: expected {expected} on each of {n_rows + n_bad} lines, found {n_bad} without"
        )


def _write(lines: bytes) -> None:
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


def _print_text(answered: Iterator[serving.Answered], as_it_is: bool) -> None:
    """Show the labels of a text as a table, or the answer as it is.

    Raises BadData if the answer is an error.
    """
    line = b"".join(part.lines for part in answered)
    answer = loads(line)
    if "error" in answer:
        raise BadData(answer["error"]["detail"])
    if as_it_is:
        _write(line)
        return
    if answer.get("no_known_features"):
        complain("warning: the model knows no word of the text")
    names = [
        f"{label['name']} ({label['label']})" if label.get("name") else label["label"]
        for label in answer["labels"]
    ]
    print_table(
        "",
        ("label", "score"),
        list(zip(names, [label["score"] for label in answer["labels"]], strict=True)),
    )


class ResultFiles:
    """Writes the labels of the documents of a directory, a file beside each document."""

    def __init__(self, directory: Path, *, force: bool) -> None:
        """Find the documents; refuse existing results unless `force`.

        Raises BadData, BadParameter.
        """

        documents = [directory / name for name in datasets.CorpusDirectory(directory).names]
        files = [document.with_suffix(RESULTS) for document in documents]
        if not force and (existing := [file for file in files if file.exists()]):
            raise BadParameter(
                f"expected no results yet, found {existing[0]}: --force replaces them"
            )
        self._unwritten = iter(zip(documents, files, strict=True))
        self.n_written = 0

    def write(self, lines: bytes) -> None:
        """Write the next answers, each to its file; a document with an error gets none."""
        for line in lines.splitlines():
            document, file = next(self._unwritten)
            answer = loads(line)
            if "error" in answer:
                complain(f"{document}: {answer['error']['detail']}")
                continue
            with unfinished(file) as out:
                for label in answer["labels"]:
                    columns = [label["label"], f"{label['score']:.4f}"]
                    columns += [label["name"]] if label.get("name") else []
                    out.write(("\t".join(columns) + "\n").encode())
            self.n_written += 1


def _names_of(data: str) -> list[str]:
    """Return the names of the files of --data.

    Standard input counts as one, and so does a directory of documents.
    """
    path = file_path(data)
    if data == STDIN or path.is_file() or _is_corpus(path):
        return [data]

    return [str(file.path) for file in datasets.find_files(path)]


def _is_corpus(path: Path) -> bool:
    """Return whether a path is a directory of documents.

    Raises BadData if it has other data too.
    """
    if not is_directory(path):
        return False

    return isinstance(datasets.open_data(path), datasets.CorpusDirectory)


def _query(options: dict[str, Any]) -> str:
    return urlencode(
        {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in options.items()
        },
        doseq=True,
    )


@contextmanager
def _by_store(
    store: Path, model: str, request_options: dict[str, Any], threads: int, *, is_named: bool
) -> Iterator[Answers]:
    """Open a version; yield the function that answers with it.

    is_named  whether labels have names if the model has label info, also if none are requested
    """

    limits = base.read_settings().limits
    options = serving.parse_options(_query(request_options).encode(), limits)
    is_tuned = options.threshold == serving.TUNED
    with opened_learning(store, create=False) as learning:
        served = serving.open_named(
            serving.store_of(store), *parse_reference(model), learning, is_tuned=is_tuned
        )
        if learning is not None and learning.follower.fault and not is_tuned:
            complain(
                f"feedback to these predictions will not be accepted: {learning.follower.fault}"
            )
        languages, language = serving.languages_of(served.info.current)
        if is_named and languages and options.language is None:
            options = options.model_copy(update={"language": language})
        yield partial(
            _by_threads,
            answer=serving.answers_of(served, options, limits),
            threads=threads,
            limits=limits,
            rows_max=options.block_rows(limits),
        )


def _by_threads(
    source: Source,
    answer: Callable[[serving.LineBlock], serving.Answered],
    threads: int,
    limits: base.Limits,
    rows_max: int,
) -> Iterator[serving.Answered]:
    return in_order(
        blocks_of(source, limits.line_bytes_max, rows_max), answer, threads, source.waiting()
    )


# The bytes that only an error has: in an answer, a quote within a text has a backslash.
_ERROR = b'"error":{'


def _by_server(
    url: str, key: str | None, model: Reference, options: dict[str, Any], source: Source
) -> Iterator[serving.Answered]:
    """Yield the answers of a server to the lines of a source, in their order, as they come.

    Raises BadInput if the server refuses, BadParameter, Unavailable.
    """

    limits = base.read_settings().limits
    line_blocks = blocks_of(source, limits.line_bytes_max, limits.block_rows_max)
    long_lines: list[int] = []
    number = int(model.version) if model.version.isdecimal() else None
    first = 1
    with connect_server(url, key) as client:
        blocks = client.batch_blocks(
            model.name,
            _lines(line_blocks, long_lines),
            number,
            model.version if number is None else None,
            **options,
        )
        for block in blocks:
            lines = _with_long(block, first, long_lines, limits)
            n_bad = sum(_ERROR in line for line in lines)
            first += len(lines)
            yield serving.Answered(
                b"".join(line + b"\n" for line in lines), len(lines) - n_bad, n_bad
            )


def _lines(blocks: Iterator[serving.LineBlock], long_lines: list[int]) -> Iterator[list[bytes]]:
    """Yield the lines of blocks.

    A line that is too long becomes an empty line, and its number is added to `long_lines`.
    """
    for block in blocks:
        long_lines += [
            number for number, line in enumerate(block.lines, block.first) if line is None
        ]
        yield [line or b"" for line in block.lines]


def _with_long(
    lines: list[bytes], first: int, long_lines: list[int], limits: base.Limits
) -> list[bytes]:
    """Return answers with the errors that the server would give for lines that are too long."""

    while long_lines and long_lines[0] < first + len(lines):
        number = long_lines.pop(0)
        lines[number - first] = serving.dump(
            {"error": {**serving.describe_error(serving.too_long(limits)), "line": number}}
        )
    return lines


def score(
    model: Model,
    data: Instances = STDIN,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Print the exact probabilities of labels: one JSON object a line in, their scores a line out.

    A line is an instance as for `xylem predict`, with "labels": those to score. A line that cannot
    be used has an error in its place, and the exit status is 2 at the end.
    """

    limits = base.read_settings().limits
    answer = partial(
        serving.score_block,
        served=serving.open_named(serving.store_of(store), *parse_reference(model)),
        limits=limits,
    )
    answers = partial(
        _by_threads,
        answer=answer,
        threads=n_threads(threads),
        limits=limits,
        rows_max=limits.block_rows_max,
    )
    _print_answers(
        data,
        partial(opened, columns=_columns_for(store, model, DEFAULT_COLUMNS)),
        answers,
        _write,
        "an instance with labels",
        quiet=json,
    )


def _columns_for(store: Path, model: str, columns: TableColumns) -> TableColumns:
    """Return how rows are read for a version: its fields need not be named. Raises BadParameter."""
    model_store = serving.store_of(store)
    name, reference = parse_reference(model)
    return columns.for_version(
        TextFields.of_options(
            model_store.manifest(name, model_store.resolve(name, reference)).fields
        )
    )
