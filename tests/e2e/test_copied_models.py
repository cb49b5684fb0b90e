"""Copies of models in processes of their own: where their originals never were, or are no more."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")
import joblib
from tests.helpers.copied_models import LABELS, TEXTS, answers_of, estimator_data
from tests.helpers.modules import run_module

import xylem
from xylem_store.store import Store


def check(what: str, folder: Path) -> None:
    done = run_module("tests.helpers.copied_models", what, folder)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_pickles_answer_the_same_in_another_process(own_store: Store, tmp_path: Path) -> None:
    X, Y = estimator_data()
    named = [{"x": 1.0, "y": 2.0}, {"z": 1.5}] * 8
    models: dict[str, tuple[Any, Any]] = {
        "estimator": (xylem.LabelTreeClassifier(trees=2).fit(X, Y), X),
        "texts": (xylem.train(TEXTS, LABELS, trees=2, weights="int8"), TEXTS),
        "named": (xylem.train(named, [["a"], ["b"]] * 8, trainer="ovr"), named),
        "forest": (xylem.train(X, Y, trainer="fastxml", trees=2), X),
        "softmax": (xylem.train(X, Y, trainer="huffman-tree"), X),
        "loaded": (xylem.load(own_store.root, "text"), TEXTS),
    }
    folder = tmp_path / "files"
    folder.mkdir()
    for name, (model, rows) in models.items():
        told = model, rows, answers_of(model, rows)
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(told))
        joblib.dump(told, folder / f"{name}.joblib", compress=name == "texts")
    del models, model, told
    shutil.rmtree(own_store.root)  # a pickle of a version needs no store
    check("loaded", folder)


@pytest.mark.parametrize("what", ["copied", "in-workers"])
def test_copies_outlive_their_originals(what: str, tmp_path: Path) -> None:
    check(what, tmp_path)
