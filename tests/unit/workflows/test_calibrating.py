"""Calibrating a version: what is published, what is refused, and that the command and Python say the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xylem
from model_store.manifest import has_calibration
from model_store.origin import ORIGIN, REPORT, content_digest, read_origin, read_report
from model_store.store import Store
from model_store.version import draft_of
from service.base.errors import BadData, BadInput, BadParameter
from service.workflows.calibrate import calibrate_and_publish
from service.workflows.evaluate import F_MEASURES
from service.workflows.train import TrainRequest, train_and_publish
from tests.jobs_helpers import write_data
from tests.measured import evaluate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a model that is too sure of itself, and files that it was not trained on."""
    folder = tmp_path_factory.mktemp("calibrating")
    write_data(folder / "train.jsonl", 300, seed=1)
    write_data(folder / "valid.jsonl", 400, seed=2, noise=0.5)
    write_data(folder / "test.jsonl", 400, seed=3, noise=0.5)
    request = TrainRequest("label-tree", folder / "train.jsonl", folder / "valid.jsonl")
    train_and_publish(Store(folder / "store"), "m", request)
    return folder


@pytest.fixture(scope="module")
def facts(folder: Path) -> dict[str, Any]:
    return calibrate_and_publish(Store(folder / "store"), "m", "1", folder / "valid.jsonl")


def test_what_is_published(folder, facts):
    store = Store(folder / "store")
    store.verify("m", 2)
    before, after = store.open("m", 1), store.open("m", 2)
    assert (facts["model"], facts["version"], facts["parent"], facts["rows"]) == ("m", 2, 1, 400)
    assert store.resolve("m") == 2
    added = after.arrays.keys() - before.arrays.keys()
    assert added == {"calibration/x", "calibration/y", ORIGIN}
    assert all(
        np.array_equal(after.arrays[name], array) for name, array in before.arrays.items() if name != REPORT
    )
    assert "validation" not in read_report(after.arrays)
    assert not after.manifest.metrics.keys() & {*F_MEASURES}
    assert after.manifest.metrics.keys() >= {"P@1", "nDCG@5"}
    assert after.manifest.trainer == before.manifest.trainer
    assert after.manifest.data == before.manifest.data
    origin = read_origin(after.arrays)
    assert origin["parent"] == {"model": "m", "version": 1, "content": content_digest(before.manifest)}
    told = origin["calibration"]
    assert (told["source"], told["rows"], told["knots"]) == ("valid.jsonl", 400, facts["knots"])
    assert told["error_after"] == facts["calibration_error"]["after"]


def test_scores_are_as_true_as_they_say(folder, facts):
    store = Store(folder / "store")
    before, after = (evaluate(store.open("m", version), folder / "test.jsonl") for version in (1, 2))
    assert before["calibration_error"] > 0.08
    assert after["calibration_error"] < 0.05  # of 400 rows
    assert facts["calibration_error"]["after"] < 0.05
    for key in before:
        if "@" in key:
            assert before[key] == after[key], key


def test_calibrated_again_it_is_fitted_anew(folder, facts, tmp_path):
    source = Store(folder / "store").open("m", 2)
    store = Store(tmp_path)
    store.prepare()
    store.publish("m", draft_of(source))
    expected = {**facts, "version": 2, "parent": 1}
    assert calibrate_and_publish(store, "m", "1", folder / "valid.jsonl") == expected
    again = store.open("m", 2).arrays
    assert all(np.array_equal(again[f"calibration/{k}"], source.arrays[f"calibration/{k}"]) for k in "xy")


def test_what_cannot_be_fitted_to_is_refused(folder, tmp_path):
    store = Store(folder / "store")
    n_versions = len(store.models()[0].versions)
    with pytest.raises(BadData, match="not trained on, found those that it was trained on"):
        calibrate_and_publish(store, "m", "1", folder / "train.jsonl")
    with pytest.raises(BadData, match="expected at least 100 rows, found 99"):
        calibrate_and_publish(store, "m", "1", write_data(tmp_path / "few.jsonl", 99))
    strange = tmp_path / "strange.jsonl"
    strange.write_text('{"text": "first1", "labels": ["unheard of"]}\n' * 200)
    with pytest.raises(BadData, match="expected rows of which a prediction is true, found none in 200"):
        calibrate_and_publish(store, "m", "1", strange)
    assert len(store.models()[0].versions) == n_versions


def test_at_once_with_training(folder, run_here, facts, tmp_path):
    data = "--data", folder / "train.jsonl", "--valid", folder / "valid.jsonl", "--model", "m"
    done = run_here("train", "label-tree", *data, "--calibrate", "--json", store=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["calibration_error"] == facts["calibration_error"]
    assert not told["metrics"].keys() & {*F_MEASURES}
    two_steps, one = Store(folder / "store").open("m", 2), Store(tmp_path).open("m", 1)
    for name in ("calibration/x", "calibration/y"):
        assert np.array_equal(one.arrays[name], two_steps.arrays[name])
    assert read_origin(one.arrays)["calibration"]["source"] == "valid.jsonl"
    for given, message in (
        (("label-tree", *data[:2], *data[4:]), "expected a validation file to fit to, found none"),
        (("huffman-tree", *data), "found huffman-tree, whose sum to 1"),
        (("label-tree", *data[:2], "--valid", folder / "train.jsonl", *data[4:]), "that it was trained on"),
    ):
        refused = run_here("train", *given, "--calibrate", store=tmp_path)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_exact_probabilities_stay_exact(folder, tmp_path):
    request = TrainRequest("huffman-tree", folder / "train.jsonl", parameters=("epochs=1", "dim=4"))
    train_and_publish(Store(tmp_path), "m", request)
    with pytest.raises(BadParameter, match="found one of huffman-tree: its probabilities sum to 1"):
        calibrate_and_publish(Store(tmp_path), "m", "latest", folder / "valid.jsonl")


def test_the_command(folder, facts, run_here, tmp_path):
    store = Store(tmp_path)
    store.prepare()
    store.publish("m", draft_of(Store(folder / "store").open("m", 1)))
    done = run_here("calibrate", "m", "--data", folder / "valid.jsonl", "--json", store=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {**facts, "version": 2, "parent": 1}
    done = run_here("calibrate", "m@1", "--data", folder / "valid.jsonl", store=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Before: the first labels of each row" in done.stdout
    assert "expected calibration error before" in done.stdout
    shown = run_here("models", "show", "m@3", store=tmp_path)
    assert "origin calibration source" in shown.stdout
    refused = run_here("calibrate", "m", "--data", folder / "train.jsonl", store=tmp_path)
    assert refused.returncode == 2
    assert "found those that it was trained on" in refused.stderr


def test_in_python(folder, facts, tmp_path):
    lines = [json.loads(line) for line in (folder / "valid.jsonl").read_text().splitlines()]
    texts, labels = [line["text"] for line in lines], [line["labels"] for line in lines]
    model = xylem.load(folder / "store", "m@1").calibrate(texts, labels)
    expected = xylem.load(folder / "store", "m@2")
    assert model.predict(texts, top_r=6) == expected.predict(texts, top_r=6)
    assert model.save(tmp_path, "m") == 1
    Store(tmp_path).verify("m", 1)
    arrays = Store(tmp_path).open("m").arrays
    assert has_calibration(arrays)
    assert read_origin(arrays)["parent"]["version"] == 1
    trained = xylem.train(texts, labels).calibrate(texts[:200], labels[:200])
    assert trained.save(tmp_path, "m") == 2
    with pytest.raises(BadInput, match="expected at least 100 rows"):
        model.calibrate(texts[:50], labels[:50])
