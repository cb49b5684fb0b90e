"""Every trainer on the same rows: P@k, PSP@k, seconds to train, microseconds a row, size and depth.

A data set with official splits (`--splits`) has the mean over them; the papers' figures stand
beside ours.
"""

import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Prepared
from benchmarks.ours import labels_of, rows_of
from benchmarks.peers.figures import timed
from benchmarks.predictions import SHOWN, metrics_of
from benchmarks.runs import Settings, note, show
from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.engine.searcher import Searcher
from xylem.trainers import TRAINERS, parse_parameters, train
from xylem.workflows.labelled import read_labelled
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.ensemble import TreeEnsemble
from xylem_store.store import Store

_MANY_ROWS = 10_000
_WARM_UP_ROWS = 200
_OPTIONS = PredictOptions(top_r=10)
_COLUMNS = ("", *SHOWN, "train s", "us a row", "us a row, tree", "MB", "depth")

_VARIANTS = {
    "label-tree": ("trees=1", "trees=3"),
    "ldsm": ("trees={trees}", "trees={trees},rerank=yes"),
    "fastxml": ("trees=50",),
    "pfastrexml": ("trees=50",),
}
"""What is shown of a trainer that is named without parameters; of all others the defaults."""

_PAPERS = {
    "bibtex": (
        ("LdSM, its paper", 64.69, 39.70, 29.25, 52.01, 54.38, 60.34),
        ("FastXML, LdSM's paper", 63.42, 39.23, 28.86),
        ("PFastreXML, LdSM's paper", 63.46, 39.22, 29.14),
        ("Parabel, LdSM's paper", 64.53, 38.56, 27.94),
    )
}
"""Figures of the papers, by how a data set's name begins."""


class Measured(NamedTuple):
    """The figures of a trainer on one split.

    metrics  of SHOWN
    """

    metrics: tuple[float, ...]
    train_seconds: float
    us_per_row: float
    trees: int
    model_bytes: int
    depth: int


def run(settings: Settings) -> None:
    for name, group in groupby(settings.data, key=lambda data: data.name):
        splits = list(group)
        variants = list(_variants(settings.trainers or list(TRAINERS), splits[0]))
        found: dict[tuple[str, str], list[Measured]] = {variant: [] for variant in variants}
        for data in splits:
            for variant, figures in found.items():
                note(f"{data.title}: {_title(*variant)}")
                figures.append(_measure(data, *variant, settings))
        rows = [_cells(_title(*variant), figures) for variant, figures in found.items()]
        rows += [
            _paper_cells(*row)
            for begin, said in _PAPERS.items()
            if name.startswith(begin)
            for row in said
        ]
        many = f", mean of {len(splits)} splits" if len(splits) > 1 else ""
        title = (
            f"{name}: {splits[0].n_rows:,} training rows, {splits[0].n_labels:,} "
            f"labels{many}; percent"
        )
        show(settings, title, _COLUMNS, rows)


def _variants(named: Sequence[str], data: Prepared) -> Iterator[tuple[str, str]]:
    """Yield a trainer and its parameters, `key=value,key=value`, for each row of the table.

    `named` is what the command line says: NAME, or NAME:key=value,key=value.
    """
    trees = 20 if data.n_rows > _MANY_ROWS else 50
    for item in named:
        name, colon, given = item.partition(":")
        for items in (given,) if colon else _VARIANTS.get(name, ("",)):
            yield name, items.format(trees=trees)


def _title(trainer: str, items: str) -> str:
    return f"{trainer}, {items.replace(',', ', ')}" if items else trainer


def _measure(data: Prepared, trainer: str, items: str, settings: Settings) -> Measured:
    """Train in this process, publish, open, and answer the test rows with what serves."""
    parameters = items.split(",") if items else []
    _warm_up(data, trainer, parameters)
    work = data.work / "trainers"
    shutil.rmtree(work, ignore_errors=True)
    store = Store(work)
    request = TrainRequest(
        trainer=trainer,
        data=data.work / "train.txt",
        parameters=parameters,
        threads=settings.threads,
    )
    report = train_and_publish(store, trainer, request)
    model = store.open(trainer)
    predictor = make_predictor(model)
    rows = read_labelled(model, data.work / "test.txt", lambda phase, done, total: None).rows
    found = predictor.predict(rows, _OPTIONS, 1)
    metrics = metrics_of(found.ptr, found.labels, data)
    return Measured(
        tuple(metrics[key] for key in SHOWN),
        report.train_seconds,
        _us_per_row(predictor, rows, settings.repeats),
        int(model.ensemble.child_ptr[0]),
        report.model_bytes,
        _depth(model.ensemble),
    )


def _warm_up(data: Prepared, trainer: str, parameters: Sequence[str]) -> None:
    """Train on a few rows, so that compiling is not measured."""
    x, y = (
        sp.load_npz(data.work / f"train.{part}.npz").tocsr()[:_WARM_UP_ROWS]
        for part in ("rows", "labels")
    )
    train(trainer, parse_parameters(trainer, parameters), rows_of(x), labels_of(y))


def _us_per_row(predictor: Searcher, rows: SparseRows, repeats: int) -> float:
    """Return the microseconds a row in a batch on one thread; the fastest of the repeats counts."""
    return 1e6 * min(timed([lambda: predictor.predict(rows, _OPTIONS, 1)] * repeats)) / rows.n_rows


def _depth(ensemble: TreeEnsemble) -> int:
    """Return the most edges between a root and a leaf. The nodes are numbered breadth-first."""
    last, depth = int(ensemble.child_ptr[0]), 0
    while ensemble.child_ptr[last] > last:
        last = int(ensemble.child_ptr[last])
        depth += 1
    return depth


def _cells(title: str, splits: Sequence[Measured]) -> tuple[str, ...]:
    """Return a line of the table: means over the splits, and the greatest depth."""
    metrics = np.mean([split.metrics for split in splits], axis=0)
    seconds, us, trees, size = np.mean(
        [(s.train_seconds, s.us_per_row, s.trees, s.model_bytes) for s in splits], axis=0
    )
    return (
        title,
        *(f"{metric:.2f}" for metric in metrics),
        f"{seconds:.1f}",
        f"{us:.1f}",
        f"{us / trees:.2f}",
        f"{size / 1e6:.1f}",
        f"{max(split.depth for split in splits)}",
    )


def _paper_cells(title: str, *metrics: float) -> tuple[str, ...]:
    cells = [f"{metric:.2f}" for metric in metrics]
    return (title, *cells, *[""] * (len(_COLUMNS) - 1 - len(cells)))
