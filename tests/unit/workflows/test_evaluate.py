"""Measuring a version: against figures worked out by hand, at given thresholds, on awkward files."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer

from model_store.names import name_of
from model_store.origin import read_report
from model_store.store import Store
from model_store.version import Model
from service.base.errors import BadData, BadInput, BadParameter
from service.evaluation import kept_figures
from service.inference.predictor import PredictOptions, predict_all
from service.inference.predictors import make_predictor
from service.workflows.charts import label_lines
from service.workflows.compare import CompareRequest, Contender, compare
from service.workflows.evaluate import F_MEASURES, NAMES_MAX, evaluate_rows, list_unknown
from service.workflows.labelled import no_progress, read_labelled
from service.workflows.train import TrainRequest, train_and_publish
from tests.datasets_helpers import write_lines
from tests.measured import evaluate

WORDS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A version that knows each word as the label of that name."""
    folder = tmp_path_factory.mktemp("evaluated")
    write(folder / "train.jsonl", [(f"{word} {n}x", [word]) for word in WORDS for n in range(9)])
    train_and_publish(Store(folder / "store"), "m", TrainRequest("ovr", folder / "train.jsonl"))
    return Store(folder / "store").open("m")


def write(path: Path, rows: list[tuple[str, list[str]]]) -> Path:
    return write_lines(path, ({"text": text, "labels": labels} for text, labels in rows))


def test_figures_worked_out_by_hand(model, tmp_path):
    rows = [("red", ["red"]), ("green", ["green"]), ("blue", ["red", "green"]), ("red", [])]
    report = evaluate(model, write(tmp_path / "rows.jsonl", rows))
    # Two rows have their label first, one has its two behind blue; a row without labels counts as a row.
    assert report["P@1"] == pytest.approx(100 * 2 / 4)
    assert report["P@3"] == pytest.approx(100 * (1 / 3 + 1 / 3 + 2 / 3) / 4)
    assert report["rows"] == 4


def test_thresholds_decide_and_leave_the_ranking_alone(model, tmp_path):
    file = write(tmp_path / "rows.jsonl", [(word, [word]) for word in WORDS])
    plain = evaluate(model, file)
    predictor = make_predictor(model)
    rows = read_labelled(model, file, no_progress).rows
    scores = predictor.predict(rows, PredictOptions(top_r=1)).scores
    beyond = np.nextafter(scores.max(), np.float32(2))
    none, exact = (np.full(len(WORDS), value, np.float32) for value in (beyond, scores.min()))
    nothing, everything = evaluate(model, file, thresholds=none), evaluate(model, file, thresholds=exact)
    assert nothing["threshold"] == everything["threshold"] == "tuned" and plain["threshold"] == 0.5
    assert nothing["micro_f"] == 0.0 and everything["micro_f"] == 100.0  # a score at its threshold counts
    for report in (nothing, everything):
        changed = {key for key in report if report[key] != plain[key]}
        assert changed <= {*F_MEASURES, "threshold", "us_per_row", "bands"}


@pytest.mark.parametrize("empty", [None, "zero", "one"])
def test_f_measures_are_scikit_learns_over_the_labels_of_the_model_and_of_the_file(model, tmp_path, empty):
    true = [["red"], ["red", "x"], ["green", "y", "x"], []]
    file = write(tmp_path / "rows.jsonl", [("red" if "red" in row else "", row) for row in true])
    report = evaluate(model, file) if empty is None else evaluate(model, file, empty=empty)
    rows = read_labelled(model, file, no_progress).rows
    found = make_predictor(model).predict(rows, PredictOptions(top_r=3, threshold=0.5))
    binarizer = MultiLabelBinarizer(classes=[name_of(model.labels, i) for i in range(3)] + ["x", "y"])
    names = [[name_of(model.labels, i) for i in found.labels[a:b]] for a, b in pairwise(found.ptr)]
    of_truth, decided = binarizer.fit_transform(true), binarizer.fit_transform(names)
    # one where nothing is named: the usual convention is scikit-learn's, in which silence earns nothing
    value = 1.0 if empty == "one" else 0.0
    for key, average in zip(F_MEASURES, ("macro", "micro", "samples"), strict=True):
        expected = 100 * f1_score(of_truth, decided, average=average, zero_division=value)
        assert report[key] == pytest.approx(expected), key
    assert report["empty_label_convention"] == (empty or "zero")
    assert (report["unknown_labels"], report["unknown_label_names"]) == (2, ["x", "y"])


