"""Functions for the tests of trainers: train, predict, and compare models bit by bit."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.oracles.problems import dense_labels, to_labels, to_rows
from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.trainers import Trained, TrainingSet, estimate, parse_parameters, train
from xylem.trainers.source import Tools
from xylem.workflows.choose_features import trial_model
from xylem_store.ensemble import Chunk

Data = tuple[SparseRows, LabelRows]


def data_of(x: Any, carried: Any) -> TrainingSet:
    """Return a training set of dense rows and an indicator matrix of labels."""
    return TrainingSet(to_rows(np.asarray(x)), to_labels(np.asarray(carried)))


def choices(**values_by_name: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy that draws a value of each of these parameters."""
    return st.fixed_dictionaries(
        {name: st.sampled_from(values) for name, values in values_by_name.items()}
    )


def trained_by(name: str, data: Data, *items: str, seed: int = 0, threads: int = 1) -> Trained:
    """Train a model; items are parameters as on the command line."""
    return train(name, parse_parameters(name, items), *data, seed, threads)


def estimate_by(name: str, data: Data, *items: str, seed: int = 0) -> dict[str, Any]:
    """Return the estimate of the size of a model before it is trained."""
    return estimate(name, parse_parameters(name, items), TrainingSet(*data), Tools(seed))


def predictor_of(trained: Trained, data: Data) -> Any:
    """Return a predictor of a model that was trained on the data."""
    return make_predictor(trial_model(trained, data[1].n_labels, data[0].n_features))


def scores_of(trained: Trained, data: Data, **options: Any) -> np.ndarray:
    """Return the score of each label for each row of the data, 0 if it is not predicted."""
    rows, labels = data
    options = {"top_r": labels.n_labels, "beam_width": labels.n_labels, **options}
    predictions = predictor_of(trained, data).predict(rows, PredictOptions(**options))
    scores = np.zeros((rows.n_rows, labels.n_labels))
    scores[np.repeat(np.arange(rows.n_rows), np.diff(predictions.ptr)), predictions.labels] = (
        predictions.scores
    )
    return scores


def share_right(scores: np.ndarray, labels: LabelRows) -> float:
    """Return the share, among rows with labels, of those whose best-scored label is true."""
    carried = dense_labels(labels)
    right = carried[np.arange(len(scores)), scores.argmax(axis=1)]
    return float(right[carried.any(axis=1)].mean())


def bits_of(trained: Trained) -> dict[str, bytes]:
    """Return the bytes of each array of a model."""
    arrays = {**trained.ensemble._asdict(), **trained.extra}
    return {name: array.tobytes() for name, array in arrays.items()}


def dense_weights(chunk: Chunk, n_features: int) -> np.ndarray:
    """Return the weights of a chunk: [features, children]."""
    weights = np.zeros((n_features, len(chunk.bias)), np.float32)
    weights[np.repeat(chunk.features, np.diff(chunk.row_ptr)), chunk.child] = chunk.weight
    return weights
