"""`xylem models explain` and `tree`: what speaks for a label and against it, and the nodes above it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.console import print_facts, print_json, print_line, print_table
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference
from service.errors import BadInput, BadParameter

app = typer.Typer(help="Labels of a version: a part of `xylem models`.")

Label = Annotated[str, typer.Option("--label", metavar="LABEL", help="The label, by its name.")]
Top = Annotated[int, typer.Option(min=1, max=10_000, help="So many features.")]
Depth = Annotated[int, typer.Option(min=0, max=20, help="Levels below the root.")]
Labels = Annotated[int, typer.Option(min=1, max=1000, help="So many labels of each node: of most rows.")]
Tree = Annotated[int, typer.Option("--tree", min=0, help="Which tree of an ensemble, from 0.")]

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


@app.command()
def tree(
    model: Model,
    depth: Depth = 1,
    labels: Labels = 8,
    number: Tree = 0,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show the nodes of a label tree: how many labels each has, how often, and the most frequent."""
    import numpy as np

    from model_store.names import name_of
    from model_store.store import Store
    from service.evaluation.tree_labels import tree_labels

    name, reference = parse_reference(model)
    opened = Store(store).open(name, reference)
    n_trees, kind = opened.ensemble.label_leaf.shape[0], opened.manifest.kind
    if kind != "label-tree":
        raise BadInput(f"{name}: expected a label tree, whose leaves are labels, found a {kind}")
    if number >= n_trees:
        raise BadParameter(f"--tree: expected a number from 0 to {n_trees - 1}, found {number}")
    counts = opened.arrays.get("labels/counts", np.zeros(opened.manifest.n_labels, np.int64))
    nodes = tree_labels(opened.ensemble, counts, tree=number, depth=depth, n_labels=labels)
    told = [[name_of(opened.labels, int(label)) for label in node.labels] for node in nodes]
    if json:
        found = [
            {"place": node.place, "n_labels": node.n_labels, "n_rows": node.n_rows, "labels": each}
            for node, each in zip(nodes, told, strict=True)
        ]
        print_json({"model": name, "version": opened.manifest.version, "tree": number, "nodes": found})
        return
    n_rows = max(1, nodes[0].n_rows)
    print_line(f"{name}@{opened.manifest.version}, tree {number}")
    for node, each in zip(nodes, told, strict=True):
        place = ".".join(map(str, node.place)) or "root"
        share = f"{100 * node.n_rows / n_rows:.1f}% of their occurrences"
        more = ", ..." if node.n_labels > len(each) else ""
        indent = "  " * len(node.place)
        print_line(f"{indent}{place}  {node.n_labels:,} labels, {share}: {', '.join(each)}{more}")
