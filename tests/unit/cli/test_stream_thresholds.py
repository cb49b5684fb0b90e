"""`xylem train plt --stream --thresholds ofo`: a version that answers at its thresholds at once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Run
from tests.jobs_helpers import write_data


def test_a_streamed_version_is_predicted_at_thresholds_of_its_training(run_here: Run, tmp_path: Path) -> None:
    data, store = write_data(tmp_path / "rows.jsonl", 200, seed=3), tmp_path / "store"
    arguments = ("train", "plt", "--data", data, "--model", "m", "-p", "solver=sgd", "--stream")
    done = run_here(*arguments, "--thresholds", "ofo", "--json", store=store)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    found = report["thresholds"]
    assert found.keys() == {"method", "epoch", "rows", "start", "validation_macro_f"}
    assert (found["method"], found["epoch"], found["rows"]) == ("ofo", 1, 180)
    (text, *_) = (json.loads(line)["text"] for line in data.read_text().splitlines())
    line = json.dumps({"text": text}) + "\n"
    predicted = run_here("predict", "m", "--threshold", "tuned", store=store, input=line)
    assert predicted.returncode == 0, predicted.stderr
    assert json.loads(predicted.stdout)["labels"]


def test_thresholds_that_cannot_be_found_are_refused(run_here: Run, tmp_path: Path) -> None:
    data, store = write_data(tmp_path / "rows.jsonl", 40, seed=3), tmp_path / "store"
    cases = {
        "thresholds: expected ofo, found 'fta'": ("plt", "--stream", "--thresholds", "fta"),
        "thresholds: expected --stream": ("plt", "--thresholds", "ofo"),
        "thresholds: expected a trainer of plt": ("learned-tree", "--stream", "--thresholds", "ofo"),
    }
    for message, arguments in cases.items():
        done = run_here("train", *arguments, "--data", data, "--model", "m", store=store)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
