"""OFO during training: thresholds of rows that are counted before they are learnt, beside held-out ones.

Jasinska et al. 2016 (section 4.3) let OFO run on a validation set or beside the training. Here the training
is the first pass of `plt` with solver=sgd, in PARTS parts: the rows of a part are counted under a tree of
one pass over the rows before them. All thresholds are measured with the tree of all passes. OFO on rows that
this tree was trained on, which is what a last pass would count, stands beside them.

A second table is of what is built: `xylem train plt --stream --thresholds ofo` beside `xylem thresholds`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.data import Prepared
from benchmarks.ours import labels_of, rows_of
from benchmarks.runs import Settings, note, show
from benchmarks.thresholds import CONVENTIONS, model_of, quiet, split
from model_store.version import Model, manifest_of
from service.datasets import Dataset
from service.db.engine import Database, default_url
from service.evaluation import f_measures
from service.inference.parts import predict_all
from service.inference.predictors import make_predictor
from service.inference.searcher import Searcher
from service.thresholds.methods.ofo import Counters, Start, no_counts
from service.thresholds.store.state import ThresholdDatabase
from service.thresholds.store.tuned import Tuned
from service.trainers import fit, parse_parameters
from service.trainers.source import MemorySource, TrainingSet
from service.workflows.progressive import ProgressiveThresholds, predictor_so_far
from service.workflows.train import TrainRequest, train_dataset
from service.workflows.tune import TuneRequest, learn, tune

PARTS = 10
EPOCHS = 10
STARTS = (Start(1.0, 4.0), Start(1.0, 20.0), Start(10.0, 40.0), Start(10.0, 200.0))
WAYS = ("held-out rows", "rows trained on", "rows before they are learnt")
"""Scores of plt are probabilities: their power is 1."""


def run(settings: Settings) -> None:
    """Print a table for each data set: macro-F on the test rows, by start values and rows counted."""
    columns = ("a, b", *(f"{way}, {empty}" for way in WAYS for empty in CONVENTIONS))
    for data in settings.data:
        rows = [(f"{start.a:g}, {start.b:g}", *cells) for start, cells in _lines(data, settings.threads)]
        title = f"{data.name}: plt by sgd, OFO on which rows; macro-F on the test rows, percent"
        show(settings, title, columns, rows)
        title = f"{data.name}: plt by sgd, OFO after and beside training; macro-F on the test rows, percent"
        show(settings, title, ("OFO", "a, b", *CONVENTIONS), list(_built(data, settings)))


def _built(data: Prepared, settings: Settings) -> Iterator[tuple[str, ...]]:
    """Yield lines: thresholds of held-out rows, and those found beside the training."""
    train, valid, test = (_read(data, part) for part in ("train", "valid", "test"))
    model = model_of(data, "plt:solver=sgd", settings.threads)
    file = split(data) / "valid.X.npz"
    for empty in CONVENTIONS:
        (outcome,) = tune(model, TuneRequest(("ofo",), file, None, empty, threads=settings.threads), quiet)
        yield _line(f"after, held-out rows, {empty}", outcome.tuned, make_predictor(model), test, settings)
    for name, rows in (("beside, the same tree", train), ("beside, all training rows", _both(train, valid))):
        note(f"{data.name}: {name}")
        source = MemorySource(rows)
        found = ProgressiveThresholds(
            source, settings.threads, ThresholdDatabase(Database(default_url(settings.out)))
        )
        parameters = parse_parameters("plt", ["solver=sgd"])
        trained = fit("plt", parameters, source, 0, settings.threads, on_rows=found)
        tree = predictor_so_far(trained.ensemble, train.rows.n_features)
        yield _line(name, found.tuned(), tree, test, settings)


def _line(name: str, tuned: Tuned, tree: Searcher, test: TrainingSet, settings: Settings) -> tuple[str, ...]:
    nodes = tree.node_thresholds(tuned.thresholds)
    under = predict_all(tree, test.rows, nodes, settings.threads, lambda n: None)
    cells = (f"{f_measures(*under, test.labels, empty=empty).macro_f:.2f}" for empty in CONVENTIONS)
    return name, f"{tuned.start.a:g}, {tuned.start.b:g}", *cells


def _both(one: TrainingSet, other: TrainingSet) -> TrainingSet:
    """Return the rows of both, shuffled."""
    x, y = (sp.vstack([_matrices(one)[i], _matrices(other)[i]]).tocsr() for i in (0, 1))
    order = np.random.default_rng(1).permutation(x.shape[0])
    return TrainingSet(rows_of(x[order]), labels_of(y[order]))


def _lines(data: Prepared, threads: int) -> list[tuple[Start, list[str]]]:
    """Return the macro-F of every way and convention, by start values."""
    train, valid, test = (_read(data, part) for part in ("train", "valid", "test"))
    order = np.random.default_rng(0).permutation(train.rows.n_rows)
    label_counts = np.bincount(train.labels.indices, minlength=data.n_labels).astype(np.int64)
    final = _tree(train, EPOCHS, threads)
    parts = np.array_split(order, PARTS)
    trees = []
    for i in range(1, PARTS):
        note(f"{data.name}: part {i + 1} of {PARTS}")
        trees.append((_tree(_some(train, np.concatenate(parts[:i])), 1, threads), _some(train, parts[i])))
    found = []
    for start in STARTS:
        cells = []
        for counted in ([(final, valid)], [(final, train)], trees):
            thresholds = _ofo(counted, start, label_counts, train.rows.n_rows)
            under = predict_all(final, test.rows, final.node_thresholds(thresholds), threads, lambda n: None)
            cells += [f"{f_measures(*under, test.labels, empty=e).macro_f:.2f}" for e in CONVENTIONS]
        found.append((start, cells))
    return found


def _ofo(
    counted: list[tuple[Searcher, TrainingSet]], start: Start, label_counts: NDArray[np.int64], n_rows: int
) -> NDArray[np.float32]:
    """Return the thresholds after all rows, each counted under the tree that stands beside it."""
    counters: Counters = no_counts(len(label_counts))
    thresholds = np.empty(0, np.float32)
    for tree, part in counted:
        counters, thresholds = learn(
            tree, part.rows, part.labels, start, label_counts, n_rows, quiet, counters
        )
    return thresholds


def _tree(data: TrainingSet, epochs: int, threads: int) -> Searcher:
    """Return what answers from a tree of some passes over rows."""
    none = np.zeros(data.rows.n_rows, np.int32)
    names = [str(label) for label in range(data.labels.n_labels)]
    dataset = Dataset("rows", "0" * 64, data.rows.n_rows, data.rows, None, None, data.labels, none, names)
    parameters = ("solver=sgd", f"epochs={epochs}")
    draft = train_dataset(dataset, TrainRequest("plt", Path("-"), parameters=parameters, threads=threads))
    return make_predictor(Model(manifest_of(draft), draft.ensemble, draft.labels, draft.arrays()))


def _read(data: Prepared, part: str) -> TrainingSet:
    work = split(data)
    matrices = (sp.load_npz(work / f"{part}.{kind}.npz").tocsr() for kind in "XY")
    return TrainingSet(rows_of(next(matrices)), labels_of(next(matrices)))


def _some(data: TrainingSet, chosen: NDArray[np.int64]) -> TrainingSet:
    x, y = _matrices(data)
    return TrainingSet(rows_of(x[chosen]), labels_of(y[chosen]))


def _matrices(data: TrainingSet) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    rows, labels = data
    x = sp.csr_matrix((rows.values, rows.indices, rows.indptr), (rows.n_rows, rows.n_features))
    ones = np.ones(len(labels.indices), np.float32)
    return x, sp.csr_matrix((ones, labels.indices, labels.indptr), (rows.n_rows, labels.n_labels))
