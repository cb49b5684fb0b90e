"""scikit-learn's estimator beside the command line: the same rows, in turns, each in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import scipy.sparse as sp

from benchmarks.data import Prepared
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import ROOT

_CLI = "from service.cli import main; main()"


def run(settings: Settings) -> None:
    """Print the seconds of `fit`, of the training that the command line tells, and of all of its process."""
    rows = []
    for data in settings.data:
        fits, trainings, processes = [], [], []
        for turn in range(settings.repeats + 1):
            note(f"{data.name}: turn {turn} of {settings.repeats}")
            fit = _process("-m", "benchmarks.estimator", str(data.work))
            began = time.perf_counter()
            trained = _by_command(data)
            took = time.perf_counter() - began
            if turn:  # the first one fills the caches
                fits.append(float(fit))
                trainings.append(trained)
                processes.append(took)
        ratio = [fit / trained for fit, trained in zip(fits, trainings, strict=True)]
        rows.append((data.name, *(spread(found, 2) for found in (fits, trainings, processes, ratio))))
    columns = ("", "fit, s", "xylem train says, s", "its process, s", "fit / train")
    show(settings, "LabelTreeClassifier().fit(X, Y) beside xylem train label-tree", columns, rows)


def _by_command(data: Prepared) -> float:
    """Train by the command line; return the seconds that it says that it trained."""
    with tempfile.TemporaryDirectory() as store:
        options = ("--data", str(data.work / "train.txt"), "--model", "m", "--store", store, "--json")
        said = _process("-c", _CLI, "train", "label-tree", *options)
    return float(json.loads(said)["train_seconds"])


def _process(*arguments: str) -> str:
    """Return the last line that a Python process prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return done.stdout.decode().splitlines()[-1]


def main(work: Path) -> None:
    """Fit, and print the seconds."""
    from xylem.estimators import LabelTreeClassifier

    x, y = sp.load_npz(work / "train.rows.npz"), sp.load_npz(work / "train.labels.npz")
    began = time.perf_counter()
    LabelTreeClassifier().fit(x, y)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
