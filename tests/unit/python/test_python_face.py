"""What the command line can with models, Python can too: thresholds,
comparisons, scores, searches, bars.
"""

import contextlib
import json
import os
import pickle
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer
from tests.conftest import Run
from tests.helpers.checkout import PYTHONPATH
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.jobs_helpers import write_data

import xylem
import xylem.errors
from xylem.base import no_progress
from xylem.base.errors import BadInput
from xylem.client import calls
from xylem.evaluation.probabilities import ThresholdSweep
from xylem.thresholds.tuning import TuneRequest
from xylem.workflows.comparison import CompareRequest, Contender, compare
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.tuning import tune
from xylem_store.names import name_of
from xylem_store.store import Store

ROOT = Path(__file__).resolve().parents[3]
Rows = tuple[list[str], list[list[str]]]


def rows_in(path: Path) -> Rows:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["text"] for line in lines], [line["labels"] for line in lines]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_data(folder / "train.jsonl", 200, seed=4, noise=0.3)
    write_data(folder / "valid.jsonl", 120, seed=5, noise=0.3)
    return folder


@pytest.fixture(scope="module")
def model(files: Path) -> xylem.Model:
    return xylem.train(*rows_in(files / "train.jsonl"), progress=False)


def test_thresholds_are_the_command_s_and_are_saved(
    files: Path, model: xylem.Model, tmp_path: Path
) -> None:
    valid = rows_in(files / "valid.jsonl")
    model.save(tmp_path, "m")
    loaded = xylem.load(tmp_path, "m")
    for untuned, shown in (
        (model, "a model that was trained here: call tune_thresholds"),
        (loaded, "m@1"),
    ):
        with pytest.raises(
            xylem.errors.NotTuned, match=f"expected tuned thresholds, found none of {shown}"
        ):
            untuned.predict(valid[0], threshold="tuned")
    again = xylem.load(tmp_path, "m").tune_thresholds(*valid, method="fta-one")
    kept = again._tuned_state().thresholds.tolist()
    assert loaded._tuned_state().thresholds.tolist() == kept, "kept at once"
    tuned = model.tune_thresholds(*valid, kappa=0.02)
    assert "thresholds" in tuned.report and "thresholds" not in model.report
    assert model.evaluate(*valid)["threshold"] == 0.5, "the model itself never changes"
    assert tuned.save(tmp_path, "m") == 2
    opened = Store(tmp_path).open("m", "2")
    (outcome,) = tune(opened, TuneRequest(("ofo",), files / "valid.jsonl", kappa=0.02), no_progress)
    wanted = outcome.tuned.thresholds
    assert len(set(kept)) < len(set(wanted.tolist()))
    assert tuned.report["thresholds"]["validation_macro_f"] == outcome.validation.macro_f
    at = {name_of(opened.labels, i): threshold for i, threshold in enumerate(wanted)}
    scored = model.predict(valid[0], top_r=100)
    expected = [[pair for pair in row if pair.score >= at[pair.label]] for row in scored]
    assert any(expected) and expected != scored
    for each in (tuned, pickle.loads(pickle.dumps(tuned)), xylem.load(tmp_path, "m")):  # noqa: S301
        assert each._tuned_state().thresholds.tolist() == wanted.tolist()
        assert each.evaluate(*valid)["threshold"] == "tuned"
        assert each.predict(valid[0], top_r=100, threshold="tuned") == expected


def test_two_models_are_compared_as_by_the_command(
    files: Path, model: xylem.Model, tmp_path: Path
) -> None:
    other = xylem.train(*rows_in(files / "train.jsonl"), trees=3, progress=False)
    for name, each in (("a", model), ("b", other)):
        each.save(tmp_path, name)
    sides = [Contender(Store(tmp_path).open(name, "1"), None) for name in ("a", "b")]
    wanted = compare(
        sides[0], sides[1], CompareRequest(files / "valid.jsonl", resamples=200, seed=3)
    )
    valid = rows_in(files / "valid.jsonl")
    assert model.compare(other, *valid, resamples=200, seed=3) == wanted
    with pytest.raises(xylem.errors.BadParameter, match="resamples: expected 100 to"):
        model.compare(other, *valid, resamples=7)
    with pytest.raises(TypeError, match="resample"):
        model.compare(other, *valid, resample=200)  # type: ignore[call-arg]


