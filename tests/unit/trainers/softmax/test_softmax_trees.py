"""huffman-tree and learned-tree: shapes, planted hierarchies, next words, odd corpora."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.measured import evaluate
from tests.helpers.trainings import Data, data_of, predictor_of, trained_by
from tests.oracles.label_trees import levels
from tests.oracles.problems import to_rows

from xylem.base.errors import BadInput, BadParameter
from xylem.base.executors.local import Crew
from xylem.base.rows import LabelRows, SparseRows
from xylem.base.settings import Limits
from xylem.engine.predictor import PredictOptions
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.predict.schema import ScoreRequest
from xylem.serving.dialects.scores.dialect import score_instances
from xylem.serving.live.opening import serve_model
from xylem.trainers import parse_parameters
from xylem.trainers.shape import Shape
from xylem.trainers.softmax import shapes, training as softmax_training
from xylem.trainers.softmax.shapes import FLAT_MAX, even_shape, topology_of
from xylem.trainers.softmax.updates import settle
from xylem.trainers.source import MemorySource, Tools, TrainingSet, count
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

both = pytest.mark.parametrize("name", ["huffman-tree", "learned-tree"])


def every_row_its_label(n: int) -> TrainingSet:
    return data_of(np.eye(n), np.eye(n) > 0)


@pytest.mark.parametrize(("n", "arity"), [(1, 2), (2, 2), (9, 3), (10, 3), (100, 7), (5, 64)])
def test_even_trees_have_the_fewest_levels(n: int, arity: int) -> None:
    shape = even_shape(np.arange(n, dtype=np.int32)[::-1].copy(), arity)
    assert shape.labels.tolist() == list(range(n))[::-1]
    topology = topology_of(shape, arity, n)
    assert topology.level.max() + 1 == max(1, math.ceil(math.log(n, arity) - 1e-9))
    assert (np.diff(shape.child_ptr) <= arity).all()


def test_after_the_tree_nodes_start_again_and_embeddings_go_on() -> None:
    topology = topology_of(even_shape(np.arange(4, dtype=np.int32), 2), 2, 4)
    parameters: Any = parse_parameters("learned-tree", ["dim=3", "arity=2", "optimiser=adagrad"])
    state = softmax_training._start(count(every_row_its_label(4)), parameters, topology, Tools(1))
    for part in (*state.network, *state.squares):
        part[...] = 2.0
    settle(state)
    for numbers in (state.network, state.squares):
        assert not numbers.weights.any()
        assert not numbers.bias.any()
        assert (numbers.embedding == 2).all()
        assert (numbers.transition == 2).all()


def planted(n_rows: int, seed: int, arity: int = 3) -> Data:
    """Rows of labels of a known hierarchy: a feature a branch, and noise; labels in
    random order.
    """
    rng = np.random.default_rng(seed)
    n_labels = arity**3
    branches = np.array(list(itertools.product(range(arity), repeat=3)))
    order = np.random.default_rng(5).permutation(n_labels)
    label = rng.integers(0, n_labels, n_rows)
    x = (rng.random((n_rows, 3 * arity + n_labels)) < 0.02).astype(float)
    for level in range(3):
        heard = rng.random(n_rows) < (0.98, 0.9, 0.6)[level]
        x[np.arange(n_rows)[heard], level * arity + branches[label[heard], level]] = 1.0
    return data_of(x, np.eye(n_labels)[order[label]] > 0)


def held_out_loss(name: str, *items: str) -> float:
    data, (rows, labels) = planted(3000, 1), planted(1000, 2)
    trained = trained_by(name, data, "arity=3", "dim=16", "epochs=12", *items, seed=3)
    logs = predictor_of(trained, data).score_labels(rows, labels.indptr, labels.indices).logs
    return float(-logs.mean())


@pytest.mark.parametrize(("statistics", "margin", "most"), [("means", 4, 1.02), ("paths", 0, 1.2)])
def test_a_planted_hierarchy_is_learnt_nearly_as_well(
    statistics: str, margin: Any, most: Any
) -> None:
    random = held_out_loss("huffman-tree", "tree=random")
    flat = held_out_loss("huffman-tree", "tree=flat")
    how = [
        "start=random",
        "updates=20",
        "depth=3",
        "slack=0",
        f"statistics={statistics}",
        f"margin={margin}",
    ]
    learned = held_out_loss("learned-tree", *how)
    assert learned < 0.75 * random
    assert learned < most * flat


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def written(texts: list[str], folder: Path) -> Path:
    return write_lines(folder / "texts.jsonl", [{"text": text} for text in texts])


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return written([" ".join(["one two three four"] * 6)] * 60, tmp_path)


def scored(served: Any, *instances: dict[str, Any]) -> Any:
    request = ScoreRequest.model_validate({"instances": list(instances)})
    return json.loads(dump(score_instances(request.instances, served, Limits())))


def texts_of_classes(n: int, seed: int) -> list[str]:
    """Return texts of 200 words in 8 classes, most of them rare: a class tells the next one."""
    rng = np.random.default_rng(seed)
    following, names = (np.random.default_rng(7).permutation(size) for size in (8, 200))
    share = 1 / np.arange(1, 26)
    texts = []
    for group in rng.integers(8, size=n):
        words = []
        for place in rng.choice(25, 20, p=share / share.sum()):
            words.append(f"word{names[group * 25 + place]}")
            group = following[group] if rng.random() < 0.85 else rng.integers(8)
        texts.append(" ".join(words))
    return texts


def test_a_learned_tree_of_few_texts_is_better_by_default(tmp_path: Path) -> None:
    """With the margin of labels it was no better than Huffman's: rare words did not move."""
    test = write_lines(tmp_path / "test.jsonl", [{"text": t} for t in texts_of_classes(200, 2)])
    data, perplexity = written(texts_of_classes(400, 1), tmp_path), {}
    for trainer in ("huffman-tree", "learned-tree"):
        request = TrainRequest(
            trainer=trainer, data=data, parameters=["task=text", "dim=16", "arity=8"]
        )
        store = Store(tmp_path / trainer)
        train_and_publish(store, "words", request)
        perplexity[trainer] = evaluate(store.open("words"), test)["perplexity"]
    assert perplexity["learned-tree"] < 0.985 * perplexity["huffman-tree"]


