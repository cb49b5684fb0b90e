"""One call of a tree of softmax nodes: microseconds of the processor, which hang little on who else computes.

The first table has one row a call from Python, the best five labels by a beam of 10 and exactly, of a tree
that is trained on the data set, and the exact probability of one label of a row. The second has that of one
label of 250,000, of a generated tree: as a call from Python, and as a request's body that becomes an answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Prepared
from benchmarks.ours import labels_of, rows_of
from benchmarks.runs import Settings, note, show, spread
from model_store.build import build_ensemble
from model_store.embedding import EMBEDDING
from model_store.manifest import DataInfo, TrainerInfo
from model_store.names import build_names
from model_store.store import Store
from model_store.version import Draft, Model
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.inference.searcher import Searcher
from service.rows import SparseRows
from service.serving.opening import serve_model
from service.serving.schemas.score import ScoreRequest
from service.serving.scores import answer_scores
from service.settings import Limits
from service.trainers import Trained, parse_parameters, train
from service.trainers.softmax.shapes import even_shape, topology_of, tree_of
from service.trainers.softmax.tree import Network

DIM, ARITY, CALLS = 50, 20, 2_000
MANY_LABELS, FEATURES, ROW_FEATURES = 250_000, 100_000, 8
_TREES = (f"huffman-tree:arity={ARITY},epochs=5", f"huffman-tree:arity={ARITY},epochs=5,tree=kmeans")
_WAYS = {
    "top 5, beam 10": PredictOptions(top_r=5, beam_width=10),
    "top 5, exact": PredictOptions(top_r=5, exact=True),
}


def run(settings: Settings) -> None:
    """Print both tables; the fastest of the repeats is told, and their range."""
    for data in settings.data:
        rows = [_trained_tree(data, variant, settings) for variant in settings.trainers or _TREES]
        title = f"{data.title}: one call, us of processor time; {data.n_labels:,} labels, dim {DIM}"
        show(settings, title, ("", *_WAYS, "exact / beam", "score of a label"), rows)
    title = (
        f"Generated: score of a label, us of processor time; {MANY_LABELS:,} labels, dim {DIM}, arity {ARITY}"
    )
    show(settings, title, ("a call", "body to answer"), [_many_labels(settings)])


def _us(call: Callable[[int], object], repeats: int) -> list[float]:
    """Return the microseconds of a call, each the mean of CALLS, as often as `repeats` says."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        for i in range(CALLS):
            call(i)
        found.append(1e6 * (time.process_time() - start) / CALLS)
    return found


def _told(us: list[float]) -> str:
    return f"{min(us):.1f} ({spread(us, 1)})"


def _trained_tree(data: Prepared, variant: str, settings: Settings) -> tuple[str, ...]:
    predictor = make_predictor(_model_of(data, variant))
    matrix = sp.load_npz(data.work / "test.rows.npz").tocsr()[:CALLS]
    rows = rows_of(matrix)
    each = [rows.cut(i, i + 1) for i in range(rows.n_rows)]
    labels = np.random.default_rng(0).integers(0, data.n_labels, (len(each), 1)).astype(np.int32)
    ptr = np.array([0, 1])
    n = len(each)
    us = [_us(partial(_predict, predictor, each, way), settings.repeats) for way in _WAYS.values()]
    score = _us(lambda i: predictor.score_labels(each[i % n], ptr, labels[i % n]), settings.repeats)
    name = variant.replace(":", ",").replace(",", ", ")
    return name, *map(_told, us), f"{min(us[1]) / min(us[0]):.1f}", _told(score)


def _predict(predictor: Searcher, rows: list[SparseRows], way: PredictOptions, i: int) -> None:
    predictor.predict(rows[i % len(rows)], way)


def _model_of(data: Prepared, variant: str) -> Model:
    """Return the opened version of a tree of the training rows, trained if it is not there."""
    store = Store(data.work / "softmax-latency")
    name = "".join(c if c.isalnum() else "-" for c in variant)
    if name not in {info.name for info in store.models()}:
        note(f"{data.title}: {variant} trains")
        trainer, _, given = variant.partition(":")
        x, y = (sp.load_npz(data.work / f"train.{part}.npz").tocsr() for part in ("rows", "labels"))
        parameters = parse_parameters(trainer, [f"dim={DIM}", *given.split(",")])
        trained = train(trainer, parameters, rows_of(x), labels_of(y))
        _publish(store, name, trained, x.shape[1], data.n_labels)
    return store.open(name)


def _publish(store: Store, name: str, trained: Trained, n_features: int, n_labels: int) -> None:
    store.publish(
        name,
        Draft(
            kind=trained.kind,
            link=trained.link,
            weights="float32",
            n_features=n_features,
            trainer=TrainerInfo("huffman-tree", trained.parameters),
            seed=0,
            data=DataInfo(name, 1, "0" * 64),
            metrics={},
            features={"kind": "raw", "norm": "none"},
            ensemble=trained.ensemble,
            labels=build_names(f"label {i}" for i in range(n_labels)),
            extra=trained.extra,
        ),
    )


def _many_labels(settings: Settings) -> tuple[str, ...]:
    """Return the times of one label's probability among many."""
    work = settings.out / "softmax-latency"
    model = _generated(work)
    served, random = serve_model(model), np.random.default_rng(1)
    width = FEATURES // ROW_FEATURES  # a row has a feature of each part of so many
    indices = random.integers(0, width, (CALLS, ROW_FEATURES)) + width * np.arange(ROW_FEATURES)
    indices = indices.astype(np.int32)
    values = np.ones(ROW_FEATURES, np.float32)
    ptr = np.array([0, ROW_FEATURES])
    rows = [SparseRows(ptr, row, values, FEATURES) for row in indices]
    labels = random.integers(0, MANY_LABELS, (CALLS, 1)).astype(np.int32)
    one, limits = np.array([0, 1]), Limits()
    bodies = []
    for row, label in zip(indices, labels, strict=True):
        instance = {"indices": row.tolist(), "values": values.tolist(), "labels": [f"label {label[0]}"]}
        bodies.append(json.dumps({"instances": [instance]}))
    calls = _us(lambda i: served.predictor.score_labels(rows[i], one, labels[i]), settings.repeats)
    whole = _us(
        lambda i: answer_scores(ScoreRequest.model_validate_json(bodies[i]), served, limits),
        settings.repeats,
    )
    return _told(calls), _told(whole)


def _generated(work: Path) -> Model:
    """Return an even tree of MANY_LABELS, its parameters drawn from a normal distribution."""
    store = Store(work)
    if not store.models():
        note(f"a tree of {MANY_LABELS:,} labels is generated")
        random = np.random.default_rng(0)
        labels = np.arange(MANY_LABELS, dtype=np.int32)
        topology = topology_of(even_shape(labels, ARITY), ARITY, MANY_LABELS)
        shape = (*topology.child.shape, DIM)
        network = Network(
            random.standard_normal(shape, np.float32),
            np.zeros(topology.child.shape, np.float32),
            random.standard_normal((FEATURES, DIM), np.float32),
            np.zeros((1, 0, DIM), np.float32),
        )
        tree = tree_of(topology, network, DIM)
        arrays = {"u": network.embedding, "r": network.transition, "mean": np.ones(1, np.int32)}
        extra = {f"{EMBEDDING}/{name}": array for name, array in arrays.items()}
        ensemble = build_ensemble([tree], MANY_LABELS, DIM)
        trained = Trained(ensemble, "label-tree", "softmax", {}, 0, extra)
        _publish(store, "many", trained, FEATURES, MANY_LABELS)
    return store.open("many")
