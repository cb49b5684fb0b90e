"""`xylem models explain` and `tree`: what is found, told and refused."""

from pathlib import Path

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.unit.cli.conftest import Cli

from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models whose labels are told apart by a word each: of each kind of trees."""
    folder = tmp_path_factory.mktemp("explained")
    colours = [
        (f"{colour} n{i}", colour) for colour in ("red", "green", "blue", "white") for i in range(9)
    ]
    rows = [{"text": text, "labels": [f"is {colour}"]} for text, colour in colours]
    file = write_lines(folder / "rows.jsonl", rows)
    texts = write_lines(folder / "texts.jsonl", [{"text": text} for text, _ in colours])
    for name, trainer, data, parameters in (
        ("flat", "ovr", file, ()),
        ("trees", "label-tree", file, ("trees=2", "arity=2", "leaf_size=2")),
        ("hashed", "ovr", file, ("features.kind=hashing",)),
        ("forest", "fastxml", file, ("trees=2",)),
        ("next", "huffman-tree", texts, ("task=text", "dim=4", "epochs=1")),
    ):
        request = TrainRequest(trainer=trainer, data=data, parameters=parameters)
        train_and_publish(Store(folder / "store"), name, request)
    return folder / "store"


@pytest.mark.parametrize(("name", "n_trees"), [("flat", 1), ("trees", 2)])
def test_the_word_that_tells_a_label_comes_first(cli: Cli, name: str, n_trees: int) -> None:
    command = ("models", "explain", name, "--label", "is blue")
    found = cli.answers(*command, "--top", 3)
    assert (found["model"], found["version"], found["label"]) == (name, 1, "is blue")
    best = found["features"][0]
    assert best["feature"] == "blue" and best["weight"] > 0
    assert len(found["trees"]) == n_trees and all(
        len(tree["features"]) <= 3 for tree in found["trees"]
    )
    told = cli.says(*command)
    assert "blue" in told and "told apart from" in told


def test_features_without_names_are_told_by_their_ids(cli: Cli) -> None:
    found = cli.answers("models", "explain", "hashed", "--label", "is red")
    assert all(each["feature"].isdecimal() for each in found["features"])


@pytest.mark.parametrize(("name", "n_labels"), [("trees", 4), ("next", 14)])
def test_the_nodes_of_a_tree_are_told_by_their_labels(cli: Cli, name: str, n_labels: int) -> None:
    root, *others = cli.answers("models", "tree", name, "--depth", 2, "--labels", 2)["nodes"]
    assert (root["place"], root["n_labels"], len(root["labels"])) == ([], n_labels, 2)
    assert all(each["n_labels"] < n_labels and len(each["place"]) in (1, 2) for each in others)
    shown = cli.says("models", "tree", name, "--labels", 2)
    assert (
        f"root  {n_labels} labels, 100.0% of their occurrences: {', '.join(root['labels'])}, ..."
        in shown
    )


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            ("explain", "flat", "--label", "is black"),
            "expected a label of the model, found 'is black'",
        ),
        (("explain", "forest", "--label", "is red"), "found decision trees"),
        (("explain", "next", "--label", "red"), "found softmax nodes"),
        (("explain", "none", "--label", "is red"), "none"),
        (
            ("tree", "forest"),
            "expected a label tree, whose leaves are labels, found a decision-tree",
        ),
        (("tree", "trees", "--tree", 2), "--tree: expected a number from 0 to 1, found 2"),
    ],
)
def test_what_is_not_there_is_refused(cli: Cli, arguments: tuple[object, ...], fault: str) -> None:
    cli.refuses(fault, "models", *arguments)
