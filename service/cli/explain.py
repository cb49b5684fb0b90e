"""`xylem models explain`: the features that speak most for a label, and those that speak against it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.console import print_facts, print_json, print_table
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference

app = typer.Typer(help="Labels of a version: a part of `xylem models`.")

Label = Annotated[str, typer.Option("--label", metavar="LABEL", help="The label, by its name.")]
Top = Annotated[int, typer.Option(min=1, max=10_000, help="So many features.")]

_TREES_SHOWN = 5
"""Of more trees only the means are in the table; --json has all."""


@app.command()
def explain(
    model: Model,
    label: Label,
    top: Top = 20,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show the features that a label's own classifiers weigh most, by name.

    In a tree that is the classifier of the label's leaf, which tells it apart from the leaf's siblings. With
    several trees the weights are means. A weight above 0 speaks for the label, one below 0 against it.
    """
    from model_store.store import Store
    from service.inference.label_features import label_features

    name, reference = parse_reference(model)
    found = label_features(Store(store).open(name, reference), label, top)
    if json:
        print_json(found)
        return
    trees: list[dict[str, Any]] = found["trees"][:_TREES_SHOWN] if len(found["trees"]) > 1 else []
    of_trees = [{each["feature"]: each["weight"] for each in tree["features"]} for tree in trees]
    rows = [
        (each["feature"], each["weight"], *(weights.get(each["feature"], "") for weights in of_trees))
        for each in found["features"]
    ]
    heads = ("feature", "mean weight" if trees else "weight", *(f"tree {tree['tree']}" for tree in trees))
    print_table(f"{found['model']}@{found['version']}: {label}", heads, rows)
    facts = {
        f"tree {tree['tree']}": f"leaf {tree['leaf']}, at depth {tree['depth']}, told apart from "
        f"{tree['siblings']:,} siblings; bias {tree['bias']:.2f}"
        for tree in found["trees"][:_TREES_SHOWN]
    }
    print_facts("", facts)
