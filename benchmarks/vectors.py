"""What vectors beside words cost: `python -m benchmarks vectors`.

The vector of a text is the sum of generated vectors of its words, 384 numbers: what it is worth is
not measured here, only what it costs to train on it, and to search with it.
"""

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.data import TEXTS, find
from benchmarks.runs import Settings, note, show
from xylem.base.rows import SparseRows
from xylem.datasets.reader import read_dataset
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.parameters import TfidfParameters
from xylem.engine.features.registry import fit_featurizer
from xylem.engine.features.vectors import VectorParameters
from xylem.engine.options import PredictOptions
from xylem.trainers.registry import parse_parameters, train
from xylem.workflows.choose_features import trial_model
from xylem_store.compiled.handles import F32
from xylem_store.names import build_names
from xylem_store.version import Model

NUMBERS = 384
DIMS = {"words": None, "and 128 components": 128, "and 384 numbers": 0}


def run(settings: Settings) -> None:
    """Print the table of each data set of texts."""
    for directory in settings.directories:
        rows = _rows(directory, settings.repeats)
        columns = "rows", "training, s", "ratio", "a row in a batch, us", "ratio"
        title = f"{directory.name}: vectors beside words, processor time, one thread"
        show(settings, title, columns, rows)


def _rows(directory: Path, repeats: int) -> list[tuple[str, ...]]:
    learnt = read_dataset(find(directory, "train", TEXTS))
    names = build_names(learnt.names)
    measured = read_dataset(find(directory, "test", TEXTS), labels=names)
    assert learnt.texts is not None and measured.texts is not None
    vectors, others = _vectors(learnt.texts), _vectors(measured.texts)
    searches: dict[str, Callable[[], object]] = {}
    seconds: dict[str, float] = {}
    for name, dims in DIMS.items():
        note(f"{directory.name}, {name}")
        parameters = None if dims is None else VectorParameters(dims=dims)
        with_vectors = learnt if dims is None else replace(learnt, vectors=vectors)
        featurizer, rows = fit_featurizer(with_vectors, TfidfParameters(), vectors=parameters)
        start = time.process_time()
        trained = train("label-tree", parse_parameters("label-tree", []), rows, learnt.labels, 0, 1)
        seconds[name] = time.process_time() - start
        model = trial_model(trained, learnt.labels.n_labels, featurizer.n_features)
        test = featurizer.transform_with_vectors(measured.texts, None if dims is None else others)
        searches[name] = _search(model, test)
    fastest = dict.fromkeys(DIMS, np.inf)
    for _ in range(2 + repeats):
        for name, search in searches.items():
            start = time.thread_time()
            search()
            fastest[name] = min(fastest[name], time.thread_time() - start)
    us = {name: 1e6 * value / measured.n_rows for name, value in fastest.items()}
    return [
        (
            name,
            f"{seconds[name]:.1f}",
            f"{seconds[name] / seconds['words']:.2f}",
            f"{us[name]:.1f}",
            f"{us[name] / us['words']:.2f}",
        )
        for name in DIMS
    ]


def _search(model: Model, rows: SparseRows) -> Callable[[], object]:
    predictor = make_predictor(model)
    return lambda: predictor.predict(rows, PredictOptions())


def _vectors(texts: Sequence[str]) -> F32:
    table = np.random.default_rng(0).normal(size=(1 << 12, NUMBERS)).astype(np.float32)
    rows = [[zlib.crc32(word.encode()) % len(table) for word in text.split()] for text in texts]
    return np.array([table[words].sum(0) for words in rows], np.float32)