@pytest.mark.parametrize(
    ("items", "margin"),
    [([], 8), (["task=text"], 0), (["task=text", "margin=8"], 8), (["margin=0"], 0)],
)
def test_the_usual_margin_depends_on_the_task(items: list[str], margin: float) -> None:
    parameters: Any = parse_parameters("learned-tree", items)
    assert parameters.learns().rule.margin == margin
    assert parameters.first_tree() == "huffman"


@pytest.mark.parametrize("value", ["-1", "much", "inf", "null"])
def test_a_margin_is_auto_or_a_number(value: str) -> None:
    with pytest.raises(BadParameter, match=rf"margin: expected auto or .*, found .*{value}"):
        parse_parameters("learned-tree", [f"margin={value}"])


@pytest.mark.parametrize(
    ("trainer", "items"),
    [
        ("huffman-tree", ["transition=full", "dim=6", "window=2"]),
        ("learned-tree", ["arity=2", "dim=8"]),
        (
            "learned-tree",
            ["arity=3", "dim=8", "statistics=paths", "slack=0", "optimiser=sgd", "rate=0.1"],
        ),
    ],
)
def test_next_words_of_a_cycle_are_certain(
    trainer: str, items: list[str], texts: Path, store: Store
) -> None:
    request = TrainRequest(
        trainer=trainer,
        data=texts,
        valid=texts,
        parameters=["task=text", "epochs=8", *items],
        seed=1,
    )
    train_and_publish(store, "words", request)
    model = store.open("words")
    assert model.manifest.features["kind"] == "context"
    report = evaluate(model, texts)
    assert 1 <= report["perplexity"] < 1.3  # the end of a text comes after four, as one does
    assert report["without_probability"] == 0
    served = serve_model(model)
    asked = {"text": "one two three", "sequence": True}
    sequence, named = scored(served, asked, {"text": "one", "labels": ["two"]})
    assert [label["label"] for label in sequence["labels"]] == ["one", "two", "three", "</s>"]
    log = sum(label["log_score"] for label in sequence["labels"])
    assert sequence["log_score"] == pytest.approx(log, rel=1e-5)
    assert sequence["perplexity"] == pytest.approx(math.exp(-log / 4), rel=1e-5)
    assert named["labels"][0]["score"] > 0.9
    rows = served.featurizer.transform_texts(["four one two", "", "nobody knows"])
    found = served.predictor.predict(rows, PredictOptions(top_r=1))
    assert served.labels.n_names == 7
    assert found.labels[0] == served.featurizer.transform_texts(["three"]).indices[0]


@both
@pytest.mark.parametrize("texts", [["yes"] * 5, ["", "a"], ["rare"]])
def test_a_corpus_of_one_word_and_short_texts_are_models_too(
    name: str, texts: Any, store: Any, tmp_path: Path
) -> None:
    data = written(texts, tmp_path)
    train_and_publish(
        store, "m", TrainRequest(trainer=name, data=data, valid=data, parameters=["task=text"])
    )
    assert np.isfinite(float(evaluate(store.open("m"), data)["log_loss"] or 0))


