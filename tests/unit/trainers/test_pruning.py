"""Which weights are left out where nobody says how small they may be."""

from __future__ import annotations

import numpy as np
import pytest

from service.base.rows import LabelRows, SparseRows
from service.trainers import parse_parameters, train
from service.trainers.label_tree import prune_of
from tests.oracles.problems import to_labels, to_rows


def rows_of(n_features: int, n_rows: int = 4) -> SparseRows:
    return to_rows(np.full((n_rows, n_features), max(1, n_features) ** -0.5))


def test_rows_of_few_features_lose_weights_below_a_tenth() -> None:
    for n_features in (0, 1, 40, 300):
        assert prune_of("auto", rows_of(n_features)) == 0.1
    assert prune_of("auto", rows_of(3, n_rows=0)) == 0.1


def test_rows_of_many_features_keep_smaller_ones() -> None:
    assert prune_of("auto", rows_of(1200)) == pytest.approx(0.05)
    assert prune_of("auto", rows_of(30_000)) == pytest.approx(0.01)


@pytest.mark.parametrize("n_features", [40, 1200])
def test_what_is_said_is_taken(n_features: int) -> None:
    for said in (0, 0.0, 0.1, 0.3, 100):
        assert prune_of(said, rows_of(n_features)) == said


@pytest.mark.parametrize("name", ["label-tree", "ovr"])
def test_a_model_of_long_rows_is_that_of_the_bound_that_its_rows_have(name: str) -> None:
    rng = np.random.default_rng(7)
    rows = to_rows(np.abs(rng.standard_normal((60, 1200))) / 30)
    labels: LabelRows = to_labels(rng.random((60, 5)) < 0.3)
    auto, same, tenth = (
        train(name, parse_parameters(name, items), rows, labels)
        for items in ([], ["prune=0.05"], ["prune=0.1"])
    )
    assert auto.n_nonzeros == same.n_nonzeros > tenth.n_nonzeros
    assert all(
        one.tobytes() == other.tobytes()
        for one, other in zip(auto.ensemble, same.ensemble, strict=True)
        if isinstance(one, np.ndarray)
    )