def test_scores_are_the_command_s(
    files: Path, model: xylem.Model, tmp_path: Path, run_here: Run
) -> None:
    model.save(tmp_path / "store", "m")
    texts = rows_in(files / "valid.jsonl")[0][:4]
    asked = [["label3", "label0"], [], ["label5"], ["label1"] * 2]
    lines = ({"text": text, "labels": labels} for text, labels in zip(texts, asked, strict=True))
    file = write_lines(tmp_path / "asked.jsonl", lines)
    done = run_here("score", "m", "--data", file, store=tmp_path / "store")
    wanted = [json.loads(line)["labels"] for line in done.stdout.splitlines()]
    found = model.score(texts, asked)
    assert [[label for label, _ in row] for row in found] == asked
    scores = [[score for _, score in row] for row in found]
    assert scores == [[pytest.approx(each["score"]) for each in row] for row in wanted]
    with pytest.raises(
        xylem.errors.UnknownLabel, match=r"labels: row 2: expected a label .* found 'none'"
    ):
        model.score(texts, [[], ["label1"], ["label1", "none"], []])
    with pytest.raises(xylem.errors.BadData, match="this model predicts no words"):
        model.score(texts)
    words = write_lines(tmp_path / "words.jsonl", [{"text": "aa bb cc"}, {"text": "aa bb dd"}] * 20)
    request = TrainRequest(trainer="huffman-tree", data=words, parameters=("task=text",))
    train_and_publish(Store(tmp_path / "store"), "words", request)
    (row,) = xylem.load(tmp_path / "store", "words").score(["aa bb cc"])
    assert [label for label, _ in row][:3] == ["aa", "bb", "cc"] and len(row) == 4


def test_a_search_tells_its_trials(files: Path) -> None:
    pytest.importorskip("optuna")
    train, valid = rows_in(files / "train.jsonl"), rows_in(files / "valid.jsonl")
    options: dict[str, Any] = {
        "trainers": ["ovr"],
        "metric": "P@1",
        "trials": 2,
        "features_ngram_max": 2,
    }
    found = xylem.tune(*train, valid=valid, progress=False, **options)
    trials = found.report["trials"]
    assert found.trainer == "ovr" and len(trials) == 2 and found.report["metric"] == "P@1"
    chosen = {
        name.replace("features.", "features_"): one for name, one in trials[0]["parameters"].items()
    }
    best = xylem.train(*train, trainer="ovr", **chosen)
    assert best.evaluate(*valid)["P@1"] == pytest.approx(trials[0]["value"])
    assert found.predict(valid[0]) == best.predict(valid[0])
    with pytest.raises(BadInput, match="metric: expected one of P@1"):
        xylem.tune(*train, metric="P@2")


def test_instances_and_labels_as_they_come() -> None:
    x = np.array([[0, 2, 0], [1, 0, 0.5]] * 10)
    y = np.array([[0, 1], [1, 0]] * 10)
    expected = xylem.train(x, y, trainer="ovr").predict(x)
    integers = y, y.astype(bool), scipy.sparse.coo_matrix(y.astype(bool)), [[1], [0]] * 10
    for rows in (x, scipy.sparse.csr_matrix(x), scipy.sparse.csc_matrix(x)):
        for labels in (*integers, [[np.int64(1)], ["0"]] * 10):
            model = xylem.train(rows, labels, trainer="ovr")
            assert model.predict(rows) == expected
            assert model.evaluate(rows, labels)["P@1"] == 100
            assert model.explain(rows[:1], top_k=1)[0]["label"] == "1"
    assert [row[0].label for row in xylem.train(x, [["p"], ["q"]] * 10).predict(x[:2])] == [
        "p",
        "q",
    ]
    assert model.predict(x, top_k=1) == model.predict(x, 1) == [row[:1] for row in model.predict(x)]
    with pytest.raises(TypeError, match="expected top_r or top_k"):
        model.predict(x, top_r=1, top_k=2)
    for labels, fault in (
        (y * 7, "labels: expected an array of 0 and 1, or a list of labels a row, found 7 in it"),
        ([[True], [1]] * 10, "labels: row 0: expected a list of strings, found bool True in it"),
        (np.arange(20), "labels: expected an array of rows and columns, found 1 dimensions"),
    ):
        with pytest.raises(xylem.errors.BadData, match=fault):
            xylem.train(x, labels, trainer="ovr")


