"""The online tree beside Vowpal Wabbit's --log_multi: error at the same budget, cost against the labels.

python -m benchmarks lomtree [--without-peers]

Digits are scikit-learn's, 70% to train. Generated classes have WORDS of VOCABULARY features each; a row has
half of its class's and as many of others. Both systems get the same rows in the same order, as many passes
and as many inner nodes: LEAVES_A_LABEL leaves for each class. Both train RUNS times, and the fastest counts:
memory that a virtual machine has not had before takes long to be cleared.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.environments import HERE, NotInstalled, python_of
from benchmarks.runs import Settings, note, show
from benchmarks.systems import Figures, System
from model_store.manifest import DataInfo, TrainerInfo
from model_store.names import build_names
from model_store.store import Store
from model_store.version import Draft
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.rows import LabelRows, SparseRows
from service.trainers import Trained, parse_parameters, train
from service.trainers.lomtree.trainer import LEAVES_A_LABEL

CLASSES = (16, 64, 256, 1024, 4096)
VOCABULARY = 4096
WORDS = 30
ROWS_A_CLASS = 20
ROWS_MIN = 4000
TEST_ROWS = 4000
RUNS = 2
VOWPAL_WABBIT = System(
    "Vowpal Wabbit 9.11.9",
    lambda: [str(python_of("vowpalwabbit")), str(HERE / "vowpalwabbit_peer.py")],
    (),
    "vw.found",
)


class Classes(NamedTuple):
    """Rows of one label each, to train and to test."""

    name: str
    rows: SparseRows
    labels: NDArray[np.int32]
    test_rows: SparseRows
    test_labels: NDArray[np.int32]

    @property
    def n_labels(self) -> int:
        return int(self.labels.max()) + 1


def digits() -> Classes:
    """Return scikit-learn's digits, rows of length 1."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = x / np.sqrt((x**2).sum(axis=1, keepdims=True))
    parts = train_test_split(x, y.astype(np.int32), test_size=0.3, random_state=0, stratify=y)
    return Classes("digits", _dense(parts[0]), parts[2], _dense(parts[1]), parts[3])


def _dense(x: NDArray[np.float64]) -> SparseRows:
    row, feature = np.nonzero(x)
    indptr = np.searchsorted(row, np.arange(len(x) + 1)).astype(np.int64)
    return SparseRows(indptr, feature.astype(np.int32), x[row, feature].astype(np.float32), x.shape[1])


def generated(n_labels: int) -> Classes:
    """Return rows of so many classes, of equal frequency."""
    random = np.random.default_rng(n_labels)
    words = random.integers(0, VOCABULARY, (n_labels, WORDS))

    def draw(n: int) -> tuple[SparseRows, NDArray[np.int32]]:
        labels = random.integers(0, n_labels, n).astype(np.int32)
        others = random.integers(0, VOCABULARY, (n, WORDS))
        features = np.sort(np.where(random.random((n, WORDS)) < 0.5, words[labels], others), axis=1)
        first = np.diff(features, axis=1, prepend=-1) > 0
        indptr = np.concatenate([[0], np.cumsum(first.sum(axis=1))])
        lengths = np.repeat(np.sqrt(np.diff(indptr)), np.diff(indptr))
        values = (1 / lengths).astype(np.float32)
        return SparseRows(indptr, features[first].astype(np.int32), values, VOCABULARY), labels

    rows, labels = draw(max(ROWS_MIN, ROWS_A_CLASS * n_labels))
    labels[:n_labels] = np.arange(n_labels)  # so that the last class is among them
    return Classes(f"{n_labels:,} classes", rows, labels, *draw(TEST_ROWS))


def ours(data: Classes, passes: int) -> Figures:
    """Train in this process and answer through an opened version, on one thread."""
    n = data.n_labels
    trained, figures = _trained(data, passes)
    draft = Draft(
        kind=trained.kind,
        link=trained.link,
        weights="float32",
        n_features=data.rows.n_features,
        trainer=TrainerInfo("lomtree", trained.parameters),
        seed=0,
        data=DataInfo(data.name, data.rows.n_rows, "0" * 64),
        metrics={},
        features={"kind": "raw", "norm": "none"},
        ensemble=trained.ensemble,
        labels=build_names(f"label {i}" for i in range(n)),
    )
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        store.publish("model", draft)
        predictor = make_predictor(store.open("model"))
        found = predictor.predict_batch(data.test_rows, PredictOptions(top_r=1), 1)
        start = time.perf_counter()
        predictor.predict_batch(data.test_rows, PredictOptions(top_r=1), 1)
        figures["predict_seconds"] = time.perf_counter() - start
    figures["error"] = 100 * float(np.mean(found.labels[found.ptr[:-1]] != data.test_labels))
    return {**figures, "depth": trained.report["mean_depth"]}


