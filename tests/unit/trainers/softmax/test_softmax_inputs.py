"""Softmax trees on poor input: an answer or a clear error for each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from model_store.store import Store
from service.base.errors import BadInput
from service.base.settings import Limits
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.serving.opening import serve_model
from service.serving.schemas.score import ScoreRequest
from service.serving.scores import answer_scores
from service.trainers import parse_parameters, train
from service.workflows.choose_features import trial_model
from service.workflows.train import TrainRequest, train_and_publish
from tests.oracles.problems import to_labels, to_rows

both = pytest.mark.parametrize("name", ["huffman-tree", "learned-tree"])
KINDS = [
    *(("huffman-tree", f"tree={tree}") for tree in ("huffman", "random", "kmeans", "clustered", "flat")),
    *(("learned-tree", f"start={start}") for start in ("huffman", "random", "kmeans")),
]


@pytest.mark.parametrize(("name", "item"), KINDS)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 4])
def test_fewer_labels_than_children_rows_without_features_and_labels_never_seen(
    name: str, item: str, n_labels: int
) -> None:
    x = np.eye(8)
    x[3] = 0
    y = np.zeros((8, n_labels + 1), bool)  # the last label is on no row
    y[np.arange(8), np.arange(8) % n_labels] = True
    y[6] = False
    parameters = parse_parameters(name, [item, "arity=4096", "epochs=2", "dim=3"])
    trained = train(name, parameters, to_rows(x), to_labels(y))
    predictor = make_predictor(trial_model(trained, n_labels + 1, 8))
    every = np.arange(n_labels + 1, dtype=np.int32)
    for row in (to_rows(x[:1]), to_rows(np.zeros((1, 8)))):
        scores = predictor.score_labels(row, np.array([0, n_labels + 1]), every).scores
        assert scores[:-1].sum() == pytest.approx(1, abs=1e-5)
        assert scores[-1] == 0, "a label that no row carries has no leaf"
        found = predictor.predict(row, PredictOptions(top_r=9, exact=True))
        assert sorted(found.labels.tolist()) == every[:-1].tolist()


@both
def test_there_is_one_tree_and_asking_for_more_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"trees.*expected.*found"):
        parse_parameters(name, ["trees=3"])


@both
def test_a_node_too_wide_for_int8_is_refused_and_nothing_is_published(name: str, tmp_path: Path) -> None:
    n = 300
    data = tmp_path / "rows.txt"
    data.write_text(f"{n} {n} {n}\n" + "".join(f"{i} {i}:1\n" for i in range(n)))
    items = ["arity=300", "epochs=1", "dim=2"] if name == "learned-tree" else ["tree=flat", "epochs=1"]
    store = Store(tmp_path / "store")
    with pytest.raises(BadInput, match="int8: node 0: expected at most 256 children for int8, found 300"):
        train_and_publish(store, "m", TrainRequest(name, data, None, items, weights="int8"))
    assert store.models() == []


@both
def test_words_that_are_unknown_and_texts_shorter_than_the_window_are_scored(
    name: str, tmp_path: Path
) -> None:
    data, store = tmp_path / "texts.jsonl", Store(tmp_path / "store")
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in ["a b", "b a", "rare"] * 4))
    items = ["task=text", "window=16", "epochs=2", "dim=4", "min_count=8"]
    train_and_publish(store, "words", TrainRequest(name, data, None, items))
    served = serve_model(store.open("words"))
    body = {"instances": [{"text": text, "sequence": True} for text in ("b never seen", "a", "")]}
    scores = json.loads(answer_scores(ScoreRequest.model_validate(body), served, Limits()))["scores"]
    words = [[label["label"] for label in one["labels"]] for one in scores]
    assert words == [["b", "<unk>", "<unk>", "</s>"], ["a", "</s>"], ["</s>"]]
    assert all(np.isfinite(one["log_score"]) and one["perplexity"] >= 1 for one in scores)
    rows = served.featurizer.transform_texts(["", "never", "a b"])
    found = served.predictor.predict(rows, PredictOptions(top_r=1))
    assert np.diff(found.ptr).tolist() == [1, 1, 1]


@both
def test_texts_without_a_word_are_refused(name: str, tmp_path: Path) -> None:
    data, store = tmp_path / "texts.jsonl", Store(tmp_path / "store")
    data.write_text('{"text": ""}\n{"text": "  "}\n')
    with pytest.raises(BadInput, match="expected texts with words, found none"):
        train_and_publish(store, "words", TrainRequest(name, data, None, ["task=text"]))
    assert store.models() == []
