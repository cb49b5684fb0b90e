"""`xylem models explain` and `tree`: what is found, told and refused."""

import json
from pathlib import Path

import pytest

from model_store.store import Store
from service.workflows.train import TrainRequest, train_and_publish
from tests.conftest import Run

WORDS = ("red", "green", "blue", "white")


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models whose labels are told apart by a word each: of each kind of trees."""
    folder = tmp_path_factory.mktemp("explained")
    file, texts = folder / "rows.jsonl", folder / "texts.jsonl"
    rows = [{"text": f"{word} n{i}", "labels": [f"is {word}"]} for word in WORDS for i in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows))
    home = Store(folder / "store")
    for name, trainer, data, parameters in (
        ("flat", "ovr", file, ()),
        ("trees", "label-tree", file, ("trees=2", "arity=2", "leaf_size=2")),
        ("hashed", "ovr", file, ("features.kind=hashing",)),
        ("forest", "fastxml", file, ("trees=2",)),
        ("next", "huffman-tree", texts, ("task=text", "dim=4", "epochs=1")),
    ):
        train_and_publish(home, name, TrainRequest(trainer, data, parameters=parameters))
    return folder / "store"


@pytest.mark.parametrize(("name", "n_trees"), [("flat", 1), ("trees", 2)])
def test_the_word_that_tells_a_label_comes_first(
    run_here: Run, explained: Path, name: str, n_trees: int
) -> None:
    done = run_here("models", "explain", name, "--label", "is blue", "--top", 3, "--json", store=explained)
    found = json.loads(done.stdout)
    assert (found["model"], found["version"], found["label"]) == (name, 1, "is blue")
    best = found["features"][0]
    assert best["feature"] == "blue" and best["weight"] > 0
    assert len(found["trees"]) == n_trees and all(len(tree["features"]) <= 3 for tree in found["trees"])
    done = run_here("models", "explain", name, "--label", "is blue", store=explained)
    assert "blue" in done.stdout and "told apart from" in done.stdout


def test_features_without_names_are_told_by_their_ids(run_here: Run, explained: Path) -> None:
    done = run_here("models", "explain", "hashed", "--label", "is red", "--json", store=explained)
    assert all(each["feature"].isdecimal() for each in json.loads(done.stdout)["features"])


@pytest.mark.parametrize(
    ("name", "label", "words"),
    [
        ("flat", "is black", "expected one of 4 labels, found 'is black'"),
        ("forest", "is red", "found decision trees"),
        ("next", "red", "found softmax nodes"),
        ("none", "is red", "none"),
    ],
)
def test_what_has_no_weights_is_refused(
    run_here: Run, explained: Path, name: str, label: str, words: str
) -> None:
    done = run_here("models", "explain", name, "--label", label, store=explained)
    assert (done.returncode, done.stdout) == (2, "") and words in done.stderr


@pytest.mark.parametrize(("name", "n_labels"), [("trees", 4), ("next", 14)])
def test_the_nodes_of_a_tree_are_told_by_their_labels(
    run_here: Run, explained: Path, name: str, n_labels: int
) -> None:
    done = run_here("models", "tree", name, "--depth", 2, "--labels", 2, "--json", store=explained)
    root, *others = json.loads(done.stdout)["nodes"]
    assert (root["place"], root["n_labels"]) == ([], n_labels)
    assert len(root["labels"]) == 2
    assert all(each["n_labels"] < n_labels and len(each["place"]) in (1, 2) for each in others)
    shown = run_here("models", "tree", name, "--labels", 2, store=explained).stdout
    assert f"root  {n_labels} labels, 100.0% of their occurrences: {', '.join(root['labels'])}, ..." in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("forest",), "expected a label tree, whose leaves are labels, found a decision-tree"),
        (("trees", "--tree", 2), "--tree: expected a number from 0 to 1, found 2"),
    ],
)
def test_a_tree_that_is_not_there_is_refused(
    run_here: Run, explained: Path, arguments: tuple[object, ...], said: str
) -> None:
    done = run_here("models", "tree", *arguments, store=explained)
    assert done.returncode == 2
    assert said in done.stderr
