"""Scores are calibrated: of versions, with a training, by the command, and in Python."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.helpers.datasets_helpers import refused
from tests.helpers.jobs_helpers import write_data
from tests.helpers.measured import evaluate

import xylem
from xylem.base.errors import BadData, BadInput
from xylem.workflows.calibrate import calibrate_and_publish
from xylem.workflows.evaluate import F_MEASURES
from xylem.workflows.request import TrainRequest
from xylem.workflows.train import train_and_publish
from xylem_store.manifest import has_calibration
from xylem_store.origin import ORIGIN, REPORT, content_digest, read_origin, read_report
from xylem_store.store import Store
from xylem_store.version import draft_of


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
    assert after.arrays.keys() - before.arrays.keys() == {"calibration/x", "calibration/y"}
    for name in before.arrays.keys() - {REPORT, ORIGIN}:
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
    answer = json.loads(out.splitlines()[-1])
    assert (answer.pop("data")["rows"], answer.pop("findings")) == (facts["rows"], [])
    assert answer == {**facts, "version": 2, "parent": 1}
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
