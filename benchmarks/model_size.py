"""The size of label trees: the tables and figures of Lin, Liu and Lin 2024, on other data.

"Exploring Space Efficiency in a Tree-based Linear Model for Extreme Multi-label Classification": table 3
(precision with and without pruning), figure 4 (size against one-vs-rest, K = 100, by depth), figure 5 (the
same with K = ceil(L^(1/depth))), figure 7 (how features fall away from a node to its children).
"""

from __future__ import annotations

import math
import shutil

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Prepared
from benchmarks.ours import labels_of, rows_of
from benchmarks.quality import metrics_of
from benchmarks.runs import Settings, note, show
from model_store.store import Store
from model_store.version import Model
from service.evaluation.size_report import feature_reductions
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.trainers import estimate, parse_parameters
from service.workflows.labelled import read_labelled
from service.workflows.train import TrainRequest, train_and_publish

ARITY, DEPTH = 100, 6
FIXED_DEPTHS, VARIED_DEPTHS = (2, 3, 4, 5, 6), (2, 3, 4)
PRUNES = ("0", "0.1")
_BINS = np.linspace(0.0, 1.0, 11)
_CUTS = ("P@1", "P@3", "P@5")


def run(settings: Settings) -> None:
    for data in settings.data:
        models = {prune: _model(data, prune, settings) for prune in PRUNES}
        _pruning(data, models, settings)
        _ratios(data, settings)
        _reductions(data, models["0"], settings)


def _parameters(arity: int, depth: int, prune: str) -> list[str]:
    """Return the paper's tree: plain k-means, a node of no more labels than its arity is not divided."""
    tree = ["clustering=kmeans", f"arity={arity}", f"leaf_size={arity}", f"depth={depth}"]
    return [*tree, "link=hinge2", f"prune={prune}"]


def _model(data: Prepared, prune: str, settings: Settings) -> Model:
    """Return a tree of the paper's defaults, trained anew."""
    note(f"{data.name}: K = {ARITY}, prune {prune} trains")
    work = data.work / f"model-size-{prune}"
    shutil.rmtree(work, ignore_errors=True)
    parameters = _parameters(ARITY, DEPTH, prune)
    request = TrainRequest(
        "label-tree", data.work / "train.txt", parameters=parameters, threads=settings.threads
    )
    store = Store(work)
    train_and_publish(store, "tree", request)
    return store.open("tree")


def _pruning(data: Prepared, models: dict[str, Model], settings: Settings) -> None:
    """Show table 3."""
    rows = []
    for prune, model in models.items():
        test = read_labelled(model, data.work / "test.txt", lambda phase, done, total: None).rows
        found = make_predictor(model).predict_batch(test, PredictOptions(top_r=10), settings.threads)
        metrics = metrics_of(found.ptr, found.labels, data)
        n_weights = len(model.ensemble.sparse) + int(np.count_nonzero(model.ensemble.dense))
        rows.append((prune, *(f"{metrics[cut]:.2f}" for cut in _CUTS), f"{n_weights / 1e6:.2f}"))
    title = f"{data.name}: pruning (table 3), K = {ARITY}, depth {DEPTH}, squared hinge; percent"
    show(settings, title, ("prune", *_CUTS, "million weights"), rows)


def _ratios(data: Prepared, settings: Settings) -> None:
    """Show figures 4 and 5: the bound of equation 20, the mean over seeds."""
    x = rows_of(sp.load_npz(data.work / "train.rows.npz").tocsr())
    y = labels_of(sp.load_npz(data.work / "train.labels.npz").tocsr())
    n_labels = len(np.unique(y.indices))
    shapes = [("fixed", ARITY, depth) for depth in FIXED_DEPTHS]
    shapes += [("varied", math.ceil(n_labels ** (1 / depth)), depth) for depth in VARIED_DEPTHS]
    rows = []
    for kind, arity, depth in shapes:
        note(f"{data.name}: {kind} K = {arity}, depth {depth}")
        parameters = parse_parameters("label-tree", _parameters(arity, depth, "0"))
        sizes = [estimate("label-tree", parameters, x, y, seed) for seed in range(settings.repeats)]
        ratios = [100 * size["ratio_to_ovr"] for size in sizes]
        n_bytes = np.mean([size["bytes_bound"] for size in sizes]) / 1e6
        rows.append((kind, f"{arity}", f"{depth}", f"{np.mean(ratios):.1f}", f"{n_bytes:.1f}"))
    title = (
        f"{data.name}: size beside one-vs-rest (figures 4 and 5), {n_labels:,} labels; percent by "
        f"equation 20, mean of {settings.repeats} seeds"
    )
    show(settings, title, ("K", "", "most levels", "of one-vs-rest", "MB by equation 19"), rows)


def _reductions(data: Prepared, model: Model, settings: Settings) -> None:
    """Show figure 7: how many inner nodes of a depth have which alpha, and the mean of equation 45."""
    found = feature_reductions(model.ensemble)
    rows = []
    for depth in np.unique(found.depth).tolist():
        here = found.depth == depth
        counts, _ = np.histogram(found.alpha[here], _BINS)
        mean = np.average(found.alpha[here], weights=found.n_children[here])
        rows.append((f"{depth}", f"{mean:.3f}", f"{np.count_nonzero(here)}", *map(str, counts.tolist())))
    bins = [f"{low:.1f}-" for low in _BINS[:-1]]
    title = f"{data.name}: features used at a node over its parent's (figure 7), K = {ARITY}, nodes by alpha"
    show(settings, title, ("depth", "mean", "nodes", *bins), rows)
