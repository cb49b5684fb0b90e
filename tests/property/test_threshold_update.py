"""Thresholds moved in place equal thresholds made anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.kernels.search.calibrated import NO_KNOTS
from service.kernels.search.subtrees import greatest_below, move_thresholds, set_logs
from tests.oracles.trees import random_forest


def made(ensemble, thresholds):
    logs = np.empty(len(thresholds), np.float32)
    set_logs(NO_KNOTS, thresholds, logs)
    return -greatest_below(ensemble, -logs, -np.inf)


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**31),
    n_trees=st.integers(1, 3),
    n_labels=st.integers(1, 300),
    arity=st.sampled_from([2, 5, 100]),
    n_values=st.sampled_from([2, 5, 1000]),
)
def test_moved_thresholds_are_those_made_anew(seed, n_trees, n_labels, arity, n_values):
    _, ensemble = random_forest(seed, n_trees=n_trees, n_labels=n_labels, n_features=3, arity=arity)
    rng = np.random.default_rng(seed)
    values = np.append(0.0, rng.random(n_values)).astype(np.float32)
    thresholds = rng.choice(values, n_labels)
    nodes = made(ensemble, thresholds)
    for _ in range(20):
        labels = rng.choice(n_labels, rng.integers(1, min(n_labels, 8) + 1), replace=False).astype(np.int32)
        thresholds[labels] = rng.choice(values, len(labels))
        paths = ensemble.child_ptr, ensemble.parent, ensemble.label_leaf
        move_thresholds(*paths, NO_KNOTS, labels, thresholds, nodes)
        assert nodes.tobytes() == made(ensemble, thresholds).tobytes()


@pytest.mark.parametrize("threshold", [0.0, 1e-4, 0.25, 1 / 3, 0.5, 1.0])
def test_logarithms_are_those_of_numpy_in_double(threshold):
    found = np.empty(1, np.float32)
    set_logs(NO_KNOTS, np.float32([threshold]), found)
    with np.errstate(divide="ignore"):
        assert found[0] == np.float32(np.log(np.float64(np.float32(threshold))))
