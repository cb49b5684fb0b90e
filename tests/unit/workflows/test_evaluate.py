"""Measuring, comparing and calibrating versions: by hand, at
thresholds, on awkward files, by the command.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer
from tests.conftest import Run
from tests.helpers.datasets_helpers import refused, write_lines
from tests.helpers.jobs_helpers import write_data
from tests.helpers.measured import evaluate, tuned_to

import xylem
from xylem.base import no_progress
from xylem.base.errors import BadData, BadInput, BadParameter
from xylem.engine.all_labels import predict_all
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.options import PredictOptions
from xylem.evaluation.ranking import EmptyConvention
from xylem.workflows import stored_figures
from xylem.workflows.calibrate import calibrate_and_publish
from xylem.workflows.comparison import CompareRequest, Contender, compare
from xylem.workflows.evaluate import F_MEASURES, NAMES_MAX, evaluate_rows, list_unknown
from xylem.workflows.label_table import label_lines
from xylem.workflows.labelled import read_labelled
from xylem.workflows.request import TrainRequest
from xylem.workflows.train import train_and_publish
from xylem_store.manifest import has_calibration
from xylem_store.names import all_names, name_of
from xylem_store.origin import ORIGIN, REPORT, content_digest, read_origin, read_report
from xylem_store.store import Store
from xylem_store.version import Model, draft_of

COLOURS = ("red", "green", "blue", "white")
WORDS = COLOURS[:3]


def write(path: Path, rows: list[tuple[str, list[str]]]) -> Path:
    return write_lines(path, ({"text": text, "labels": labels} for text, labels in rows))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three models: `some` knows three colours,
    `others` one and white, `noise` is wrong.
    """
    folder = tmp_path_factory.mktemp("evaluated")
    every = [(colour, i) for colour in COLOURS for i in range(9)]
    for name, rows in {
        "some": [(f"{colour} {i}x", [colour]) for colour, i in every if colour in WORDS],
        "others": [(f"{colour} {i}x", [colour]) for colour, i in every if colour in COLOURS[2:]],
        "noise": [(f"{COLOURS[i % 3]} {i}x", [COLOURS[(i * 7 // 3) % 3]]) for i in range(27)],
    }.items():
        request = TrainRequest(trainer="ovr", data=write(folder / f"{name}.jsonl", rows))
        train_and_publish(Store(folder / "store"), name, request)
    also_green = [{colour, "green"} if i % 5 == 0 else {colour} for colour, i in every]
    texts = [f"{colour} {i}x" for colour, i in every]
    write(folder / "test.jsonl", list(zip(texts, map(sorted, also_green), strict=True)))
    return folder


@pytest.fixture(scope="module")
def model(home: Path) -> Model:
    """A version that knows each of three words as the label of that name."""
    return Store(home / "store").open("some")


def decisions(model: Model, data: Path, threshold: float) -> list[list[str]]:
    """The names of the labels that reach the threshold, row by row."""
    rows = read_labelled(model, data, no_progress).rows
    ptr, labels = predict_all(make_predictor(model), rows, threshold, 1, lambda done: None)
    names = [name_of(model.labels, label) for label in labels.tolist()]
    return [names[first:last] for first, last in pairwise(ptr)]


def test_figures_worked_out_by_hand(model: Model, tmp_path: Path) -> None:
    rows = [("red", ["red"]), ("green", ["green"]), ("blue", ["red", "green"]), ("red", [])]
    report = evaluate(model, write(tmp_path / "rows.jsonl", rows))
    # Two rows have their label first, one has its two behind blue; a
    # row without labels counts as a row.
    assert report["P@1"] == pytest.approx(100 * 2 / 4)
    assert report["P@3"] == pytest.approx(100 * (1 / 3 + 1 / 3 + 2 / 3) / 4)
    assert report["rows"] == 4


def test_thresholds_decide_and_leave_the_ranking_alone(model: Model, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [(word, [word]) for word in WORDS])
    plain = evaluate(model, file)
    rows = read_labelled(model, file, no_progress).rows
    scores = make_predictor(model).predict(rows, PredictOptions(top_r=1)).scores
    beyond = np.nextafter(scores.max(), np.float32(2))
    none, exact = (np.full(len(WORDS), value, np.float32) for value in (beyond, scores.min()))
    nothing, everything = (
        evaluate(model, file, tuned=tuned_to(none)),
        evaluate(model, file, tuned=tuned_to(exact)),
    )
    assert nothing["threshold"] == everything["threshold"] == "tuned" and plain["threshold"] == 0.5
    assert (
        nothing["micro_f"] == 0.0 and everything["micro_f"] == 100.0
    )  # a score at its threshold counts
    for report in (nothing, everything):
        changed = {key for key in report if report[key] != plain.get(key)}
        assert changed <= {*F_MEASURES, "threshold", "us_per_row", "bands", "objective"}


@pytest.mark.parametrize("empty", [None, "zero", "one"])
def test_f_measures_are_scikit_learns_over_the_labels_of_the_model_and_of_the_file(
    model: Model, tmp_path: Path, empty: EmptyConvention | None
) -> None:
    true = [["red"], ["red", "x"], ["green", "y", "x"], []]
    file = write(tmp_path / "rows.jsonl", [("red" if "red" in row else "", row) for row in true])
    report = evaluate(model, file, **({} if empty is None else {"empty": empty}))
    binarizer = MultiLabelBinarizer(classes=[*all_names(model.labels), "x", "y"])
    names = decisions(model, file, 0.5)
    of_truth, decided = binarizer.fit_transform(true), binarizer.fit_transform(names)
    # one where nothing is named: the usual convention is
    # scikit-learn's, in which silence earns nothing
    value = 1.0 if empty == "one" else 0.0
    for key, average in zip(F_MEASURES, ("macro", "micro", "samples"), strict=True):
        expected = 100 * f1_score(of_truth, decided, average=average, zero_division=value)
        assert report[key] == pytest.approx(expected), key
    assert report["empty_label_convention"] == (empty or "zero")
    assert (report["unknown_labels"], report["unknown_label_names"]) == (2, ["x", "y"])


def test_labels_that_the_model_does_not_know_are_counted_and_some_are_named(
    model: Model, tmp_path: Path
) -> None:
    rows = [("red", ["red", f"new{i % 30}"]) for i in range(60)]
    report = evaluate(model, write(tmp_path / "rows.jsonl", rows))
    assert report["unknown_labels"] == 30
    assert (report["P@1"], report["R@5"]) == (100, 50)
    assert report["unknown_label_names"] == [f"new{i}" for i in range(NAMES_MAX)]
    assert list_unknown(report).startswith("30: new0, new1, ") and list_unknown(report).endswith(
        ", ..."
    )
    of_known = evaluate(model, write(tmp_path / "rows.jsonl", [("red", ["red"])]))
    assert (of_known["unknown_labels"], list_unknown(of_known)) == (0, "")
    assert report["macro_f"] == pytest.approx(of_known["macro_f"] * 3 / 33)


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
    train_and_publish(
        Store(store), "m", TrainRequest(trainer="label-tree", data=file, valid=file, **options)
    )
    return read_report(Store(store).open("m").arrays)["validation"]


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_version_keeps_what_an_evaluation_of_it_finds(
    weights: Any, file: Path, tmp_path: Path
) -> None:
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
        assert precision is None or precision == pytest.approx(
            100 * hits / label["predicted"], abs=1e-4
        )


def test_the_labels_that_are_true_most_often_are_kept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept_of(tmp_path / "all", file)["labels"][-1]["label"] == "rare"
    monkeypatch.setattr(stored_figures, "LABELS_MAX", 3)
    assert [label["support"] for label in kept_of(tmp_path / "few", file)["labels"]] == [20, 20, 20]
    monkeypatch.setattr(stored_figures, "NAMES_BYTES_MAX", 10)
    kept = kept_of(tmp_path / "short", file)
    assert sum(len(label["label"]) for label in kept["labels"]) <= 10 and len(kept["labels"]) == 2
    assert kept["labels_true"] == 5


LEVEL = np.float32(0.4)


def contender(home: Path, name: str, *, tuned: bool = True) -> Contender:
    model = Store(home / "store").open(name)
    return Contender(model, tuned_to(np.full(model.labels.n_names, LEVEL)) if tuned else None)


def test_labels_are_matched_by_name(home: Path) -> None:
    data, sides = home / "test.jsonl", (contender(home, "some"), contender(home, "others"))
    report = compare(*sides, CompareRequest(data, resamples=100))
    assert report["labels"] == {"both": 1, "only_a": 2, "only_b": 1, "neither": 0}
    more = write(home / "more.jsonl", [("red", ["black", "red", "white"])])
    assert compare(*sides, CompareRequest(more, resamples=100))["labels"]["neither"] == 1
    true = [set(json.loads(line)["labels"]) for line in data.read_text().splitlines()]
    for key, side in zip("ab", sides, strict=True):
        rows = list(zip(decisions(side.model, data, float(LEVEL)), true, strict=True))
        f = []
        for colour in COLOURS:
            hits = sum(colour in found and colour in known for found, known in rows)
            marks = sum((colour in found) + (colour in known) for found, known in rows)
            f.append(2 * hits / marks)
        assert report["metrics"]["macro_f"][key] == pytest.approx(100 * np.mean(f))
    turned = compare(*sides[::-1], CompareRequest(data, resamples=100))
    for name, each in report["metrics"].items():
        assert turned["metrics"][name]["difference"] == pytest.approx(-each["difference"])


def test_a_better_model_is_really_better_and_one_like_itself_is_not(home: Path) -> None:
    request = CompareRequest(home / "test.jsonl", resamples=200)
    some, noise = contender(home, "some"), contender(home, "noise")
    report = compare(noise, some, request)
    best = report["metrics"]["P@1"]
    assert best["difference"] > 0 and best["real"] and best["low"] > 0
    assert not any(each["real"] for each in compare(some, some, request)["metrics"].values())
    assert compare(noise, some, request) == report
    report = compare(contender(home, "some", tuned=False), noise, request)
    assert list(report["metrics"]) == [
        "P@1",
        "P@3",
        "P@5",
        "nDCG@5",
    ]  # no macro-F without thresholds
    assert "some@1 not tuned" in report["note"]


def test_what_cannot_be_compared_is_refused(home: Path, tmp_path: Path) -> None:
    some, file = contender(home, "some"), home / "test.jsonl"
    with pytest.raises(BadParameter, match="resamples: expected 100 to 100000, found 9"):
        compare(some, some, CompareRequest(file, resamples=9))
    store = Store(tmp_path / "store")
    texts = write(tmp_path / "texts.jsonl", [("a b c d", []), ("b c a d e", [])])
    parameters = ("task=text", "dim=4", "epochs=1")
    train_and_publish(
        store, "words", TrainRequest(trainer="huffman-tree", data=texts, parameters=parameters)
    )
    words = Contender(store.open("words"), None)
    with pytest.raises(
        BadData, match=r"expected two models of next words.*found words@1 and some@1"
    ):
        compare(words, some, CompareRequest(file))


def test_the_command_says_which_is_better(run_here: Run, home: Path) -> None:
    asked = ("compare", "noise", "some@1", "--data", home / "test.jsonl")
    report = json.loads(run_here(*asked, "--json", "--seed", 3, store=home / "store").stdout)
    assert (report["a"], report["b"], report["rows"], report["seed"]) == (
        "noise@1",
        "some@1",
        36,
        3,
    )
    assert report["metrics"]["P@1"].keys() == {"a", "b", "difference", "low", "high", "p", "real"}
    done = run_here(*asked, store=home / "store")
    assert "some@1 is better" in done.stdout and "not tuned" in done.stdout
    same = run_here("compare", "some", "some@1", *asked[3:], store=home / "store").stdout
    assert "no difference" in same and "may be chance" not in same
    done = run_here(*asked, "--resamples", 1, store=home / "store")
    assert done.returncode == 2 and "100" in done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a model that is too sure of itself, and files that it was not trained on."""
    folder = tmp_path_factory.mktemp("calibrating")
    write_data(folder / "train.jsonl", 300, seed=1)
    write_data(folder / "valid.jsonl", 400, seed=2, noise=0.5)
    write_data(folder / "test.jsonl", 400, seed=3, noise=0.5)
    request = TrainRequest(
        trainer="label-tree", data=folder / "train.jsonl", valid=folder / "valid.jsonl"
    )
    train_and_publish(Store(folder / "store"), "m", request)
    return folder


@pytest.fixture(scope="module")
def facts(folder: Path) -> dict[str, Any]:
    """What is told of version 2, which is version 1 calibrated."""
    return calibrate_and_publish(Store(folder / "store"), "m", "1", folder / "valid.jsonl")


@pytest.fixture
def copied(folder: Path, facts: dict[str, Any], tmp_path: Path) -> Store:
    """A store that has the calibrated version as its first."""
    store = Store(tmp_path)
    store.prepare()
    store.publish("m", draft_of(Store(folder / "store").open("m", 2)))
    return store


def test_what_a_calibration_publishes(folder: Path, facts: dict[str, Any]) -> None:
    store = Store(folder / "store")
    store.verify("m", 2)
    before, after = store.open("m", 1), store.open("m", 2)
    assert (facts["model"], facts["version"], facts["parent"], facts["rows"]) == ("m", 2, 1, 400)
    assert store.resolve("m") == 2
    assert after.arrays.keys() - before.arrays.keys() == {"calibration/x", "calibration/y", ORIGIN}
    for name in before.arrays.keys() - {REPORT}:
        assert np.array_equal(after.arrays[name], before.arrays[name]), name
    assert "validation" not in read_report(after.arrays)
    assert not after.manifest.metrics.keys() & {*F_MEASURES}
    assert after.manifest.metrics.keys() >= {"P@1", "nDCG@5"}
    assert (after.manifest.trainer, after.manifest.data) == (
        before.manifest.trainer,
        before.manifest.data,
    )
    origin = read_origin(after.arrays)
    assert origin["parent"] == {
        "model": "m",
        "version": 1,
        "content": content_digest(before.manifest),
    }
    told = origin["calibration"]
    assert (told["source"], told["rows"], told["knots"]) == ("valid.jsonl", 400, facts["knots"])
    assert told["error_after"] == facts["calibration_error"]["after"]


def test_scores_are_as_true_as_they_say(folder: Path, facts: dict[str, Any]) -> None:
    store = Store(folder / "store")
    before, after = (
        evaluate(store.open("m", version), folder / "test.jsonl") for version in (1, 2)
    )
    assert before["calibration_error"] > 0.08
    assert after["calibration_error"] < 0.05  # of 400 rows
    assert facts["calibration_error"]["after"] < 0.05
    rankings = [
        {key: value for key, value in report.items() if "@" in key} for report in (before, after)
    ]
    assert rankings[0] == rankings[1]


def test_what_cannot_be_fitted_to_is_refused(folder: Path, tmp_path: Path) -> None:
    store = Store(folder / "store")
    before = store.versions("m")
    few, strange = write_data(tmp_path / "few.jsonl", 99), tmp_path / "strange.jsonl"
    strange.write_text('{"text": "first1", "labels": ["unheard of"]}\n' * 200)
    for file, fault in {
        folder / "train.jsonl": "not trained on, found those that it was trained on",
        few: "expected at least 100 rows, found 99",
        strange: "expected rows of which a prediction is true, found none in 200",
    }.items():
        with refused(BadData, fault):
            calibrate_and_publish(store, "m", "1", file)
    assert store.versions("m") == before


def test_calibrated_at_once_with_training(
    folder: Path, run_here: Run, facts: dict[str, Any], tmp_path: Path
) -> None:
    train = ("--data", folder / "train.jsonl", "--model", "m", "--calibrate", "--json")
    valid = ("--valid", folder / "valid.jsonl")
    done = run_here("train", "label-tree", *train, *valid, store=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["calibration_error"] == facts["calibration_error"]
    assert not told["metrics"].keys() & {*F_MEASURES}
    two_steps, one = Store(folder / "store").open("m", 2), Store(tmp_path).open("m", 1)
    for name in ("calibration/x", "calibration/y"):
        assert np.array_equal(one.arrays[name], two_steps.arrays[name])
    assert read_origin(one.arrays)["calibration"]["source"] == "valid.jsonl"
    for given, message in (
        (("label-tree",), "expected validation rows to fit to, found none"),
        (("huffman-tree", *valid), "found huffman-tree, whose scores sum to 1"),
        (("label-tree", "--valid", folder / "train.jsonl"), "that it was trained on"),
    ):
        refused = run_here("train", *given, *train, store=tmp_path)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr


def test_the_command_calibrates_a_calibrated_version_anew(
    folder: Path, facts: dict[str, Any], run_here: Run, copied: Any
) -> Any:
    def calibrate(*options: object, data: str = "valid.jsonl") -> tuple[int, str, str]:
        done = run_here("calibrate", *options, "--data", folder / data, store=copied.root)
        return done.returncode, done.stdout, done.stderr

    status, out, err = calibrate("m", "--json")
    assert status == 0, err
    assert json.loads(out.splitlines()[-1]) == {**facts, "version": 2, "parent": 1}
    source, again = (copied.open("m", version).arrays for version in (1, 2))
    assert all(np.array_equal(again[f"calibration/{k}"], source[f"calibration/{k}"]) for k in "xy")
    status, out, err = calibrate("m@1")
    assert status == 0, err
    assert (
        "Before: the first labels of each row" in out and "expected calibration error before" in out
    )
    assert (
        "origin calibration source" in run_here("models", "show", "m@3", store=copied.root).stdout
    )
    status, _, err = calibrate("m", data="train.jsonl")
    assert (status, "found those that it was trained on" in err) == (2, True)


def test_a_model_in_python_is_calibrated(
    folder: Path, facts: dict[str, Any], tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in (folder / "valid.jsonl").read_text().splitlines()]
    texts, labels = [line["text"] for line in lines], [line["labels"] for line in lines]
    model = xylem.load(folder / "store", "m@1").calibrate(texts, labels)
    expected = xylem.load(folder / "store", "m@2")
    assert model.predict(texts, top_r=6) == expected.predict(texts, top_r=6)
    assert model.save(tmp_path, "m") == 1
    Store(tmp_path).verify("m", 1)
    arrays = Store(tmp_path).open("m").arrays
    assert has_calibration(arrays) and read_origin(arrays)["parent"]["version"] == 1
    trained = xylem.train(texts, labels).calibrate(texts[:200], labels[:200])
    assert trained.save(tmp_path, "m") == 2
    with pytest.raises(BadInput, match="expected at least 100 rows"):
        model.calibrate(texts[:50], labels[:50])
