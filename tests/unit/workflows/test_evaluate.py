"""Versions are measured: by hand, at thresholds, and on awkward files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer
from tests.helpers.colour_texts import WORDS, decisions, write
from tests.helpers.measured import evaluate, tuned_to

from xylem.base import no_progress
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.options import PredictOptions
from xylem.evaluation.ranking import EmptyConvention
from xylem.workflows import stored_figures
from xylem.workflows.evaluate import F_MEASURES, NAMES_MAX, evaluate_rows, list_unknown
from xylem.workflows.label_table import label_lines
from xylem.workflows.labelled import read_labelled
from xylem.workflows.request import TrainRequest
from xylem.workflows.train import train_and_publish
from xylem_store.names import all_names
from xylem_store.origin import read_report
from xylem_store.store import Store
from xylem_store.version import Model


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
def test_f_measures_are_those_of_scikit_learn(
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


def test_labels_that_are_unknown_to_the_model_are_counted(model: Model, tmp_path: Path) -> None:
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
