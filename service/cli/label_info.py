"""`xylem models label-info`: what a model's labels are called, put beside it, shown or removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.base.errors import BadInput, BadParameter
from service.cli.console import print_facts, print_json, print_result
from service.cli.options import DEFAULT_STORE, Json, StoreDir

if TYPE_CHECKING:
    from model_store.store import Store
    from service.workflows.label_info import Attached

app = typer.Typer(help="Label info: a part of `xylem models`.")

BY_URI = "uri"

Name = Annotated[str, typer.Argument(metavar="NAME", help="A model.")]
File = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="A vocabulary: .ttl, .rdf, .nt, .tsv or .csv, also as .gz; replaces what was there.",
    ),
]
By = Annotated[
    str, typer.Option("--by", metavar="uri|notation|LANGUAGE", help="What the model's labels are.")
]
Language = Annotated[
    str | None,
    typer.Option(metavar="LANGUAGE", help="Of names where nobody asks for one; of a .tsv file, its own."),
]
Remove = Annotated[bool, typer.Option("--remove", help="Remove the model's label info.")]


@app.command("label-info")
def label_info(
    model: Name,
    file: File = None,
    by: By = BY_URI,
    language: Language = None,
    remove: Remove = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Give a model's labels URIs, names by language, notations and broader subjects; or show what they have.

    It belongs to the model and all its versions. Running servers tell what is new without a restart.
    """
    from model_store.store import Store
    from service.workflows.label_info import attach_label_info, read_label_info

    opened = Store(store)
    if remove:
        if file is not None:
            raise BadParameter("--remove: expected no FILE beside it, found one")
        removed = opened.delete_label_info(model)
        print_result(
            json, f"{model}: label info {'removed' if removed else 'was none'}", model=model, removed=removed
        )
    elif file is not None:
        opened.resolve(model)  # before a long file is read
        _print(attach_label_info(opened, model, read_label_info(file, by, language)), json)
    else:
        _print(_present(opened, model), json)


def _present(store: Store, model: str) -> Attached:
    """Return what a model has. Raises BadInput where it has nothing."""
    from service.workflows.label_info import attached_info

    store.resolve(model)
    info = store.label_info(model)
    if info is None:
        raise BadInput(f"{model}: expected label info, found none: xylem models label-info {model} FILE")
    return attached_info(store, model, info)


def _print(found: Attached, json: bool) -> None:
    facts: dict[str, Any] = found._asdict()
    if json:
        print_json(facts)
        return
    shown = {name.replace("_", " "): _shown(value) for name, value in facts.items() if name != "model"}
    print_facts(f"Label info of {found.model}", shown)


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(value) if isinstance(value, list) else str(value)
