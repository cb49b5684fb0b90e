"""Any data a reader can produce gives a valid tree, the same for any number of threads."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.rows import LabelRows, SparseRows
from service.trainers import estimate, parse_parameters, train
from tests.oracles.problems import random_labels, random_rows

data_sets = st.builds(
    lambda seed, n_rows, n_features, n_labels, density, share: (
        random_rows(np.random.default_rng(seed), n_rows, n_features, density),
        random_labels(np.random.default_rng(seed + 1), n_rows, n_labels, share),
    ),
    st.integers(0, 2**31),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 50),
    st.sampled_from([0.0, 0.1, 0.9]),
    st.sampled_from([0.0, 0.1, 0.6]),
)
settings_of_trees = st.builds(
    lambda *items: list(items),
    st.sampled_from(["leaf_size=1", "leaf_size=3", "leaf_size=100"]),
    st.sampled_from(["arity=2", "arity=16", "arity=64"]),
    st.sampled_from(["clustering=balanced", "clustering=kmeans"]),
    st.sampled_from(["loss=squared_hinge", "loss=logistic"]),
    st.sampled_from(["prune=0", "prune=0.1"]),
    st.sampled_from(["trees=1", "trees=2"]),
)


@settings(max_examples=80, deadline=None)
@given(data_sets, settings_of_trees, st.integers(0, 2**63 - 1))
def test_trees_are_valid_and_do_not_depend_on_threads(
    data: tuple[SparseRows, LabelRows], items: list[str], seed: int
):
    rows, labels = data
    parameters = parse_parameters("label-tree", items)
    trained = train("label-tree", parameters, rows, labels, seed, 1)
    ensemble = trained.ensemble
    carried = np.bincount(labels.indices, minlength=labels.n_labels) > 0
    for leaves in ensemble.label_leaf:
        assert ((leaves >= 0) == carried).all()
        assert (ensemble.node_label[leaves[carried]] == np.flatnonzero(carried)).all()
    assert (ensemble.node_label >= 0).sum() == carried.sum() * len(ensemble.label_leaf)
    n_children = np.diff(ensemble.child_ptr)
    assert ((n_children == 0) == (ensemble.node_label >= 0)).all()
    inner = n_children > 0
    inner[: len(ensemble.label_leaf)] = False
    assert (n_children[inner] > 1).all(), "a node below the root has a choice to make"
    assert np.isfinite(ensemble.node_bias).all()
    assert np.isfinite(ensemble.dense).all()
    assert trained.n_nonzeros <= estimate("label-tree", parameters, rows, labels, seed)["nonzeros_bound"]
    again = train("label-tree", parameters, rows, labels, seed, 3).ensemble
    assert all(
        array.tobytes() == getattr(again, name).tobytes() for name, array in ensemble._asdict().items()
    )