def test_labels_that_the_model_does_not_know_are_counted_and_some_are_named(model, tmp_path):
    rows = [("red", ["red", f"new{i % 30}"]) for i in range(60)]
    report = evaluate(model, write(tmp_path / "rows.jsonl", rows))
    assert report["unknown_labels"] == 30
    assert (report["P@1"], report["R@5"]) == (100, 50)
    assert report["unknown_label_names"] == [f"new{i}" for i in range(NAMES_MAX)]
    assert list_unknown(report).startswith("30: new0, new1, ") and list_unknown(report).endswith(", ...")
    of_known = evaluate(model, write(tmp_path / "rows.jsonl", [("red", ["red"])]))
    assert (of_known["unknown_labels"], list_unknown(of_known)) == (0, "")
    assert report["macro_f"] == pytest.approx(of_known["macro_f"] * 3 / 33)


@pytest.mark.parametrize("content", ["", "{}\n", '{"features": {"red": 1}, "labels": ["red"]}\n'])
def test_files_that_cannot_be_measured_on(model, tmp_path, content):
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    with pytest.raises(BadInput, match=r"expected.*found"):
        evaluate(model, file)


COLOURS = ("red", "green", "blue", "white")
SUPPORTS = {"red": 20, "green": 20, "blue": 20, "white": 20, "rare": 2}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose first word is their label, but for every ninth; a fifth label is on two rows."""
    rows = []
    for i in range(80):
        word = "other" if i % 9 == 0 else COLOURS[i % 4]
        rows.append((f"{word} thing{i % 7}", [COLOURS[i % 4], *(["rare"] if i < 2 else [])]))
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", rows)


def kept_of(store: Path, file: Path, **options: Any) -> dict[str, Any]:
    train_and_publish(Store(store), "m", TrainRequest("label-tree", file, valid=file, **options))
    found: dict[str, Any] = read_report(Store(store).open("m").arrays)["validation"]
    return found


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_version_keeps_what_an_evaluation_of_it_finds(weights, file, tmp_path):
    kept = kept_of(tmp_path, file, weights=weights, parameters=("leaf_size=2",))
    model = Store(tmp_path).open("m")
    assert model.manifest.weights == weights
    found = evaluate_rows(model, read_labelled(model, file, no_progress))
    assert (kept["rows"], kept["threshold"], kept["labels_true"]) == (80, 0.5, 5)
    assert kept["calibration_error"] == pytest.approx(found.report["calibration_error"], abs=1e-6)
    for one, other in zip(kept["reliability"], found.reliability, strict=True):
        assert one == pytest.approx(other._asdict(), abs=1e-6)
    for one, other in zip(kept["bands"], found.report["bands"], strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    figures = {line[0]: line for line in label_lines(model.labels, found)}
    assert {label["label"]: label["support"] for label in kept["labels"]} == SUPPORTS
    for label in kept["labels"]:
        _, support, hits, precision, recall, *_ = figures[label["label"]]
        assert (label["support"], label["hits"]) == (support, hits)
        assert recall == pytest.approx(100 * hits / support, abs=1e-4)
        assert (precision is None) == (label["predicted"] == 0)
        assert precision is None or precision == pytest.approx(100 * hits / label["predicted"], abs=1e-4)


def test_the_labels_that_are_true_most_often_are_kept(file, tmp_path, monkeypatch):
    assert kept_of(tmp_path / "all", file)["labels"][-1]["label"] == "rare"
    monkeypatch.setattr(kept_figures, "LABELS_MAX", 3)
    assert [label["support"] for label in kept_of(tmp_path / "few", file)["labels"]] == [20, 20, 20]
    monkeypatch.setattr(kept_figures, "NAMES_BYTES_MAX", 10)
    kept = kept_of(tmp_path / "short", file)
    assert sum(len(label["label"]) for label in kept["labels"]) <= 10 and len(kept["labels"]) == 2
    assert kept["labels_true"] == 5


LEVEL = np.float32(0.4)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three models: `some` knows three colours, `others` one and white, `noise` is wrong."""
    folder = tmp_path_factory.mktemp("compared")
    store = Store(folder / "store")
    for name, colours in (("some", COLOURS[:3]), ("others", COLOURS[2:])):
        rows = [(f"{colour} {i}x", [colour]) for colour in colours for i in range(9)]
        train_and_publish(store, name, TrainRequest("ovr", write(folder / f"{name}.jsonl", rows)))
    rows = [(f"{COLOURS[i % 3]} {i}x", [COLOURS[(i * 7 // 3) % 3]]) for i in range(27)]
    train_and_publish(store, "noise", TrainRequest("ovr", write(folder / "noise.jsonl", rows)))
    rows = [
        (f"{colour} {i}x", sorted({colour, *(["green"] if i % 5 == 0 else [])}))
        for colour in COLOURS
        for i in range(9)
    ]
    write(folder / "test.jsonl", rows)
    return folder


def contender(home: Path, name: str, *, tuned: bool = True) -> Contender:
    model = Store(home / "store").open(name)
    return Contender(model, np.full(model.labels.n_names, LEVEL) if tuned else None)


def decisions(side: Contender, data: Path) -> list[set[str]]:
    """The names of the labels that reach the threshold, row by row."""
    predictor = make_predictor(side.model)
    rows = read_labelled(side.model, data, no_progress).rows
    ptr, labels = predict_all(predictor, rows, float(LEVEL), 1, lambda done: None)
    names = [name_of(side.model.labels, label) for label in labels.tolist()]
    return [set(names[ptr[i] : ptr[i + 1]]) for i in range(len(ptr) - 1)]


def test_labels_are_matched_by_name(home):
    data, sides = home / "test.jsonl", (contender(home, "some"), contender(home, "others"))
    report = compare(*sides, CompareRequest(data, resamples=100))
    assert report["labels"] == {"both": 1, "only_a": 2, "only_b": 1, "neither": 0}
    more = write(home / "more.jsonl", [("red", ["black", "red", "white"])])
    assert compare(*sides, CompareRequest(more, resamples=100))["labels"]["neither"] == 1
    true = [set(json.loads(line)["labels"]) for line in data.read_text().splitlines()]
    for key, side in zip("ab", sides, strict=True):
        found, f = decisions(side, data), []
        for colour in COLOURS:
            hits = sum(colour in row and colour in known for row, known in zip(found, true, strict=True))
            marks = sum((colour in row) + (colour in known) for row, known in zip(found, true, strict=True))
            f.append(2 * hits / marks)
        assert report["metrics"]["macro_f"][key] == pytest.approx(100 * np.mean(f))
    turned = compare(*sides[::-1], CompareRequest(data, resamples=100))
    for name, each in report["metrics"].items():
        assert turned["metrics"][name]["difference"] == pytest.approx(-each["difference"])


def test_a_better_model_is_really_better_and_one_like_itself_is_not(home):
    request = CompareRequest(home / "test.jsonl", resamples=200)
    some = contender(home, "some")
    report = compare(contender(home, "noise"), some, request)
    best = report["metrics"]["P@1"]
    assert best["difference"] > 0 and best["real"] and best["low"] > 0
    assert not any(each["real"] for each in compare(some, some, request)["metrics"].values())
    assert compare(contender(home, "noise"), some, request) == report


def test_without_thresholds_there_is_no_macro_f_and_the_note_says_why(home):
    sides = contender(home, "some", tuned=False), contender(home, "others")
    report = compare(*sides, CompareRequest(home / "test.jsonl", resamples=100))
    assert list(report["metrics"]) == ["P@1", "P@3", "P@5", "nDCG@5"]
    assert "some@1 not tuned" in report["note"]


def test_what_cannot_be_compared_is_refused(home, tmp_path):
    some, file = contender(home, "some"), home / "test.jsonl"
    with pytest.raises(BadParameter, match="resamples: expected 100 to 100000, found 9"):
        compare(some, some, CompareRequest(file, resamples=9))
    store = Store(tmp_path / "store")
    texts = write(tmp_path / "texts.jsonl", [("a b c d", []), ("b c a d e", [])])
    parameters = ("task=text", "dim=4", "epochs=1")
    train_and_publish(store, "words", TrainRequest("huffman-tree", texts, parameters=parameters))
    words = Contender(store.open("words"), None)
    with pytest.raises(BadData, match=r"expected two models of next words.*found words@1 and some@1"):
        compare(words, some, CompareRequest(file))


def test_the_command_says_which_is_better(run_here, home):
    asked = ("compare", "noise", "some@1", "--data", home / "test.jsonl")
    report = json.loads(run_here(*asked, "--json", "--seed", 3, store=home / "store").stdout)
    assert (report["a"], report["b"], report["rows"], report["seed"]) == ("noise@1", "some@1", 36, 3)
    assert report["metrics"]["P@1"].keys() == {"a", "b", "difference", "low", "high", "real"}
    done = run_here(*asked, store=home / "store")
    assert "some@1 is better" in done.stdout and "not tuned" in done.stdout
    same = run_here("compare", "some", "some@1", *asked[3:], store=home / "store").stdout
    assert "no difference" in same and "may be chance" not in same
    done = run_here(*asked, "--resamples", 1, store=home / "store")
    assert done.returncode == 2 and "100" in done.stderr
