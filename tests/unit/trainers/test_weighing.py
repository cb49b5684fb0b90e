"""Weighing by inverse document frequency: when it is done, and that the model takes rows as they were."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.rows import SparseRows
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.trainers import Trained, parse_parameters, train, weighing
from service.trainers.weighing import weigh
from service.workflows.choose_features import trial_model
from tests.oracles.problems import dense_rows, random_labels, to_rows


def presence(seed: int = 0, n_rows: int = 60, n_features: int = 12) -> np.ndarray:
    """Rows that say which features they have; feature f is in fewer rows than f - 1."""
    rng = np.random.default_rng(seed)
    return (rng.random((n_rows, n_features)) < np.linspace(0.9, 0.05, n_features)).astype(float)


def at_length_one(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def test_rows_that_say_nothing_of_weights_are_weighed() -> None:
    x = at_length_one(presence())
    x[5] = 0
    x[6] *= -1
    weighed = weigh(to_rows(x), "auto")
    assert weighed.scale is not None
    idf = np.log(61 / (1 + (x != 0).sum(axis=0))) + 1
    np.testing.assert_allclose(weighed.scale / weighed.scale[0], idf / idf[0], rtol=1e-6)
    np.testing.assert_allclose(dense_rows(weighed.rows), x * weighed.scale, rtol=1e-6)
    assert (dense_rows(weighed.rows) ** 2).sum() == pytest.approx((x**2).sum(), rel=1e-5)


def test_auto_leaves_rows_that_have_weights_as_they_are() -> None:
    x = presence()
    row = int(np.flatnonzero((x > 0).sum(axis=1) > 1)[0])
    x[row, np.flatnonzero(x[row])[0]] = 1.001
    rows = to_rows(at_length_one(x))
    assert weigh(rows, "auto").rows is rows
    assert weigh(rows, "auto").scale is None
    assert weigh(rows, "yes").scale is not None


def test_rows_that_are_read_in_parts_are_weighed_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = to_rows(at_length_one(presence(3, 200)))
    whole = weigh(rows, "auto")
    monkeypatch.setattr(weighing, "PART_ROWS", 7)
    copy = rows._replace(values=rows.values.copy())
    parts = weigh(copy, "auto", in_place=True)
    assert parts.rows.values is copy.values
    assert whole.rows.values.tobytes() == parts.rows.values.tobytes() != rows.values.tobytes()
    assert whole.scale is not None and parts.scale is not None
    assert whole.scale.tobytes() == parts.scale.tobytes()


def test_no_leaves_all_rows_as_they_are() -> None:
    rows = to_rows(presence())
    assert weigh(rows, "no").rows is rows


@pytest.mark.parametrize("idf", ["auto", "yes"])
@pytest.mark.parametrize("rows", [to_rows(np.zeros((3, 4))), to_rows(np.zeros((0, 4)))], ids=["zero", "none"])
def test_rows_without_features_stay(idf: str, rows: SparseRows) -> None:
    assert weigh(rows, idf).scale is None


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 10.0))
def test_a_common_factor_changes_nothing(seed: int, factor: float) -> None:
    x = presence(seed)
    one, other = weigh(to_rows(x), "auto"), weigh(to_rows(factor * x), "auto")
    assert one.scale is not None
    assert other.scale is not None
    np.testing.assert_allclose(one.scale, other.scale, rtol=1e-5)


def scores(trained: Trained, x: np.ndarray, n_labels: int) -> np.ndarray:
    """The score of every label for rows as a request brings them."""
    model = trial_model(trained, n_labels, x.shape[1])
    options = PredictOptions(top_r=n_labels, beam_width=n_labels)
    found = make_predictor(model).predict(to_rows(x), options, 1)
    dense = np.zeros((len(x), n_labels))
    dense[np.repeat(np.arange(len(x)), np.diff(found.ptr)), found.labels] = found.scores
    return dense


@pytest.mark.parametrize("name", ["label-tree", "ovr", "plt", "fastxml", "ldsm"])
def test_a_model_of_weighed_rows_takes_rows_as_they_were(name: str) -> None:
    """The same as weighing the rows before training, and before asking."""
    x = at_length_one(presence(1, 80, 20))
    labels = random_labels(np.random.default_rng(2), 80, 7, 0.3)
    few = ["trees=3"] if name in {"fastxml", "ldsm"} else []
    weighed = weigh(to_rows(x), "auto")
    assert weighed.scale is not None
    inside = train(name, parse_parameters(name, few), to_rows(x), labels)
    before = train(name, parse_parameters(name, [*few, "idf=no"]), weighed.rows, labels)
    asked = scores(inside, x, 7)
    assert asked.any()
    np.testing.assert_allclose(asked, scores(before, x * weighed.scale, 7), atol=1e-5)
    without = train(name, parse_parameters(name, [*few, "idf=no"]), to_rows(x), labels)
    assert np.abs(asked - scores(without, x, 7)).max() > 1e-3
