"""`xylem models label-info`, `explain` and `tree`: what is known about labels."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

import xylem_store
from xylem import engine, serving, trainers, vocabulary, workflows
from xylem.base import BadInput, BadParameter
from xylem.cli.console import (
    complain,
    print_facts,
    print_json,
    print_line,
    print_result,
    print_summary,
    print_table,
)
from xylem.cli.options import DEFAULT_STORE, Json, Model, ModelName, StoreDir
from xylem.cli.places import open_model

app = Typer(help="Labels of a version: a part of `xylem models`.")


BY_URI = "uri"

KeyKind = Annotated[
    str,
    Option(
        "--by",
        metavar="uri|notation|LANGUAGE",
        help="What the labels are: URIs, notations, or names in a language.",
    ),
]


FirstName = Annotated[
    bool,
    Option(
        "--first-name",
        help="Of two prefLabels of SKOS in a language the first one is the name; the others are "
        "further names.",
    ),
]


def read_vocabulary(
    file: Path, by: str = BY_URI, language: str | None = None, *, first_name: bool = False
) -> "xylem_store.LabelInfo":
    """Read a vocabulary as label info, and complain of what is doubtful in it."""

    return vocabulary.read_label_info(
        file,
        by,
        language,
        first_name=first_name,
        on_finding=lambda finding: complain(f"warning: {file.name}: {finding}"),
    )


@app.command("label-info")
def label_info(
    model: ModelName,
    file: Annotated[
        Path | None,
        Argument(
            metavar="FILE",
            help="A vocabulary: .ttl, .rdf, .nt, .tsv or .csv, also as .gz; replaces what "
            "was there.",
        ),
    ] = None,
    by: KeyKind = BY_URI,
    language: Annotated[
        str | None,
        Option(
            metavar="LANGUAGE", help="Language of names by default; of a .tsv file, its language."
        ),
    ] = None,
    first_name: FirstName = False,
    remove: Annotated[bool, Option("--remove", help="Remove the model's label info.")] = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Give a model's labels URIs, names by language, notations, broader subjects; or show them.

    Label info belongs to the model and all its versions. Running servers follow without a restart.
    """

    model_store = serving.store_of(store)
    if remove:
        if file is not None:
            raise BadParameter("--remove cannot be used with FILE")
        removed = model_store.delete_label_info(model)
        print_result(
            json,
            f"{model}: label info {'removed' if removed else 'was none'}",
            model=model,
            removed=removed,
        )
    elif file is not None:
        model_store.resolve(model)  # before a long file is read
        _print(
            workflows.attach_label_info(
                model_store, model, read_vocabulary(file, by, language, first_name=first_name)
            ),
            json,
        )
    else:
        model_store.resolve(model)
        info = model_store.label_info(model)
        if info is None:
            raise BadInput(
                f"{model}: expected label info, found none: xylem models label-info {model} FILE"
            )
        _print(workflows.attached_info(model_store, model, info), json)


def _print(info: "workflows.Attached", json: bool) -> None:
    facts = info._asdict()
    print_summary(
        json,
        facts,
        f"Label info of {info.model}",
        {name.replace("_", " "): value for name, value in facts.items() if name != "model"},
    )


_LISTED_TREES_MAX = 5  # most trees with a column in the table; --json has all


@app.command()
def explain(
    model: Model,
    label: Annotated[str, Option("--label", metavar="LABEL", help="The label, or its name.")],
    top: Annotated[int, Option(min=1, max=10_000, help="Number of features.")] = 20,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show the features with the largest weights for a label, by name.

    In a tree they are those of the classifier of the label's leaf, which separates it from the
    leaf's siblings. With several trees the weights are means. A weight above 0 speaks for the
    label, one below 0 against it.
    """

    opened_model = open_model(store, model)
    ids, _ = engine.label_ids(
        opened_model.labels,
        [label],
        lambda _: "--label",
        serving.store_of(store).label_info(opened_model.manifest.model),
    )
    explanation = serving.label_features(opened_model, int(ids[0]), top)
    if json:
        print_json(explanation)
        return
    trees: list[dict[str, Any]] = (
        explanation["trees"][:_LISTED_TREES_MAX] if len(explanation["trees"]) > 1 else []
    )
    tree_weights = [
        {entry["feature"]: entry["weight"] for entry in tree["features"]} for tree in trees
    ]
    print_table(
        f"{opened_model.manifest.full_name}: {explanation['label']}",
        (
            "feature",
            "mean weight" if trees else "weight",
            *(f"tree {tree['tree']}" for tree in trees),
        ),
        [
            (
                entry["feature"],
                entry["weight"],
                *(weights.get(entry["feature"], "") for weights in tree_weights),
            )
            for entry in explanation["features"]
        ],
    )
    print_facts(
        "",
        {
            f"tree {tree['tree']}": f"leaf {tree['leaf']}, at depth {tree['depth']}, told apart "
            f"from {tree['siblings']:,} siblings; bias {tree['bias']:.2f}"
            for tree in explanation["trees"][:_LISTED_TREES_MAX]
        },
    )


@app.command()
def tree(
    model: Model,
    depth: Annotated[int, Option(min=0, max=20, help="Levels below the root.")] = 1,
    labels: Annotated[
        int, Option(min=1, max=1000, help="Labels to show of each node: the most frequent.")
    ] = 8,
    number: Annotated[int, Option("--tree", min=0, help="Which tree of an ensemble, from 0.")] = 0,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Show the nodes of a label tree: the number of labels of each, and the most frequent ones."""
    import numpy as np

    opened_model = open_model(store, model)
    n_trees = opened_model.ensemble.label_leaf.shape[0]
    kind = opened_model.manifest.kind
    if kind != "label-tree":
        raise BadInput(
            f"{opened_model.manifest.model}: expected a label tree, whose leaves are labels, "
            f"found a {kind}"
        )
    if number >= n_trees:
        raise BadParameter(f"--tree: expected a number from 0 to {n_trees - 1}, found {number}")
    nodes = trainers.tree_labels(
        opened_model.ensemble,
        opened_model.arrays.get(
            "labels/counts", np.zeros(opened_model.manifest.n_labels, np.int64)
        ),
        tree=number,
        depth=depth,
        n_labels=labels,
    )
    label_names = [
        [xylem_store.name_of(opened_model.labels, int(label)) for label in node.labels]
        for node in nodes
    ]
    if json:
        print_json(
            {
                "model": opened_model.manifest.model,
                "version": opened_model.manifest.version,
                "tree": number,
                "nodes": [
                    {
                        "place": node.place,
                        "n_labels": node.n_labels,
                        "n_rows": node.n_rows,
                        "labels": names,
                    }
                    for node, names in zip(nodes, label_names, strict=True)
                ],
            }
        )
        return
    n_rows = max(1, nodes[0].n_rows)
    print_line(f"{opened_model.manifest.full_name}, tree {number}")
    for node, names in zip(nodes, label_names, strict=True):
        place = ".".join(map(str, node.place)) or "root"
        ellipsis = ", ..." if node.n_labels > len(names) else ""
        print_line(
            f"{'  ' * len(node.place)}{place}  {node.n_labels:,} labels, "
            f"{100 * node.n_rows / n_rows:.1f}% of their occurrences: {', '.join(names)}{ellipsis}"
        )
