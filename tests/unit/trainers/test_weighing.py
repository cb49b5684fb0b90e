"""Weighing by inverse document frequency: when it is done, and that the model takes rows as they were."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.rows import SparseRows
from service.trainers import weighing
from service.trainers.weighing import weigh
from tests.oracles.problems import dense_rows, random_labels, to_rows
from tests.trainings import scores_of, trained_by


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


def test_auto_leaves_rows_that_have_weights_as_they_are_and_no_leaves_all() -> None:
    x = presence()
    alike = to_rows(x)
    row = int(np.flatnonzero((x > 0).sum(axis=1) > 1)[0])
    x[row, np.flatnonzero(x[row])[0]] = 1.001
    rows = to_rows(at_length_one(x))
    assert weigh(rows, "auto").rows is rows
    assert weigh(rows, "auto").scale is None
    assert weigh(rows, "yes").scale is not None
    assert weigh(alike, "no").rows is alike


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


@pytest.mark.parametrize("name", ["label-tree", "ovr", "plt", "fastxml", "ldsm"])
def test_a_model_of_weighed_rows_takes_rows_as_they_were(name: str) -> None:
    """The same as weighing the rows before training, and before asking."""
    rows = to_rows(at_length_one(presence(1, 80, 20)))
    labels = random_labels(np.random.default_rng(2), 80, 7, 0.3)
    few = ["trees=3"] if name in {"fastxml", "ldsm"} else []
    weighed = weigh(rows, "auto")
    assert weighed.scale is not None
    inside = trained_by(name, (rows, labels), *few)
    before, without = (trained_by(name, (x, labels), *few, "idf=no") for x in (weighed.rows, rows))
    asked = scores_of(inside, (rows, labels))
    assert asked.any()
    np.testing.assert_allclose(asked, scores_of(before, (weighed.rows, labels)), atol=1e-5)
    assert np.abs(asked - scores_of(without, (rows, labels))).max() > 1e-3