def _trained(data: Classes, passes: int) -> tuple[Trained, Figures]:
    """Train RUNS times; return the last model, and the seconds to learn and then to finish it."""
    labels = LabelRows(np.arange(data.rows.n_rows + 1), data.labels, data.n_labels)
    parameters = parse_parameters("lomtree", ["order=given", f"passes={passes}"])
    learning, finishing = [], []
    for _ in range(RUNS):
        last_rows = start = time.perf_counter()

        def on_progress(*_: object) -> None:
            nonlocal last_rows
            last_rows = time.perf_counter()

        trained = train("lomtree", parameters, data.rows, labels, progress=on_progress)
        learning.append(last_rows - start)
        finishing.append(time.perf_counter() - last_rows)
    return trained, {"train_seconds": min(learning), "finish_seconds": min(finishing)}


def peers(data: Classes, passes: int) -> Figures:
    """Write the rows for Vowpal Wabbit and run it. Raises NotInstalled."""
    VOWPAL_WABBIT.command()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        _write(work / "train.vw", data.rows, data.labels)
        _write(work / "test.vw", data.test_rows, data.test_labels)
        splits = str(LEAVES_A_LABEL * data.n_labels - 1)
        arguments = ("train", work, "--splits", splits, "--passes", str(passes))
        runs = [VOWPAL_WABBIT.run(*arguments) for _ in range(RUNS)]
        figures = min(runs, key=lambda run: run["train_seconds"])
        figures |= VOWPAL_WABBIT.run("predict", work)
        found = np.array([int(line) for line in (work / VOWPAL_WABBIT.found).read_text().split()]) - 1
    return {**figures, "error": 100 * float(np.mean(found != data.test_labels))}


def _write(path: Path, rows: SparseRows, labels: NDArray[np.int32]) -> None:
    with path.open("w") as out:
        for row, label in enumerate(labels.tolist()):
            cut = slice(*rows.indptr[row : row + 2])
            pairs = zip(rows.indices[cut].tolist(), rows.values[cut].tolist(), strict=True)
            out.write(
                f"{label + 1} | " + " ".join(f"{feature}:{value:.7g}" for feature, value in pairs) + "\n"
            )


def run(settings: Settings) -> None:
    """Print a line for each data set and number of passes; plot the costs where matplotlib is installed."""
    has_peer = any(not system.name.startswith("Xylem") for system in settings.systems)
    ours(generated(4), 1)  # compiles
    rows, costs = [], {}
    cases = [(digits(), 1), (digits(), 5), *((generated(n), 1) for n in CLASSES)]
    for data, passes in cases:
        note(f"lomtree: {data.name}, {passes} passes")
        mine, theirs = ours(data, passes), _peer_or_none(data, passes) if has_peer else None
        costs[data.n_labels] = cost = _us(mine, data, passes)
        peer = _us(theirs, data, passes) if theirs else None
        rows.append(
            (
                data.name,
                str(passes),
                f"{mine['error']:.1f}",
                f"{theirs['error']:.1f}" if theirs else "-",
                f"{mine['depth']:.1f}",
                f"{cost[0]:.1f}",
                f"{peer[0]:.1f}" if peer else "-",
                f"{cost[0] / mine['depth']:.2f}",
                f"{1e6 * mine['finish_seconds'] / data.rows.n_rows:.0f}",
                f"{cost[1]:.2f}",
                f"{peer[1]:.2f}" if peer else "-",
            )
        )
    learning = ("learning, us a row and pass", "VW's", "a level", "finishing, us a row")
    columns = ("data", "passes", "error, %", "VW's", "mean depth", *learning, "prediction, us a row", "VW's")
    show(settings, f"Online trees, {LEAVES_A_LABEL} leaves a label; one thread", columns, rows)
    _plot(settings.out / "lomtree.png", {n: costs[n] for n in CLASSES})


def _peer_or_none(data: Classes, passes: int) -> Figures | None:
    try:
        return peers(data, passes)
    except NotInstalled as reason:
        note(f"Vowpal Wabbit is left out, it cannot be installed: {reason}")
        return None


def _us(figures: Figures, data: Classes, passes: int) -> tuple[float, float]:
    """Return the microseconds a row of learning, a pass, and of prediction."""
    return (
        1e6 * figures["train_seconds"] / data.rows.n_rows / passes,
        1e6 * figures["predict_seconds"] / data.test_rows.n_rows,
    )


def _plot(file: Path, costs: dict[int, tuple[float, float]]) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("lomtree: no plot, matplotlib is not installed\n")
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="classes", ylabel="microseconds a row, one thread")
    for i, name in enumerate(("learning, a pass", "prediction, a batch")):
        points = {n: cost[i] for n, cost in costs.items()}
        axes.plot(list(points), list(points.values()), marker="o", color=f"C{i}", label=name)
        first = min(points)
        logarithm = [points[first] * np.log2(n) / np.log2(first) for n in points]
        axes.plot(list(points), logarithm, "--", color=f"C{i}", label="as the logarithm")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(file, dpi=150)
    print(f"lomtree: plotted in {file}\n")
