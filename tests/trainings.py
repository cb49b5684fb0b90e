"""What tests of trainers do: train by a name, ask what was
trained, and compare trainings to the bit.
"""

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
    """Dense rows, and who carries which label, as a training takes them."""
    return TrainingSet(to_rows(np.asarray(x)), to_labels(np.asarray(carried)))


def choices(**given: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A value of each of these parameters."""
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in given.items()})


def trained_by(name: str, data: Data, *items: str, seed: int = 0, threads: int = 1) -> Trained:
    """Train; items are parameters as a command line has them."""
    return train(name, parse_parameters(name, items), *data, seed, threads)


def estimate_by(name: str, data: Data, *items: str, seed: int = 0) -> dict[str, Any]:
    """What is said of the size of a model before it is trained."""
    return estimate(name, parse_parameters(name, items), TrainingSet(*data), Tools(seed))


def predictor_of(trained: Trained, data: Data) -> Any:
    """What answers by a model that was trained on the data."""
    return make_predictor(trial_model(trained, data[1].n_labels, data[0].n_features))


def scores_of(trained: Trained, data: Data, **options: Any) -> np.ndarray:
    """The score of every label for every row of the data, 0 where it is not found."""
    rows, labels = data
    options = {"top_r": labels.n_labels, "beam_width": labels.n_labels, **options}
    found = predictor_of(trained, data).predict(rows, PredictOptions(**options))
    scores = np.zeros((rows.n_rows, labels.n_labels))
    scores[np.repeat(np.arange(rows.n_rows), np.diff(found.ptr)), found.labels] = found.scores
    return scores


def share_right(scores: np.ndarray, labels: LabelRows) -> float:
    """The share of the rows with labels that carry their best label."""
    carried = dense_labels(labels)
    right = carried[np.arange(len(scores)), scores.argmax(axis=1)]
    return float(right[carried.any(axis=1)].mean())


def bits_of(trained: Trained) -> dict[str, bytes]:
    """The bytes of each array of a model."""
    arrays = {**trained.ensemble._asdict(), **trained.extra}
    return {name: array.tobytes() for name, array in arrays.items()}


def dense_weights(chunk: Chunk, n_features: int) -> np.ndarray:
    """The weights of a chunk: [features, children]."""
    found = np.zeros((n_features, len(chunk.bias)), np.float32)
    found[np.repeat(chunk.features, np.diff(chunk.row_ptr)), chunk.child] = chunk.weight
    return found