def test_the_client_takes_top_k_for_top_r() -> None:
    request = calls.predict("m", ["a"], None, None, {"top_k": 3, "threshold": 0.5})
    assert json.loads(request.body) == {"instances": [{"text": "a"}], "top_r": 3, "threshold": 0.5}
    assert (
        calls.batch_request("m", None, None, b"", {"top_k": 3}).path == "/v1/models/m/batch?top_r=3"
    )
    with pytest.raises(ValueError, match="expected top_r or top_k"):
        calls.predict("m", ["a"], None, None, {"top_k": 3, "top_r": 3})


def test_several_columns_are_one_text() -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"title": ["red apple", "old car"] * 8, "body": ["a pie", "its engine"] * 8}
    frame = pandas.DataFrame({**columns, "labels": [["a"], ["b"]] * 8})
    model = xylem.train(frame, text_column=["title", "body"], label_column="labels")
    texts = [f"{title}\n{body}" for title, body in zip(*columns.values(), strict=True)]
    assert model.predict(frame, text_column=["title", "body"]) == model.predict(texts)
    frame.loc[3, "body"] = None
    texts[3] = "old car\n"
    assert model.predict(frame, text_column=["title", "body"]) == model.predict(texts)


@pytest.mark.parametrize(("progress", "is_shown"), [("True", True), ("False", False)])
def test_a_bar_is_shown_on_a_terminal(progress: str, is_shown: bool) -> None:
    code = (
        "import xylem; xylem.train(['red apple', 'old car'] * 9, [['a'], ['b']] * 9, progress="
        + progress
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "TERM": "xterm", "COLUMNS": "120"}
    run = [sys.executable, "-c", code + "); print('done')"]
    done = subprocess.run(run, stderr=theirs, stdout=subprocess.PIPE, env=environment, check=False)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal ends that nobody writes to
        while part := os.read(ours, 1 << 16):
            shown += part
    os.close(ours)
    assert done.stdout == b"done\n", shown
    assert (b"features" in shown) is is_shown, shown


def test_a_threshold_for_all_labels_has_the_most_micro_f() -> None:
    scores = np.array([0.9, 0.35, 0.3, 0.2, 0.05], np.float32)
    sweep = ThresholdSweep()
    sweep.add(scores, np.array([True, True, False, True, False]))
    assert sweep.best(4) == 0.2 and sweep.best(40) == 0.2
    assert ThresholdSweep().best(3) == 1.0, "where nothing is found, nothing is predicted"


def test_the_classifiers_threshold_is_chosen_on_held_out_rows(files: Path) -> None:
    (texts, labels), valid = rows_in(files / "train.jsonl"), rows_in(files / "valid.jsonl")
    words, names = CountVectorizer().fit(texts), MultiLabelBinarizer().fit(labels)
    x, y = words.transform(texts), names.transform(labels)
    x_valid, y_valid = words.transform(valid[0]), names.transform(valid[1])
    auto = xylem.LabelTreeClassifier().fit(x, y)
    assert auto.threshold == "auto" and 0 < auto.threshold_ < 1
    fixed = xylem.LabelTreeClassifier(threshold=auto.threshold_).fit(x, y)
    assert np.array_equal(auto.predict(x_valid), fixed.predict(x_valid)), (
        "trained on all rows in the end"
    )
    half = xylem.LabelTreeClassifier(threshold=0.5).fit(x, y)
    f = [f1_score(y_valid, each.predict(x_valid), average="micro") for each in (auto, half)]
    assert f[0] > f[1]
    assert xylem.LabelTreeClassifier().fit(x[:49], y[:49]).threshold_ == 0.5
