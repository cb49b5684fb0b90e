"""Explanations against the oracle that walks every path, and against the traversals' own scores."""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.helpers.answers import each_row, empty_rows, row_with
from tests.helpers.calls import make_call, no_answers
from tests.helpers.small_models import small_draft
from tests.oracles.trees import LINKS, node_margins, random_forest, random_rows, row_dicts

from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import CombinedPredictor
from xylem.engine.explain import FEATURES_MAX, empty_shares, feature_shares, top_features
from xylem.engine.kernels.search.call import Search
from xylem.engine.kernels.search.explain import depth_of, explain_leaf
from xylem.engine.kernels.search.scores import make_queue
from xylem.engine.kernels.search.workspace import make_workspace
from xylem.engine.options import ALL_ALLOWED, ALL_EQUAL, ALL_PASS
from xylem.engine.predictor import PredictOptions, Predictor
from xylem.serving.label_weights import _strongest, leaf_weights, mean_weights
from xylem_store.ensemble import LINK_CODES
from xylem_store.version import model_of


class OracleNode(NamedTuple):
    """A node of a path: its bias, how many nodes are beside it, and what each feature
    weighs there.
    """

    node: int
    bias: float
    n_siblings: int
    weights: dict[int, float]


def oracle_path(tree: Any, leaf: Any) -> Any:
    """The nodes from below the root to the leaf."""
    above = {
        child: node
        for node, (a, b) in enumerate(itertools.pairwise(tree.child_ptr))
        for child in range(a, b)
    }
    path, node = [], leaf
    while node:
        chunk, position = tree.chunks[above[node]], node - tree.child_ptr[above[node]]
        features = np.repeat(chunk.features, np.diff(chunk.row_ptr)).tolist()
        entries = zip(features, chunk.child, chunk.weight, strict=True)
        weights = {
            feature: float(weight) for feature, child, weight in entries if child == position
        }
        path.insert(0, OracleNode(node, chunk.bias[position], len(chunk.bias) - 1, weights))
        node = above[node]
    return path


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("link", list(LINKS))
@pytest.mark.parametrize(("seed", "n_features", "arity"), [(1, 5, 2), (2, 70, 40), (3, 1500, 17)])
def test_a_path_equals_the_oracle(
    weights: Any, link: str, seed: int, n_features: int, arity: int
) -> None:
    (tree,), ensemble = random_forest(
        seed, n_trees=1, n_labels=40, n_features=n_features, arity=arity, weights=weights
    )
    rows = random_rows(seed, 1, n_features)
    work = make_workspace(ensemble, n_features=n_features, maps_features=False)
    search = Search(LINK_CODES[link], 1, 1, True, ALL_ALLOWED, ALL_EQUAL, ALL_PASS)
    call = make_call(ensemble, rows, search, work, make_queue(ensemble, top_r=1), no_answers(1, 1))
    (row,) = row_dicts(rows)
    margins = node_margins(tree, row)
    error = {"float32": 1e-6, "bfloat16": 2**-8, "int8": 0.05}[weights]
    for leaf in np.flatnonzero(tree.node_label >= 0).tolist():
        expected = oracle_path(tree, leaf)
        nodes = [each.node for each in expected]
        depth = depth_of(ensemble.parent, leaf)
        assert depth == len(nodes)
        path, probability = np.empty(depth, np.int32), np.empty(depth, np.float32)
        score, (features, shares) = np.empty(depth, np.float32), empty_shares(depth)
        explain_leaf(call.handle, leaf, path, probability, score, features, shares, n_features)
        assert path.tolist() == nodes
        for of_node, told in zip(expected, feature_shares(features, shares), strict=True):
            products = {
                feature: row[feature] * of_node.weights.get(feature, 0.0) for feature in row
            }
            most = sorted(
                (abs(product) for product in products.values() if product != 0), reverse=True
            )
            assert len(told) == min(len(most), FEATURES_MAX)
            for share, size in zip(told, most, strict=False):
                assert share.contribution == pytest.approx(
                    products[share.feature], rel=error, abs=error
                )
                assert abs(share.contribution) == pytest.approx(size, rel=2 * error, abs=2 * error)
        if weights == "float32":
            np.testing.assert_allclose(
                probability, LINKS[link](margins[nodes]), rtol=2e-3, atol=1e-6
            )
            np.testing.assert_allclose(
                score, np.cumprod(LINKS[link](margins[nodes])), rtol=2e-3, atol=1e-6
            )


shares = st.floats(width=32, allow_nan=True) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0])


@given(st.lists(shares, max_size=20))
def test_the_features_chosen_are_those_of_a_sort(added: Any) -> None:
    largest = float(np.finfo(np.float32).max)
    shares = [0.0 if math.isnan(share) else max(-largest, min(share, largest)) for share in added]
    order = sorted(range(len(shares)), key=lambda i: -abs(shares[i]))  # stable: of equals by place
    expected = [(i + 7, shares[i]) for i in order if shares[i] != 0][:FEATURES_MAX]
    features = np.arange(7, 7 + len(added), dtype=np.int32)
    reported = top_features(features, np.array(added, np.float32), 99)
    assert [(share.feature, float(share.contribution)) for share in reported] == expected


