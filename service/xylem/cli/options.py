"""Options that several commands have, groups of them, and the references NAME[@VERSION].

typer makes options of the parameters of a function. A command that is `grouped` may have a
parameter whose type is a NamedTuple, or `OptionsOf` a model: typer then sees the fields in its
place, and the command gets them as one value. `--help` shows the options of a NamedTuple that is
`in_panel` apart.
"""

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property, update_wrapper
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_type_hints

from typer import Argument, Option

from xylem.base import (
    BadParameter,
    TableColumns,
    columns_of,
    file_path,
    refuse_without_table,
)

LATEST = "latest"

# The names in `xylem.trainers`, which takes a second to import; a test compares them.
TRAINER_NAMES = (
    "label-tree",
    "ovr",
    "plt",
    "lomtree",
    "fastxml",
    "pfastrexml",
    "ldsm",
    "huffman-tree",
    "learned-tree",
)

FORMATS = (
    ".jsonl, .txt, .svm, .npz, .csv, .tsv (and .gz, .zst) or .parquet; a directory, "
    "'DIR/*.parquet', s3://"
)

Json = Annotated[
    bool, Option("--json", help="End with one JSON object on a line; no progress bars.")
]
StoreDir = Annotated[
    Path,
    Option("--store", metavar="DIR", envvar="XYLEM_STORE", help="The directory of the models."),
]
Data = Annotated[
    Path, Option("--data", metavar="FILE", parser=file_path, help=f"A labelled file: {FORMATS}.")
]
ParameterItems = Annotated[
    list[str] | None,
    Option(
        "-p", metavar="KEY=VALUE", help="A parameter of the trainer or of the features; may repeat."
    ),
]
Threads = Annotated[
    int | None,
    Option(min=1, max=1024, help="Threads; default: the number of cores.", rich_help_panel="Work"),
]
ChunkCharacters = Annotated[
    int | None,
    Option(
        metavar="N",
        help="Divide longer texts into chunks of at most N characters; scores are their means.",
    ),
]
EmptyLabels = Annotated[
    str,
    Option(
        metavar="zero|one",
        help="F of a label that is never true nor predicted: 0 as in scikit-learn, 1 as in "
        "the papers.",
    ),
]
Seed = Annotated[int, Option(min=0, max=2**63 - 1, help="Same seed, same data: the same model.")]
ModelName = Annotated[str, Argument(metavar="NAME", help="A model.")]
Model = Annotated[
    str, Argument(metavar="NAME[@VERSION]", help="A model; `latest` without a version.")
]

RayAddress = Annotated[
    str | None,
    Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on the nodes of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT.",
    ),
]


DEFAULT_STORE = Path("store")


Group = TypeVar("Group")


def in_panel(name: str, common: tuple[str, ...] = ()) -> Callable[[type[Group]], type[Group]]:
    """Show the options of a group in a panel of their own in `--help`.

    common  options that stay outside it, as required ones do
    """

    def mark(group: type[Group]) -> type[Group]:
        setattr(group, "_panel", (name, common))  # noqa: B010 - a NamedTuple declares fields only
        return group

    return mark


class OptionsOf(NamedTuple):
    """A model whose fields are options: `Parameters` in a module, which is imported on demand."""

    module: str
    name: str

    @property
    def model(self) -> Any:
        """Return the model."""
        return getattr(import_module(self.module), self.name)


