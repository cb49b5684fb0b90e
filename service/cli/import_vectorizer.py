"""`xylem import-vectorizer`: a model that was trained on a vectorizer's matrix learns to take text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.aliases import store_to_publish
from service.cli.console import print_result
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference

File = Annotated[
    Path,
    typer.Option("--file", metavar="FILE", help="A vectorizer as JSON or of skops: see docs/importing.md."),
]


def import_vectorizer(model: Model, file: File, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Publish a version that takes text as a scikit-learn vectorizer does, and answers as the given one."""
    from service.importers import publish_with_texts, read_vectorizer

    name, reference = parse_reference(model)
    opened = store_to_publish(store, "xylem import-vectorizer")
    version = opened.resolve(name, reference)
    manifest = publish_with_texts(opened, name, version, read_vectorizer(file))
    line = f"{name}@{version} with {file} -> {manifest.model}@{manifest.version}"
    print_result(json, line, model=manifest.model, version=manifest.version)
