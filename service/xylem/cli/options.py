"""Options that several commands have, groups of them, and the references NAME[@VERSION].

typer makes options of the parameters of a function. A command that is `grouped` may have a
parameter whose type is a NamedTuple, or `Parameters` with fields for commands: typer then sees the
fields in its place, and the command gets them as one value. `--help` shows the options of a
NamedTuple that is `in_panel` apart.
"""

import inspect
import typing
from collections.abc import Callable, Iterator
from copy import copy
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from typer import Argument, Option

from xylem.base import (
    BadParameter,
    CommandOption,
    Parameters,
    TableColumns,
    columns_of,
    file_path,
    n_processors,
    refuse_without_table,
)

LATEST = "latest"

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
"""The names in `xylem.trainers`, which takes a second to import; a test compares them."""

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


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer sees it. Raises ValueError if two options have one name."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if hasattr(parameter.annotation, "_fields")
        or (isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Parameters))
    }
    parameters: list[inspect.Parameter] = []
    options = {name: list(_options_of(group)) for name, group in groups.items()}
    for name, parameter in signature.parameters.items():
        if name in groups:
            parameters += options[name]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**arguments: Any) -> None:
        group_values = {
            name: group(**{option.name: arguments.pop(option.name) for option in options[name]})
            for name, group in groups.items()
        }
        command(**arguments, **group_values)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _options_of(group: Any) -> Iterator[inspect.Parameter]:
    """Yield the options that typer makes of a group."""
    return _options_of_tuple(group) if hasattr(group, "_fields") else _options_of_model(group)


def _options_of_model(model: type[Parameters]) -> Iterator[inspect.Parameter]:
    """Yield the options for the fields that have a `CommandOption`.

    typer converts texts to numbers within their range; all other values are checked by the model.
    """
    for name, field in model.model_fields.items():
        for shown in field.metadata:
            if not isinstance(shown, CommandOption):
                continue
            bounds = {
                bound: getattr(limit, name_of_bound)
                for limit in field.metadata
                for bound, name_of_bound in (("min", "ge"), ("max", "le"))
                if hasattr(limit, name_of_bound)
            }
            option = Option(
                f"--{(field.alias or name).replace('_', '-')}",
                metavar=shown.metavar,
                help=field.description,
                rich_help_panel=shown.panel or None,
                **bounds,
            )
            yield inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[_type_for_typer(field.annotation), option],
            )


def _type_for_typer(annotation: Any) -> Any:
    """Return a type whose values typer makes: for a choice, and what may be None, a text."""
    choices = typing.get_args(annotation)
    if not choices:
        return annotation
    return str | None if type(None) in choices else str


def _options_of_tuple(group: Any) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
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
            help="A table's column with text; default `text`. May repeat. With weight 2 its "
            "words count "
            "twice.",
        ),
    ] = None
    label_column: Annotated[
        str | None, Option(metavar="NAME", help="A table's column with labels; default `labels`.")
    ] = None
    label_separator: Annotated[
        str | None, Option(metavar="TEXT", help="What separates the labels in a cell; default `;`.")
    ] = None
    delimiter: Annotated[
        str | None,
        Option(
            metavar="CHARACTER",
            help="What separates the cells of a line, or the word tab; default a comma, in "
            ".tsv a tab.",
        ),
    ] = None

    def columns(self, *files: Path | None) -> TableColumns:
        """Return the columns that the options name.

        Raises BadParameter if none of the files is a table.
        """
        columns = columns_of(*self)
        refuse_without_table(columns, *files)
        return columns

    def guessed(self, file: Path) -> TableColumns:
        """Return the columns that the options name, others guessed from a file. Raises BadInput."""
        from xylem.datasets import guess_columns

        return guess_columns(file, *self)


@in_panel("Work")
class Work(NamedTuple):
    """The options for how a model is made: the threads and the seed."""

    threads: Threads = None
    seed: Seed = 0


def n_threads(threads: int | None) -> int:
    """Return the number of threads; if None, the number of processors."""
    return threads or n_processors()


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
