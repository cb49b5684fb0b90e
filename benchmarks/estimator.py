"""scikit-learn's estimator beside the command line: the same rows, in turns, each in a fresh process.

A first `fit` imports what it needs and loads kernels, which the command line has done before it begins to
count; a second one is what training takes.
"""

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
from benchmarks.server import ROOT, command_of


def run(settings: Settings) -> None:
    """Print the seconds of a first and a second `fit`, and of the training that the command line tells."""
    rows = []
    for data in settings.data:
        firsts, seconds, trainings = [], [], []
        for turn in range(settings.repeats + 1):
            note(f"{data.name}: turn {turn} of {settings.repeats}")
            first, second = json.loads(
                _last_line(sys.executable, "-m", "benchmarks.estimator", str(data.work))
            )
            trained = _by_command(data)
            if turn:  # the first one fills the caches
                firsts.append(first)
                seconds.append(second)
                trainings.append(trained)
        ratio = [one / other for one, other in zip(seconds, trainings, strict=True)]
        rows.append((data.name, *(spread(found, 2) for found in (firsts, seconds, trainings, ratio))))
    columns = ("", "first fit, s", "second fit, s", "xylem train by its report, s", "second fit / train")
    show(settings, "LabelTreeClassifier().fit(X, Y) beside xylem train label-tree", columns, rows)


def _by_command(data: Prepared) -> float:
    """Train by the command line; return the seconds that it says that it trained."""
    with tempfile.TemporaryDirectory() as store:
        options = ("--data", str(data.work / "train.txt"), "--model", "m", "--store", store, "--json")
        said = _last_line(*command_of(ROOT), "train", "label-tree", *options)
    return float(json.loads(said)["train_seconds"])


def _last_line(*command: str) -> str:
    """Return the last line that a process prints."""
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode().splitlines()[-1]


def main(work: Path) -> None:
    """Fit twice, and print the seconds of each."""
    from xylem.estimators import LabelTreeClassifier

    x, y = sp.load_npz(work / "train.rows.npz"), sp.load_npz(work / "train.labels.npz")
    took = []
    for _ in range(2):
        began = time.perf_counter()
        LabelTreeClassifier().fit(x, y)
        took.append(time.perf_counter() - began)
    print(json.dumps(took))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