@pytest.mark.parametrize(
    ("name", "items", "message"),
    [
        (
            "learned-tree",
            ["depth=1", "arity=3"],
            r"depth: expected room for 9 labels, found 3\^1 = 3",
        ),
        ("huffman-tree", ["task=text", "window=4"], "task: expected labels"),
    ],
)
def test_what_does_not_fit_to_the_rows_is_refused(
    name: str, items: list[str], message: str
) -> None:
    with pytest.raises(BadParameter, match=message):
        trained_by(name, every_row_its_label(9), *items)


@pytest.mark.parametrize("stream", [False, True])
def test_next_words_are_learnt_of_features_without_a_norm(
    stream: Any, texts: Any, store: Any, tmp_path: Path
) -> None:
    numeric = tmp_path / "rows.txt"
    numeric.write_text("1 2 2\n0 0:1\n")
    for data, more in ((numeric, []), (texts, ["features.norm=l1"])):
        request = TrainRequest(
            trainer="huffman-tree",
            data=data,
            valid=None,
            parameters=["task=text", *more],
            stream=stream,
        )
        with pytest.raises(BadInput, match=r"expected.*found"):
            train_and_publish(store, "m", request)
    assert store.models() == []


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def clustered(vectors: np.ndarray, arity: int, threads: int = 1) -> Shape:
    n = len(vectors)
    labels = np.arange(n, dtype=np.int32) * 2  # not all labels have a leaf
    counts = np.arange(n, dtype=np.int64)[::-1] + 1
    return shapes.clustered_shape(vectors, labels, counts, arity, Tools(3, Crew(threads)))


@pytest.mark.parametrize(
    ("n", "arity"), [(1, 2), (2, 2), (3, 20), (64, 4), (65, 4), (100, 7), (40, 2)]
)
def test_every_label_has_a_leaf_and_no_node_is_over_full(n: int, arity: int) -> None:
    rng = np.random.default_rng(n)
    for vectors in (unit(rng.standard_normal((n, 5))), np.zeros((n, 5), np.float32)):
        shape = clustered(vectors, arity)
        assert sorted(shape.labels.tolist()) == list(range(0, 2 * n, 2))
        assert np.diff(shape.child_ptr).max() <= arity
        n_levels = next(h for h in range(1, 20) if arity**h >= n)
        assert (shape.last - shape.first <= arity ** (n_levels - levels(shape.child_ptr))).all()
        assert clustered(vectors, arity, 2).labels.tobytes() == shape.labels.tobytes()


def test_labels_of_like_vectors_share_nodes() -> None:
    rng = np.random.default_rng(1)
    group = rng.permutation(np.repeat(np.arange(4), 4))
    vectors = unit(np.eye(4)[group] + 0.05 * rng.standard_normal((16, 4)))
    shape = clustered(vectors, 4)
    for part in shape.labels.reshape(4, 4) // 2:
        assert len(set(group[part].tolist())) == 1


def test_frequent_labels_choose_first_among_clusters_with_room() -> None:
    vectors = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], np.float32)
    chosen = shapes._fill(vectors, np.eye(2, dtype=np.float32), np.array([1, 5, 5, 2]), 2)
    assert chosen.tolist() == [1, 0, 0, 1]


def test_a_label_lies_at_its_rows_and_a_word_at_its_embedding() -> None:
    embedding = np.array([[3, 4], [0, 2], [0, 0]], np.float32)
    data = data_of(np.diag([1, 2, 1]), np.eye(3) > 0)
    every = np.arange(3, dtype=np.int32)
    for are_words in (True, False):
        found = shapes.label_vectors(MemorySource(data), every, embedding, are_words)
        np.testing.assert_allclose(found, [[0.6, 0.8], [0, 1], [0, 0]], atol=1e-6)


def many_labels(n_labels: int) -> TrainingSet:
    """16 rows that carry all labels between them."""
    indptr = np.linspace(0, n_labels, 17).astype(np.int64)
    labels = LabelRows(indptr, np.arange(n_labels, dtype=np.int32), n_labels)
    return TrainingSet(to_rows(np.eye(16)), labels)


def scores_of_all(predictor: Any, row: SparseRows, n_labels: int) -> np.ndarray:
    every = np.arange(n_labels, dtype=np.int32)
    scores: np.ndarray = predictor.score_labels(row, np.array([0, n_labels]), every).scores
    return scores.astype(np.float64)


