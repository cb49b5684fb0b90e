"""`xylem models labels`: labels of a version, found by a part of their names, and what these are called."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.console import print_json, print_table
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference
from service.cli.predict import LabelInfo, Language

app = typer.Typer(help="Labels of a version: a part of `xylem models`.")

Search = Annotated[
    str, typer.Option(metavar="PART", help="Only labels with this part, or told names with it.")
]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many, the first ones.")]


@app.command()
def labels(
    model: Model,
    search: Search = "",
    language: Language = None,
    label_info: LabelInfo = False,
    limit: Limit = 100,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """List the labels of a version, and tell their names, where the model has label info.

    A search takes capitals and small letters as one, and looks into the names that are told, too.
    """
    from model_store.names import name_of
    from model_store.store import Store
    from service.serving.denied import denied_by
    from service.serving.label_info import LiveLabelInfo, label_info_options, told_of_label
    from service.serving.label_pages import labels_found
    from service.serving.schemas.predict import InfoQuery

    opened, (name, reference) = Store(store), parse_reference(model)
    version = opened.open(name, reference)
    live = LiveLabelInfo(name, version.labels)
    live.follow(opened.label_info(name))
    info = label_info_options(InfoQuery(language=language, label_info=label_info), live)
    denied = set(denied_by(opened, name, reference))
    counts = version.arrays.get("labels/counts")
    ids = labels_found(version.labels, search, info)
    found: list[dict[str, Any]] = []
    for i in ids[:limit].tolist():
        label = name_of(version.labels, i)
        rows = None if counts is None else int(counts[i])
        told = {} if info is None else told_of_label(info, i)
        found.append({"label": label, "id": i, "training_rows": rows, "denied": label in denied, **told})
    number = version.manifest.version
    if json:
        print_json({"model": name, "version": number, "n_found": len(ids), "labels": found})
        return
    heads = [key for key in (found[0] if found else ("label",)) if key != "denied" or denied]
    title = f"{name}@{number}: {len(ids):,} of {version.labels.n_names:,} labels"
    print_table(title, heads, [[_cell(one[key]) for key in heads] for one in found])


def _cell(value: object) -> object:
    """Return what stands in a table for people."""
    if isinstance(value, dict):
        return "; ".join(f"{language}: {name}" for language, name in value.items())
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else ("yes" if value else "") if isinstance(value, bool) else value
