"""Models in this process that take a vector beside each text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.jobs_helpers import write_data
from tests.helpers.vectors import NUMBERS, vectors_of

import xylem
from xylem.errors import BadInput

Rows = tuple[list[str], list[list[str]], Any]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    path = write_data(tmp_path_factory.mktemp("rows") / "rows.jsonl", 150, seed=4, noise=0.2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    texts = [line["text"] for line in lines]
    return texts, [line["labels"] for line in lines], vectors_of(texts)


@pytest.fixture(scope="module")
def model(rows: Rows) -> xylem.Model:
    texts, labels, vectors = rows
    return xylem.train(texts, labels, vectors=vectors, vectors_dims=9, vectors_weight=1.0)


def test_a_model_answers_by_texts_and_vectors(
    rows: Rows, model: xylem.Model, tmp_path: Path
) -> None:
    texts, labels, vectors = rows
    predictions = model.predict(texts, vectors=vectors)
    assert predictions != model.predict(texts, vectors=-vectors)
    assert model.predict(texts[3:4], vectors=vectors[3:4]) == predictions[3:4]
    assert model.predict(texts, vectors=vectors.astype(np.float64).tolist()) == predictions
    model.save(tmp_path, "m")
    loaded = xylem.load(tmp_path, "m")
    assert loaded.predict(texts, vectors=vectors) == predictions
    figures = [each.evaluate(texts, labels, vectors=vectors) for each in (model, loaded)]
    assert figures[0]["P@1"] == figures[1]["P@1"] > 80
    tuned = model.tune_thresholds(texts, labels, vectors=vectors)
    assert any(tuned.predict(texts, threshold="tuned", vectors=vectors))
    calibrated = model.calibrate(texts[:140], labels[:140], vectors=vectors[:140])
    assert calibrated.predict(texts, vectors=vectors) != predictions
    names = [[label for label, _ in row] for row in predictions]
    scores = model.score(texts, names, vectors=vectors)
    assert [row[0].label for row in scores] == [row[0] for row in names]


def test_the_same_vectors_give_the_same_model(rows: Rows, model: xylem.Model) -> None:
    texts, labels, vectors = rows
    for threads in (1, 2):
        again = xylem.train(
            texts, labels, vectors=vectors, vectors_dims=9, vectors_weight=1.0, threads=threads
        )
        arrays = again._opened.arrays
        for name, array in model._opened.arrays.items():
            assert array.tobytes() == arrays[name].tobytes(), name
    other = xylem.train(texts, labels, vectors=-vectors, vectors_dims=9)
    assert other._opened.manifest.data.sha256 != model._opened.manifest.data.sha256


def test_chunks_of_a_text_have_its_vector(rows: Rows, model: xylem.Model) -> None:
    long, vector = " ".join(rows[0]), rows[2][:1]
    (chunked,) = model.predict([long], chunk_characters=500, vectors=vector)
    assert chunked != model.predict([long], vectors=vector)[0]
    short = model.predict(rows[0], chunk_characters=500, vectors=rows[2])
    assert [row[0].label for row in short] == [
        row[0].label for row in model.predict(rows[0], vectors=rows[2])
    ]


def test_a_model_of_words_is_compared_with_one_of_vectors(rows: Rows, model: xylem.Model) -> None:
    texts, labels, vectors = rows
    words = xylem.train(texts, labels)
    metrics = words.compare(model, texts, labels, vectors=vectors, resamples=100)["metrics"]
    assert metrics["P@1"]["a"] == pytest.approx(words.evaluate(texts, labels)["P@1"])
    figures = model.evaluate(texts, labels, vectors=vectors)
    assert metrics["P@1"]["b"] == pytest.approx(figures["P@1"])


def test_an_explanation_has_the_vector_as_one_part(rows: Rows, model: xylem.Model) -> None:
    texts, _, vectors = rows
    label = model.explain(texts[0], 1, vector=vectors[0])[0]
    (path,) = (tree["path"] for tree in label["explanation"]["trees"])
    assert path
    for node in path:
        parts = [feature for feature in node["features"] if feature.get("part") == "vector"]
        assert [part["feature"] for part in parts] == ["meaning"]
        words = {feature["feature"] for feature in node["features"]} - {"meaning"}
        assert words <= set(texts[0].lower().split())


@pytest.mark.parametrize("trainer", ["ovr", "plt", "fastxml", "huffman-tree", "lomtree", "ldsm"])
def test_every_trainer_reads_rows_with_vectors(rows: Rows, trainer: str) -> None:
    texts, labels, vectors = rows
    model = xylem.train(texts, labels, vectors=vectors, vectors_dims=5, trainer=trainer)
    assert all(model.predict(texts, vectors=vectors))
    assert model.explain(texts[0], vector=vectors[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, t, v: m.predict(t), f"a vector of {NUMBERS} numbers, or ids .* found no vector"),
        (
            lambda m, t, v: m.predict(t, vectors=v[:, :7]),
            f"expected a vector of {NUMBERS} numbers, found one of 7",
        ),
        (lambda m, t, v: m.predict(t, vectors=v[:9]), "expected 150 rows, .* found 9"),
        (lambda m, t, v: m.predict(t, vectors=v * np.nan), "row 0: .*, found nan"),
        (lambda m, t, v: m.predict(t, vectors=[["a"]] * 150), "expected a matrix of floats"),
        (
            lambda m, t, v: m.predict(t[:2], vectors=[v[0].tolist(), [0.5] * 7]),
            "vectors: expected one length for all rows, found several, or a row without a vector",
        ),
        (
            lambda m, t, v: xylem.train(t[:2], [["a"]] * 2, vectors=[v[0].tolist(), None]),
            "vectors: expected one length for all rows, found several, or a row without a vector",
        ),
        (lambda m, t, v: m.evaluate(t, [["a"]] * 150), "found no vector"),
        (lambda m, t, v: m.explain(t[0]), "found no vector"),
        (
            lambda m, t, v: xylem.train(t, [["a"]] * 150).predict(t, vectors=v),
            f"expected text or ids and values, .* found a vector of {NUMBERS} numbers",
        ),
        (
            lambda m, t, v: xylem.train([{"a": 1}] * 150, [["a"]] * 150, vectors=v),
            "vectors: expected texts beside vectors, found features",
        ),
        (
            lambda m, t, v: xylem.train(t, [["a"]] * 150, vectors_dims=9),
            "vectors.dims: expected vectors beside the texts, found none",
        ),
        (
            lambda m, t, v: xylem.train(t, [["a"]] * 150, vectors=v, vectors_weight=0),
            "vectors.weight: expected auto or a number of more than 0 and at most 100, found 0",
        ),
        (
            lambda m, t, v: xylem.train(t, [["a"]] * 150, vectors=v, vectors_dims=-1),
            "vectors.dims: expected an integer from 0 to 4096, found -1",
        ),
        (
            lambda m, t, v: xylem.train(t, [["a"]] * 150, encoder=3),
            "encoder: expected the path of a folder, found 3",
        ),
        (
            lambda m, t, v: xylem.tune(t, [["a"]] * 150, encoder="minilm"),
            "encoder cannot be used with tune: encode the texts, and give vectors",
        ),
        (
            lambda m, t, v: m.predict(np.eye(3, 9), vectors=v[:3]),
            "expected texts, which this model makes its own features of, found a matrix",
        ),
    ],
)
def test_bad_input_is_refused(
    rows: Rows, model: xylem.Model, call: Callable[..., Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        call(model, rows[0], rows[2])


def test_the_weight_is_chosen_on_held_out_rows(rows: Rows) -> None:
    texts, labels, _ = rows
    clues = np.array([[sum(map(ord, "".join(row))) % 97, len(row)] for row in labels], float)
    chosen = xylem.train(texts, labels, vectors=clues, vectors_weight="auto")
    report = chosen.report["features"]
    assert report["chosen"].startswith("vectors at weight ") and report["gained"] > 0
    assert [each["features"] for each in report["tried"]] == [
        "no vectors",
        *(f"vectors at weight {weight}" for weight in (0.3, 0.6, 1.0)),
    ]
    assert chosen.predict(texts, vectors=clues)
    noise = np.random.default_rng(0).normal(size=(len(texts), 2))
    both = xylem.train(texts, labels, vectors=noise, vectors_weight="auto", features_kind="auto")
    assert both.report["features"]["chosen"].endswith(", no vectors")
    assert both.predict(texts)  # it takes none
    with pytest.raises(BadInput, match="weight: expected 50 rows or more"):
        xylem.train(texts[:9], labels[:9], vectors=clues[:9], vectors_weight="auto")


def test_trials_of_a_search_have_the_vectors(rows: Rows) -> None:
    pytest.importorskip("optuna")
    texts, labels, vectors = rows
    model = xylem.tune(
        texts[:120],
        labels[:120],
        vectors=vectors[:120],
        sample_weight=[2.0] * 120,
        valid=(texts[120:], labels[120:], vectors[120:]),
        trainers=("ovr",),
        trials=2,
        progress=False,
    )
    assert all(model.predict(texts[120:], vectors=vectors[120:]))
    with pytest.raises(BadInput, match="found no vector"):
        model.predict(texts[:1])