class _Grouped:
    """A command whose groups of options are shown to typer as single options."""

    def __init__(self, command: Callable[..., None]) -> None:
        update_wrapper(self, command)
        self._command = command
        self._written = inspect.signature(command, eval_str=True)

    @cached_property
    def _groups(self) -> dict[str, Any]:
        """Return the type of each parameter that is a group."""
        groups = {}
        for name, parameter in self._written.parameters.items():
            if isinstance(parameter.annotation, OptionsOf):
                groups[name] = parameter.annotation.model
            elif hasattr(parameter.annotation, "_fields"):
                groups[name] = parameter.annotation
        return groups

    @cached_property
    def _options(self) -> dict[str, list[inspect.Parameter]]:
        return {
            name: list(
                _options_of_tuple(group) if hasattr(group, "_fields") else _options_of_model(group)
            )
            for name, group in self._groups.items()
        }

    @cached_property
    def __signature__(self) -> inspect.Signature:
        """Return the options; typer looks at them when it runs, and not at `xylem --version`."""
        parameters: list[inspect.Parameter] = []
        for name, parameter in self._written.parameters.items():
            parameters += self._options.get(
                name, [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            )
        return self._written.replace(parameters=parameters)

    def __call__(self, **arguments: Any) -> None:
        """Run the command with each group as one value."""
        group_values = {
            name: group(
                **{option.name: arguments.pop(option.name) for option in self._options[name]}
            )
            for name, group in self._groups.items()
        }
        self._command(**arguments, **group_values)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer sees it; two options of one name raise ValueError then."""
    return _Grouped(command)


def _options_of_model(model: Any) -> Iterator[inspect.Parameter]:
    """Yield the options for the fields of `Parameters` that commands have.

    typer converts texts to numbers within their range; all other values are checked by the model.
    """
    for name, field, command_option in model.command_options():
        bounds = {
            bound: getattr(limit, limit_name)
            for limit in field.metadata
            for bound, limit_name in (("min", "ge"), ("max", "le"))
            if hasattr(limit, limit_name)
        }
        option = Option(
            f"--{(field.alias or name).replace('_', '-')}",
            metavar=command_option.metavar,
            help=field.description,
            rich_help_panel=command_option.panel or None,
            **bounds,
        )
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[_type_for_typer(field.annotation), option],
        )


def _type_for_typer(annotation: Any) -> Any:
    """Return the type that typer converts to: a text for a choice, which the model checks."""
    types = get_args(annotation) or (annotation,)
    converted = [kind if isinstance(kind, type) else str for kind in types]
    return Union[tuple(dict.fromkeys(converted))]  # noqa: UP007 - of types that are known only here


def _options_of_tuple(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    panel, common = getattr(group, "_panel", ("", ()))
    for name in group._fields:
        default = group._field_defaults.get(name, inspect.Parameter.empty)
        hint = hints[name]
        if panel and name in group._field_defaults and name not in common:
            (option,) = hint.__metadata__
            option = copy(option)
            option.rich_help_panel = panel
            hint = Annotated[hint.__origin__, option]
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
        )


@in_panel("Tables")
class Table(NamedTuple):
    """The options for the columns of a table that are read."""

    text_column: Annotated[
        list[str] | None,
        Option(
            "--text-column",
            metavar="NAME[=WEIGHT]",
            help="A column, or key of JSON lines, with text; default `text`, or one like it. May "
            "repeat. With weight 2 its words count twice; auto: a training chooses.",
        ),
    ] = None
    label_column: Annotated[
        str | None,
        Option(
            metavar="NAME", help="A table's column with labels; default `labels`, or one like it."
        ),
    ] = None
    label_separator: Annotated[
        str | None,
        Option(metavar="TEXT", help="What separates the labels in a cell; guessed, else `;`."),
    ] = None
    delimiter: Annotated[
        str | None,
        Option(metavar="CHARACTER", help="What separates the cells of a line, or the word tab."),
    ] = None
    label_columns: Annotated[
        list[str] | None,
        Option(
            "--label-columns",
            metavar="PATTERN",
            help="Columns with labels, as 'tag_*', or with 0 and 1: then their names are the "
            "labels. May repeat.",
        ),
    ] = None
    quote: Annotated[
        str | None,
        Option(metavar="none", help="none: a quote in a .csv or .tsv file is part of the text."),
    ] = None
    encoding: Annotated[
        str | None, Option(metavar="NAME", help="The encoding of text; default UTF-8.")
    ] = None
    join_rows: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Rows with the same value there are one row, with the labels of all.",
        ),
    ] = None
    strict: Annotated[
        bool, Option("--strict", help="Refuse a file with any finding: see docs/findings.md.")
    ] = False
    weight_column: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="The column, or the key of lines of JSON, with the weights of rows: one of weight "
            "2 counts as two rows, one of weight 0 as none.",
        ),
    ] = None
    vector_column: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="The key of lines of JSON, or the column of a .parquet file, with a vector beside "
            "each text: a list of numbers.",
        ),
    ] = None
    vectors: Annotated[
        list[Path] | None,
        Option(
            "--vectors",
            metavar="FILE.npy",
            help="A vector beside each text: a matrix of floats, with a row for each row of the "
            "data. Once for each file of data, in their order: data, rows, rerank, valid or test.",
        ),
    ] = None

    def columns(self, *files: Path | None) -> TableColumns:
        """Return how the options say that files are read.

        Raises BadParameter if none of the files is a table, but an option is for tables.
        """
        columns = columns_of(*self[:-2])
        refuse_without_table(columns, *files)
        return columns.with_vectors(self.vectors, *files, column=self.vector_column)


@in_panel("Work")
class Work(NamedTuple):
    """The options for how a model is made: the threads and the seed."""

    threads: Threads = None
    seed: Seed = 0


class Reference(NamedTuple):
    """The name of a model, and a version as it is written: its number or an alias."""

    name: str
    version: str


def parse_reference(text: str) -> Reference:
    """Return the parts of NAME[@VERSION]; without a version the alias `latest`."""
    name, separator, version = text.partition("@")
    if separator and not version:
        raise BadParameter(f"expected NAME or NAME@VERSION, found {text!r}")
    return Reference(name, version or LATEST)


def parse_version(text: str) -> Reference:
    """Return the parts of NAME@VERSION, which must have a version."""
    if "@" not in text:
        raise BadParameter(f"expected NAME@VERSION, found {text!r}")
    return parse_reference(text)