@pytest.fixture(scope="module", params=[1, 3], ids=["one-tree", "three-trees"])
def predictor(request: Any) -> CombinedPredictor:
    draft = small_draft(3, n_labels=40, n_features=70, n_trees=request.param, arity=4, share=0.2)
    return Predictor(model_of(draft))


def test_the_last_score_is_the_labels_with_its_largest_features(
    predictor: CombinedPredictor,
) -> None:
    rows = SparseRows(*random_rows(5, 6, 70), 70)
    found = predictor.predict(rows, PredictOptions(top_r=9, exact=True))
    for row, (labels, scores) in enumerate(each_row(found)):
        own = set(rows.cut(row, row + 1).indices.tolist())
        for label, score in zip(labels, scores, strict=True):
            trees = predictor.explain(rows, row, label).trees
            ends = np.array([path[-1].score for path in trees])
            if len(trees) == 1:
                assert ends[0] == score
            np.testing.assert_allclose(ends.mean(), score, rtol=1e-5)
            for path in trees:
                products = np.cumprod([node.probability for node in path])
                np.testing.assert_allclose([node.score for node in path], products, rtol=1e-4)
            nodes = [node for path in trees for node in path]
            assert any(node.features for node in nodes) or len(own) < 5
            for node in nodes:
                sizes = [abs(share.contribution) for share in node.features]
                assert sizes == sorted(sizes, reverse=True)
                assert len(sizes) <= FEATURES_MAX
                assert 0 not in sizes
                assert {share.feature for share in node.features} <= own


def test_an_empty_row_and_values_that_overflow_have_explanations(
    predictor: CombinedPredictor,
) -> None:
    nothing, huge = empty_rows(1, 70), row_with(np.arange(70), 70, 3e38)
    assert all(
        not node.features for path in predictor.explain(nothing, 0, 3).trees for node in path
    )
    nodes = [node for path in predictor.explain(huge, 0, 3).trees for node in path]
    found = [share.contribution for node in nodes for share in node.features]
    assert found
    assert np.isfinite(found).all()


def test_a_tree_without_the_label_has_no_path() -> None:
    trees, ensemble = random_forest(4, n_trees=3, n_labels=30, n_features=20, arity=3)
    predictor = Predictor(
        model_of(small_draft(n_labels=30, n_features=20, n_trees=3, ensemble=ensemble))
    )
    rows = SparseRows(*random_rows(4, 1, 20), 20)
    for label in range(30):
        found = [len(path) > 0 for path in predictor.explain(rows, 0, label).trees]
        assert found == [label in tree.node_label for tree in trees]


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(("seed", "n_features", "arity"), [(1, 5, 2), (2, 70, 40), (3, 2100, 17)])
def test_weights_of_a_label_are_those_the_tree_was_built_from(
    weights: Any, seed: int, n_features: int, arity: int
) -> None:
    trees, ensemble = random_forest(
        seed, n_trees=2, n_labels=24, n_features=n_features, arity=arity, weights=weights
    )
    for label in range(24):
        leaves = leaf_weights(ensemble, label)
        assert [each.tree for each in leaves] == [i for i in (0, 1) if label in trees[i].node_label]
        for found in leaves:
            tree = trees[found.tree]
            path = oracle_path(tree, tree.node_label.tolist().index(label))
            assert (found.depth, found.siblings) == (len(path), path[-1].n_siblings)
            assert found.bias == pytest.approx(path[-1].bias)
            assert ensemble.node_label[found.leaf] == label
            assert (np.diff(found.features) > 0).all()
            got = dict(zip(found.features.tolist(), found.weights.tolist(), strict=True))
            expected = {
                feature: weight for feature, weight in path[-1].weights.items() if weight != 0
            }
            most = max(map(abs, expected.values()), default=0)
            error = {"float32": 0, "bfloat16": 2**-8 * most, "int8": most / 127}[weights]
            for feature in expected.keys() | got.keys():
                assert got.get(feature, 0) == pytest.approx(expected.get(feature, 0), abs=error)
            if weights == "float32":
                assert got.keys() == expected.keys()


def test_means_count_a_tree_without_the_feature_as_zero() -> None:
    _, ensemble = random_forest(5, n_trees=3, n_labels=9, n_features=40, arity=3)
    leaves = leaf_weights(ensemble, 4)
    features, means = mean_weights(leaves)
    of_trees = np.zeros((3, 40))
    for row, leaf in zip(of_trees, leaves, strict=True):
        row[leaf.features] = leaf.weights
    np.testing.assert_allclose(means, of_trees.mean(axis=0)[features], rtol=1e-5, atol=1e-7)
    assert set(features.tolist()) == set(np.flatnonzero(of_trees.any(axis=0)).tolist())


def test_the_strongest_are_the_largest_and_of_equals_the_first() -> None:
    weights = np.array([1, -3, 2, 3, 0.5], np.float32)
    told = _strongest(np.arange(5, dtype=np.int32), weights, None, 3)
    assert [int(each["feature"]) for each in told] == [1, 3, 2]
    assert _strongest(np.empty(0, np.int32), weights[:0], None, 3) == []