def test_a_flat_tree_takes_65536_labels_and_not_one_more() -> None:
    items = ("tree=flat", "dim=2", "epochs=1")
    with pytest.raises(
        BadParameter, match="tree: expected flat for at most 65536 labels, found 65537"
    ):
        trained_by("huffman-tree", many_labels(FLAT_MAX + 1), *items)
    data = many_labels(FLAT_MAX)
    trained = trained_by("huffman-tree", data, *items)
    assert len(trained.ensemble.directory) == 1
    predictor, row = predictor_of(trained, data), data.rows.cut(0, 1)
    scores = scores_of_all(predictor, row, FLAT_MAX)
    assert abs(scores.sum() - 1) < 1e-5
    found = predictor.predict(row, PredictOptions(top_r=3, exact=True))
    assert found.scores.tolist() == np.sort(scores)[::-1][:3].tolist()


@both
def test_parameters_that_memory_cannot_hold_are_refused_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax_training, "memory_bytes", lambda: 1 << 20)
    rows, labels = every_row_its_label(3)
    with pytest.raises(
        BadParameter, match=r"dim: expected embeddings of 1048576 words .*1 MiB.*found"
    ):
        trained_by(name, (rows._replace(n_features=1 << 20), labels))


KINDS = [
    *(
        ("huffman-tree", f"tree={tree}")
        for tree in ("huffman", "random", "kmeans", "clustered", "flat")
    ),
    *(("learned-tree", f"start={start}") for start in ("huffman", "random", "kmeans")),
]


@pytest.mark.parametrize(("name", "item"), KINDS)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 4])
def test_fewer_labels_than_children_and_empty_rows_are_learnt(
    name: str, item: str, n_labels: int
) -> None:
    x = np.eye(8)
    x[3] = 0
    y = np.zeros((8, n_labels + 1), bool)  # the last label is on no row
    y[np.arange(8), np.arange(8) % n_labels] = True
    y[6] = False
    data = data_of(x, y)
    predictor = predictor_of(trained_by(name, data, item, "arity=4096", "epochs=2", "dim=3"), data)
    for row in (to_rows(x[:1]), to_rows(np.zeros((1, 8)))):
        scores = scores_of_all(predictor, row, n_labels + 1)
        assert scores[:-1].sum() == pytest.approx(1, abs=1e-5)
        assert scores[-1] == 0, "a label that no row carries has no leaf"
        found = predictor.predict(row, PredictOptions(top_r=9, exact=True))
        assert sorted(found.labels.tolist()) == list(range(n_labels))


@both
def test_what_cannot_be_published_is_refused_and_nothing_is(
    name: str, store: Store, tmp_path: Path
) -> None:
    n, rows = 300, tmp_path / "rows.txt"
    rows.write_text(f"{n} {n} {n}\n" + "".join(f"{i} {i}:1\n" for i in range(n)))
    items = (
        ["arity=300", "epochs=1", "dim=2"] if name == "learned-tree" else ["tree=flat", "epochs=1"]
    )
    wide = TrainRequest(trainer=name, data=rows, valid=None, parameters=items, weights="int8")
    wordless = TrainRequest(
        trainer=name, data=written(["", "  "], tmp_path), valid=None, parameters=["task=text"]
    )
    for request, message in (
        (wide, "int8: node 0: expected at most 256 children for int8, found 300"),
        (wordless, "expected texts with words, found none"),
        (
            TrainRequest(trainer=name, data=rows, valid=None, parameters=["trees=3"]),
            r"trees.*expected.*found",
        ),
    ):
        with pytest.raises(BadInput, match=message):
            train_and_publish(store, "m", request)
    assert store.models() == []


@both
def test_unknown_words_and_texts_below_the_window_are_scored(
    name: str, store: Any, tmp_path: Path
) -> None:
    data = written(["a b", "b a", "rare"] * 4, tmp_path)
    items = ["task=text", "window=16", "epochs=2", "dim=4", "min_count=8"]
    train_and_publish(
        store, "words", TrainRequest(trainer=name, data=data, valid=None, parameters=items)
    )
    served = serve_model(store.open("words"))
    scores = scored(
        served, *({"text": text, "sequence": True} for text in ("b never seen", "a", ""))
    )
    words = [[label["label"] for label in one["labels"]] for one in scores]
    assert words == [["b", "<unk>", "<unk>", "</s>"], ["a", "</s>"], ["</s>"]]
    assert all(np.isfinite(one["log_score"]) and one["perplexity"] >= 1 for one in scores)
    rows = served.featurizer.transform_texts(["", "never", "a b"])
    found = served.predictor.predict(rows, PredictOptions(top_r=1))
    assert np.diff(found.ptr).tolist() == [1, 1, 1]
