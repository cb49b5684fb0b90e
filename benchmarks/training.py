"""Training: seconds, memory and size beside the peers'; and what
the parameters do, on held-out rows.

`run` is the table `training` of `python -m benchmarks`. Called alone, the module trains in this
process and shows precision for every value of the parameters that vary:

    python -m benchmarks.training --data DIR ... --held-out --vary cost=0.5,1,2 --vary
    link=hinge2,hinge3

With --held-out a fifth of the training file's rows, in blocks of 20 neighbours, is kept from
training and predicted; the test file is not touched. Defaults are chosen so.
"""

import argparse
import itertools
import shlex
import sys
import time
from pathlib import Path
from statistics import mean

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Prepared, prepare
from benchmarks.ours import labels_of, rows_of
from benchmarks.predictions import SHOWN
from benchmarks.runs import Settings, able, show, spread, train
from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.predictor import PredictOptions, Predictor
from xylem.evaluation import PredictedRows, Truth, propensities, ranking_metrics
from xylem.trainers import parse_parameters, train as train_here
from xylem.workflows.choose_features import trial_model
from xylem.workflows.train import peak_memory_bytes

ROOT = Path(__file__).resolve().parents[1]
BLOCK = 20
HELD_OUT = 0.2
Split = tuple[SparseRows, LabelRows, SparseRows, LabelRows]


def run(settings: Settings) -> None:
    """Train every system in turn, `repeats` times over, each in a fresh process."""
    for data in settings.data:
        systems = able(settings, data)
        seconds: dict[str, list[float]] = {system.name: [] for system in systems}
        last = {}
        for _, system in itertools.product(range(settings.repeats), systems):
            last[system.name] = train(system, data, settings.threads)
            seconds[system.name].append(last[system.name]["train_seconds"])
        first = min(seconds[systems[0].name])
        rows = [
            (
                name,
                spread(values, 2),
                f"{min(values) / first:.2f}",
                f"{last[name]['peak_memory_bytes'] / 1e6:,.0f}",
                f"{last[name]['model_bytes'] / 1e6:,.1f}",
            )
            for name, values in seconds.items()
        ]
        title = f"{data.name}: training with {settings.threads} threads; ratio of the fastest runs"
        show(settings, title, ("", "seconds", "ratio", "peak MB", "model MB"), rows)


def load(data: Prepared, part: str) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Return the rows and the labels."""
    x, y = (sp.load_npz(data.work / f"{part}.{what}.npz").tocsr() for what in ("rows", "labels"))
    return x, y


def split(data: Prepared, is_held_out: bool, sample: float) -> Split:
    """Return rows and labels to train on and to predict."""
    x, y = load(data, "train")
    rng = np.random.default_rng(0)
    if not is_held_out:
        tests = load(data, "test")
        return rows_of(x), labels_of(y), rows_of(tests[0]), labels_of(tests[1])
    blocks = np.arange(x.shape[0]) // BLOCK
    out = (rng.random(blocks[-1] + 1) < HELD_OUT)[blocks]
    drawn = rng.random(x.shape[0]) < sample
    kept, held = np.flatnonzero(~out & drawn), np.flatnonzero(out & drawn)
    return rows_of(x[kept]), labels_of(y[kept]), rows_of(x[held]), labels_of(y[held])


def measure(
    parts: Split, trainer: str, items: list[str], seed: int, threads: int
) -> dict[str, float]:
    """Train and predict; return the metrics, the seconds and the number of weights."""
    rows, labels, held_rows, held_labels = parts
    start = time.perf_counter()
    trained = train_here(trainer, parse_parameters(trainer, items), rows, labels, seed, threads)
    seconds = time.perf_counter() - start
    predictor = Predictor(trial_model(trained, labels.n_labels, rows.n_features, trainer))
    found = predictor.predict(held_rows, PredictOptions(top_r=5), threads)
    counts = np.bincount(labels.indices, minlength=labels.n_labels)
    weights = propensities(counts, rows.n_rows)
    truth = Truth(held_labels, np.zeros(held_labels.n_rows, np.int32))
    metrics = ranking_metrics(PredictedRows(found.ptr, found.labels), truth, weights)
    return metrics | {"seconds": seconds, "nonzeros": trained.n_nonzeros}


def variants(vary: list[str]) -> list[list[str]]:
    """Return every combination of `key=a,b,c` as lists of `key=value`."""
    axes = []
    for item in vary:
        key, _, values = item.partition("=")
        axes.append([f"{key}={value}" for value in values.split(",")])
    return [list(combination) for combination in itertools.product(*axes)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data", nargs="+", type=Path, default=[ROOT / "examples" / "debtags"])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--trainer", default="label-tree")
    parser.add_argument("-p", dest="items", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--vary", action="append", default=[], metavar="KEY=A,B,C")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument(
        "--sample", type=float, default=1.0, help="with --held-out: use this share of the rows"
    )
    parser.add_argument("--seeds", type=int, default=1, help="mean of so many trainings")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    command = shlex.join(["python", "-m", "benchmarks.training", *sys.argv[1:]])
    data = [prepare(directory, given.out) for directory in given.data]
    settings = Settings(data, given.out, given.threads, given.seeds, (), (), "float32", (), command)
    for one in data:
        parts = split(one, given.held_out, given.sample)
        measure(parts, given.trainer, ["max_epochs=1"], 0, 1)  # compiles
        rows = []
        for variant in variants(given.vary):
            runs = [
                measure(parts, given.trainer, [*given.items, *variant], seed, given.threads)
                for seed in range(given.seeds)
            ]
            cells = [f"{mean(r[key] for r in runs):.2f}" for key in SHOWN]
            seconds = spread([r["seconds"] for r in runs], 2)
            rows.append(
                (" ".join(variant) or "defaults", *cells, seconds, f"{runs[-1]['nonzeros']:,.0f}")
            )
        what = "held-out rows of the training file" if given.held_out else "test file"
        title = (
            f"{one.name}: {parts[0].n_rows:,} rows, {parts[1].n_labels:,} labels; "
            f"percent on the {what}"
        )
        show(settings, title, ("", *SHOWN, "seconds", "weights"), rows)
    print(f"peak memory {peak_memory_bytes() / 1e6:,.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
