"""Options that several commands have, and the references NAME[@VERSION]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from service.errors import BadParameter

LATEST = "latest"

TRAINER_NAMES = ("label-tree", "ovr", "plt", "lomtree", "fastxml", "pfastrexml", "ldsm")
"""Those of `service.trainers`, which takes a second to import; a test holds them equal."""

Json = Annotated[bool, typer.Option("--json", help="One JSON object as the last line; no progress bars.")]
StoreDir = Annotated[
    Path, typer.Option("--store", metavar="DIR", envvar="XYLEM_STORE", help="The directory of the models.")
]
Data = Annotated[
    Path,
    typer.Option("--data", metavar="FILE", help="A labelled file: .jsonl, .txt, .svm or .npz, also as .gz."),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "-p", metavar="KEY=VALUE", help="A parameter of the trainer or of the features; may repeat."
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Threads; the number of cores if left out.")
]
EmptyLabels = Annotated[
    str,
    typer.Option(
        metavar="one|zero",
        help="What F is of a label never true nor predicted: 1 as in the paper, or 0 as in scikit-learn.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same data: the same model.")]
Model = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="A model; `latest` without a version.")]

DEFAULT_STORE = Path("store")


class Reference(NamedTuple):
    """A model's name and a version as it is written: its number or an alias."""

    name: str
    version: str


def parse_reference(text: str) -> Reference:
    """Return what NAME[@VERSION] refers to; the alias `latest` when no version is written."""
    name, at, version = text.partition("@")
    if at and not version:
        raise BadParameter(f"expected NAME or NAME@VERSION, found {text!r}")
    return Reference(name, version or LATEST)


def parse_version(text: str) -> Reference:
    """Return what NAME@VERSION refers to; the version must be written."""
    if "@" not in text:
        raise BadParameter(f"expected NAME@VERSION, found {text!r}")
    return parse_reference(text)
