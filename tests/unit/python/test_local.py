"""Models in this process do what the commands do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from tests.helpers.checkout import PYTHONPATH
from tests.helpers.combined_models import documents, publish_combined
from tests.helpers.datasets_helpers import check_dataset
from tests.helpers.jobs_helpers import write_data
from tests.helpers.measured import evaluate

import xylem
from xylem.base.errors import BadInput
from xylem.python.from_memory import dataset_from_memory as dataset_of
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.errors import StoreError
from xylem_store.origin import ORIGIN, REPORT, read_report
from xylem_store.store import Store

ROOT = Path(__file__).resolve().parents[3]
Rows = tuple[Path, list[str], list[list[str]]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A file, and the texts and labels in it."""
    path = write_data(tmp_path_factory.mktemp("rows") / "rows.jsonl", 150, seed=4, noise=0.2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return path, [line["text"] for line in lines], [line["labels"] for line in lines]


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_model_is_the_command_s(rows: Rows, tmp_path: Path, weights: Any) -> None:
    path, texts, labels = rows
    model = xylem.train(texts, labels, trees=2, features_ngram_max=2, weights=weights, seed=7)
    assert model.save(tmp_path, "m") == 1
    chosen = ("trees=2", "features.ngram_max=2")
    request = TrainRequest(
        trainer="label-tree", data=path, parameters=chosen, weights=weights, seed=7
    )
    train_and_publish(Store(tmp_path), "m", request)
    ours, theirs = (Store(tmp_path).open("m", version) for version in (1, 2))
    assert ours.arrays.keys() == theirs.arrays.keys() - {ORIGIN}
    reports = [read_report(version.arrays) for version in (ours, theirs)]
    data = [report.pop("data") for report in reports]
    assert reports[0] == reports[1] and data[0]["labels"] == data[1]["labels"]
    for name in ours.arrays:
        assert name == REPORT or np.array_equal(ours.arrays[name], theirs.arrays[name]), name
    report, wanted = model.evaluate(texts, labels), dict(evaluate(theirs, path))
    for figures in (report, wanted):
        del figures["us_per_row"], figures["data"]
    assert report == wanted
    rare = [*texts, "more"], [*labels, ["elsewhere"]]
    zero, one = model.evaluate(*rare), model.evaluate(*rare, empty_labels="one")
    assert zero["unknown_label_names"] == one["unknown_label_names"] == ["elsewhere"]
    assert [each["empty_label_convention"] for each in (zero, one)] == ["zero", "one"]
    assert zero["macro_f"] == pytest.approx(report["macro_f"] * 6 / 7)
    with pytest.raises(BadInput, match="empty_labels: expected zero or one, found 'half'"):
        model.evaluate(texts, labels, empty_labels="half")
    loaded = [xylem.load(tmp_path, name) for name in ("m", "m@1", "m@latest")]
    expected = model.predict(texts, top_r=3)
    assert all(one.predict(texts, top_r=3, threads=1) == expected for one in loaded)
    assert (model.trainer, model.n_labels, model.parameters["trees"]) == ("label-tree", 6, 2)
    Store(tmp_path).verify("m", 1)


def test_answers(rows: Rows) -> None:
    _, texts, labels = rows
    model = xylem.train(iter(texts), np.array(labels), trainer="ovr")
    all_labels = model.predict(["first3 word1"], top_r=100)[0]
    assert len(all_labels) == 6 and all_labels[0].label == "label3"
    scores = [score for _, score in all_labels]
    assert scores == sorted(scores, reverse=True)
    at = scores[2]
    assert model.predict(["first3 word1"], top_r=100, threshold=at) == [all_labels[:3]]
    assert model.predict(["first3 word1"], top_r=2, threshold=at) == [all_labels[:2]]
    assert model.predict(["nothing known"], threshold=1) == [[]] and model.predict([]) == []
    (best,) = model.explain("first3 word1", top_r=1)
    assert (best["label"], best["score"]) == ("label3", pytest.approx(scores[0]))
    shares = best["explanation"]["trees"][0]["path"][-1]["features"]
    assert shares[0]["feature"] == "first3"


def test_named_features_and_data_sets_from_memory() -> None:
    named = [{"x": np.float32(1), "y": 2}, {"z": 1.5}] * 4
    model = xylem.train(named, [["a"], ["b"]] * 4, trainer="ovr")
    assert [row[0].label for row in model.predict(named[:2])] == ["a", "b"]
    assert model.explain(named[0], top_r=1)[0]["label"] == "a"
    x = scipy.sparse.csc_matrix(np.array([[0, 2, 0], [1, 0, 0]] * 4))
    y = scipy.sparse.coo_matrix(np.array([[False, True], [True, False]] * 4))
    for dataset in (
        dataset_of(x, y),
        dataset_of(named, y),
        dataset_of(["ä"] * 8, [["ö", "ö"]] * 8),
    ):
        check_dataset(dataset)
    again = dataset_of(x, y)
    assert again.sha256 == dataset_of(x.tocsr(), y).sha256 != dataset_of(x, [["p"]] * 8).sha256


MATRIX = scipy.sparse.csr_matrix(np.eye(2))


@pytest.mark.parametrize(
    ("instances", "labels", "fault"),
    [
        ([], [], "instances: expected one at least, found none"),
        ("a text", [["x"]], "instances: expected a list of texts, .* found str"),
        (None, [["x"]], "instances: expected a list of texts, .* found NoneType"),
        (["a", 1], [["x"], []], "row 1: expected a string, found int 1"),
        (["a", {"b": 1}], [["x"], []], "row 1: expected a string, found dict"),
        (
            [{"a": 1}, "b"],
            [["x"], []],
            "row 1: expected a mapping as the rows before, found str 'b'",
        ),
        ([float("nan")], [["x"]], "row 0: expected a string, found float nan: a missing value"),
        (
            ["a\ud800"],
            [["x"]],
            "row 0: expected text that UTF-8 has bytes for, found a lone surrogate",
        ),
        ([{"a": float("nan")}], [["x"]], "row 0: expected a value that is finite .*, found nan"),
        ([{"a": 10**400}], [["x"]], "row 0: expected a value that is finite"),
        ([{"a": True}], [["x"]], "row 0: expected a number for feature 'a', found true"),
        (["a"], "x", "labels: expected a list of labels for each instance, .* found str"),
        (["a"], ["x"], "labels: row 0: expected a list of strings, found str 'x'"),
        (["a"], [["\ud800"]], "row 0: label: expected text, found a lone surrogate"),
        (
            ["a", "b"],
            [["x"], [1.5]],
            "labels: row 1: expected a list of strings, found float 1.5 in it",
        ),
        (["a"], [["x"], ["y"]], "labels: expected 1 rows, as many as instances, found 2"),
        (["a"], MATRIX, "labels: expected 1 rows, as many as instances, found 2"),
        (MATRIX * np.nan, [["x"], ["y"]], "finite"),
        (MATRIX[:, :0], [["x"], ["y"]], "matrix: expected 1 to .* columns, found 0"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(instances: Any, labels: Any, fault: str) -> None:
    with pytest.raises(BadInput, match=fault):
        xylem.train(instances, labels, trainer="ovr")


def test_what_cannot_be_asked_is_refused(rows: Rows, tmp_path: Path) -> None:
    _, texts, labels = rows
    model = xylem.train(texts, labels, trees=1)
    asks: list[tuple[Any, ...]] = [
        ([{"a": 1}],), ("text",), (texts, 0), (texts, 1.5), (texts, 5, 1.5), (texts, 5, "tuned"),
        (texts, 5, float("nan")),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(BadInput, match="found"):
            model.predict(*ask)
    for bad, meant in (
        ({"trees": 0}, "trees: expected"),
        ({"tres": 1}, r"; did you mean trees\?$"),
        ({"features_kind": "x"}, "kind: expected"),
        ({"trainer": "none"}, "trainer"),
        ({"trainer": "labeltree"}, r"; did you mean label-tree\?$"),
    ):
        with pytest.raises(BadInput, match=meant):
            xylem.train(texts, labels, **bad)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        xylem.load(tmp_path, "none")


def test_features_of_another_kind_are_refused() -> None:
    rows = scipy.sparse.csr_matrix(np.array([[0, 2, 0], [1, 0, 0]] * 4))
    labels = [["a"], ["b"]] * 4
    trained_on = (["red apple", "old car"] * 4, [{"x": 1}, {"y": 2}] * 4, rows)
    texts, named, raw = (xylem.train(each, labels, trainer="ovr") for each in trained_on)
    matrix = "which this model makes its own features of, found a matrix"
    wrong: list[tuple[xylem.Model, Any, str]] = [
        (texts, rows, f"instances: expected texts, {matrix}"),
        (named, rows, f"instances: expected mappings, {matrix}"),
        (texts, [{"x": 1}] * 8, "found named features"),
        (named, ["red"] * 8, "found text"),
        (raw, ["red"] * 8, "found text"),
        (raw, [{"x": 1}] * 8, "found named features"),
        (raw, rows[:, :2], "matrix: expected 3 columns, as this model was trained on, found 2"),
        (raw, scipy.sparse.hstack([rows, rows]), "expected 3 columns, .* found 6"),
        (
            raw,
            rows.toarray()[0],
            "matrix: expected an array of rows and columns, found 1 dimensions",
        ),
    ]
    for model, instances, fault in wrong:
        for call in (model.predict, lambda each: model.evaluate(each, labels)):  # noqa: B023
            with pytest.raises(BadInput, match=fault):
                call(instances)
    with pytest.raises(BadInput, match="expected texts, which"):
        texts.explain(rows[:1])


def run_python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_page_of_examples_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "python.md").read_text()
    done = run_python("-c", "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fruit 0.") and "labels: row 1: expected" in done.stdout


def test_the_tour_runs() -> None:
    done = run_python(ROOT / "examples" / "python_tour.py", "400")
    assert done.returncode == 0, done.stderr
    for said in (
        "role::program 0.",
        "on 100 rows",
        "debtags@1 answers the same",
        "at tuned thresholds",
    ):
        assert said in done.stdout, said


def rows_of(n: int, seed: int) -> tuple[list[str], list[Any]]:
    """Texts and labels of a combined version."""
    rows = documents(n, seed)
    return [str(row["text"]) for row in rows], [row["labels"] for row in rows]


def test_a_combination_is_the_command_s(tmp_path: Path) -> None:
    theirs = xylem.load(publish_combined(tmp_path).root, "both")
    train, valid, names = rows_of(150, 1), rows_of(110, 2), tmp_path / "names.csv"
    members = [xylem.train(*train), xylem.train(*train, features_kind="chars")]
    model = xylem.combine(members, names, *valid, language="en")
    texts = [*rows_of(30, 7)[0], "salt mine", ""]
    expected = theirs.predict(texts, top_r=7)
    assert model.predict(texts, top_r=7) == expected
    ours, said = model.report["combined"], theirs.report["combined"]
    assert ours["members"].keys() == {"member1@1", "member2@1"}
    assert said["members"].keys() == {"words@1", "chars@1"}
    assert ours["combined"] == said["combined"]
    assert model.report["data"]["source"] == "python" and model.report["data"]["rows"] == 110
    assert theirs.report["data"]["rows"] == 110
    evaluated = model.evaluate(*valid)
    assert evaluated["data"] == model.report["data"] and evaluated["findings"] == []
    assert model.save(tmp_path / "other", "saved") == 1
    assert xylem.load(tmp_path / "other", "saved").predict(texts, top_r=7) == expected
    near = xylem.combine(members[:1], None, *valid, rerank=train)
    assert near.report["combined"]["rerank"]["kept"] in (True, False)
    warnings = near.report.get("warnings", [])  # a few of the drawn texts are in both files
    assert all("they are left out" in warning for warning in warnings)
    with pytest.raises(BadInput, match="member member1@1: expected a version of trees"):
        xylem.combine([model], names, *valid)
    for options, fault in (
        ({"beam": 3}, "beam: expected only candidates, beam_width, .*; did you mean beam_width"),
        ({"candidates": "3"}, "candidates: expected 1 to 1000, found '3'"),
        ({"ranker": "best"}, "ranker: expected one of auto"),
    ):
        with pytest.raises(BadInput, match=fault):
            xylem.combine(members, names, *valid, **options)
