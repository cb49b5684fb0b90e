"""From trees to arrays and back: numbering, places of rows, weights in fewer bits,
what is refused.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.helpers.small_models import small_draft
from tests.oracles.trees import random_forest

from xylem.trainers.classifiers import merge_chunks
from xylem_store.build import (
    CHILDREN_MAX,
    DENSE_SHARE,
    build_ensemble,
    padded,
    store_weights,
    to_bfloat16,
)
from xylem_store.compiled.handles import F32
from xylem_store.decoding import chunk_of
from xylem_store.ensemble import LANES, Chunk, Tree, TreeEnsemble, Weights


def weights_of(ensemble: TreeEnsemble, node: int, n_features: int) -> np.ndarray:
    """Read a chunk back by FORMAT's words alone: float64[n_features, children]; of
    int8 the steps.
    """
    half = (
        4 * ensemble.sparse.itemsize
    )  # bits of a child's position, which is in the low half of a word
    chunk = ensemble.node_chunk[node]
    n_children = ensemble.child_ptr[node + 1] - ensemble.child_ptr[node]
    width = padded(n_children)
    found = np.zeros((n_features, n_children))
    for feature in range(n_features):
        blocks, before = (int(word) for word in ensemble.directory[chunk, feature // 1024])
        block = feature // 32 % 32
        if not blocks >> block & 1:
            continue
        at = ensemble.block_ptr[chunk] + before + (blocks & ((1 << block) - 1)).bit_count()
        rows, dense_rows, n_sparse, n_dense = (int(word) for word in ensemble.blocks[at])
        below = (1 << feature % 32) - 1
        if not rows >> feature % 32 & 1:
            continue
        n_dense += (dense_rows & below).bit_count()
        n_sparse += (rows & ~dense_rows & below).bit_count()
        if dense_rows >> feature % 32 & 1:
            first = ensemble.dense_ptr[chunk] + n_dense * width
            found[feature] = ensemble.dense[first : first + n_children]
        else:
            begin, end = ensemble.row_ptr[ensemble.row_start[chunk] + n_sparse :][:2]
            for word in ensemble.sparse[ensemble.sparse_ptr[chunk] :][begin:end].tolist():
                weight = np.array(word >> half, f"u{half // 8}").view(ensemble.dense.dtype)
                found[feature, word & (1 << half) - 1] = weight
    return found


@settings(max_examples=40)
@given(
    st.integers(0, 2**31),
    st.integers(1, 3),
    st.integers(1, 40),
    st.sampled_from([1, 31, 32, 33, 1023, 1024, 1025, 2100]),
    st.sampled_from([2, 17, 40]),
)
def test_every_weight_is_found_where_the_format_says(
    seed: int, n_trees: int, n_labels: int, n_features: int, arity: int
) -> None:
    sizes = {"n_trees": n_trees, "n_labels": n_labels, "n_features": n_features, "arity": arity}
    trees, ensemble = random_forest(seed, **sizes)
    assert ensemble.child_ptr[0] == n_trees
    for t, tree in enumerate(trees):
        place = {0: t}
        for node in range(len(tree.chunks)):
            here = place[node]
            first, last = tree.child_ptr[node : node + 2]
            assert ensemble.child_ptr[here + 1] - ensemble.child_ptr[here] == last - first
            for child in range(first, last):
                place[child] = ensemble.child_ptr[here] + child - first
                assert ensemble.parent[place[child]] == here
            assert ensemble.node_label[here] == tree.node_label[node]
            if tree.node_label[node] >= 0:
                assert ensemble.label_leaf[t, tree.node_label[node]] == here
            chunk = tree.chunks[node]
            if chunk is None:
                assert ensemble.node_chunk[here] == -1
                continue
            expected = np.zeros((n_features, last - first))
            rows = np.repeat(chunk.features, np.diff(chunk.row_ptr))
            expected[rows, chunk.child] = chunk.weight
            np.testing.assert_array_equal(weights_of(ensemble, here, n_features), expected)
            bias = ensemble.node_bias[ensemble.child_ptr[here] :][: len(chunk.bias)]
            np.testing.assert_array_equal(bias, chunk.bias)


def test_a_row_is_dense_from_the_share_on() -> None:
    for n_weights, is_dense in ((16 // DENSE_SHARE, False), (16 // DENSE_SHARE + 1, True)):
        ensemble = build_ensemble([stump(16, np.arange(n_weights))], 16, 1)
        assert len(ensemble.dense) == 16 * is_dense + LANES
        assert len(ensemble.sparse) == n_weights * (not is_dense)


def over_leaves(n_labels: int, chunk: Chunk) -> Tree:
    """A root with a chunk over n_labels leaves."""
    child_ptr = np.full(n_labels + 2, n_labels + 1, np.int32)
    child_ptr[0] = 1
    return Tree(child_ptr, np.arange(-1, n_labels, dtype=np.int32), [chunk, *[None] * n_labels])


def stump(n_labels: int, child: np.ndarray, **changes: np.ndarray) -> Tree:
    """A root over n_labels leaves, with one row, of feature 0."""
    feature, weight = np.zeros(len(child), np.int32), np.ones(len(child), np.float32)
    chunk = Chunk.from_weights(feature, child, weight, np.zeros(n_labels, np.float32))
    return over_leaves(n_labels, chunk._replace(**changes))


STUMP = stump(3, np.array([0]))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (stump(3, np.array([0]), weight=np.array([np.nan], np.float32)), "expected finite weights"),
        (stump(3, np.array([3])), "expected children below 3"),
        (
            stump(3, np.array([0]), features=np.array([4], np.int32)),
            "expected ascending features below 4",
        ),
        (
            stump(3, np.array([0]), bias=np.zeros(2, np.float32)),
            "expected a bias for each of 3 children",
        ),
        (stump(5, np.array([0])), "expected labels below 3, found 4"),
        (STUMP._replace(chunks=[None] * 4), "expected a chunk exactly"),
        (
            STUMP._replace(node_label=np.array([-1, 0, 0, 1], np.int32)),
            "at most one leaf a label and tree",
        ),
        (
            STUMP._replace(child_ptr=np.array([1, 1, 4, 4, 4], np.int32)),
            "nodes numbered breadth-first",
        ),
        (STUMP._replace(child_ptr=np.array([1, 4, 4, 4, 5], np.int32)), "child_ptr"),
    ],
)
def test_a_tree_that_breaks_the_rules_is_refused(tree: Any, message: Any) -> None:
    with pytest.raises(ValueError, match=message):
        build_ensemble([tree], 3, 4)


@pytest.mark.parametrize(("weights", "most"), [("bfloat16", 65536), ("int8", 256)])
def test_words_that_cannot_name_every_child_are_refused(weights: Any, most: Any) -> None:
    assert CHILDREN_MAX[weights] == most
    assert build_ensemble([stump(most, np.array([most - 1]))], most, 1, weights).sparse.tolist()
    with pytest.raises(
        ValueError, match=f"at most {most} children for {weights}, found {most + 1}"
    ):
        build_ensemble([stump(most + 1, np.array([0]))], most + 1, 1, weights)


def test_int8_keeps_the_largest_weight_of_each_child() -> None:
    weight = np.array([-2.54, 0.5, 0.031, 0.0], np.float32)
    feature, child = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    chunk = Chunk.from_weights(feature, child, weight, np.zeros(20, np.float32))
    ensemble = build_ensemble([over_leaves(20, chunk)], 20, 2, "int8")
    np.testing.assert_allclose(ensemble.node_scale, [0, 0.02, 0.5 / 127, *[0] * 18], rtol=1e-6)
    stored = [(word & 255, np.uint8(word >> 8).view(np.int8)) for word in ensemble.sparse.tolist()]
    assert stored == [(0, -127), (1, 127), (0, 2), (1, 0)]


def test_no_trees_and_unknown_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one tree"):
        build_ensemble([], 3, 4)
    with pytest.raises(ValueError, match="float32, bfloat16, int8, found 'float64'"):
        build_ensemble([STUMP], 3, 4, "float64")  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
def test_storing_weights_changes_nothing_else(weights: Any) -> None:
    _, ensemble = random_forest(3, n_trees=2, n_labels=50, n_features=70, arity=20)
    stored = store_weights(ensemble, weights)
    assert (stored is ensemble) == (weights == "float32")
    for name, before, after in zip(ensemble._fields, ensemble, stored, strict=True):
        if name not in {"sparse", "dense", "node_scale"}:
            assert before is after
    assert (len(stored.sparse), len(stored.dense)) == (len(ensemble.sparse), len(ensemble.dense))
    assert len(stored.node_scale) == (len(ensemble.parent) if weights == "int8" else 0)
    assert np.count_nonzero(stored.dense) <= np.count_nonzero(ensemble.dense)


ENSEMBLE = small_draft(3, n_labels=40, n_features=60, n_trees=2).ensemble


@example([1.0, 1.00390625, 1.01171875, -1.00390625, 1.004])
@given(st.lists(st.floats(-(2.0**126), 2.0**126, width=32), min_size=1, max_size=20))
def test_bfloat16_is_the_nearest_and_of_two_the_even_one(numbers: list[float]) -> None:
    weights = np.array(numbers, np.float32)
    for weight, half in zip(weights.astype(np.float64), to_bfloat16(weights).tolist(), strict=True):
        around = np.array([half - 1, half, half + 1]) & 0xFFFF
        values = (around.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        away = np.abs(values - weight)
        nearest = away[1] == away[np.isfinite(away)].min()
        is_tie = np.count_nonzero(away == away[1]) > 1
        assert nearest and (half % 2 == 0 or not is_tie)


def test_bfloat16_words() -> None:
    stored, words = store_weights(ENSEMBLE, "bfloat16"), ENSEMBLE.sparse.view("<u4").reshape(-1, 2)
    np.testing.assert_array_equal(stored.sparse & 0xFFFF, words[:, 0])
    np.testing.assert_array_equal(
        stored.sparse >> 16, to_bfloat16(words[:, 1].copy().view(np.float32))
    )
    np.testing.assert_array_equal(stored.dense, to_bfloat16(ENSEMBLE.dense))


def test_int8_is_within_half_a_step_of_each_childs_scale() -> None:
    stored = store_weights(ENSEMBLE, "int8")
    assert len(ENSEMBLE.dense) > LANES
    for node in np.flatnonzero(ENSEMBLE.node_chunk >= 0):
        first, last = ENSEMBLE.child_ptr[node : node + 2]
        scale, exact = stored.node_scale[first:last], weights_of(ENSEMBLE, node, 60)
        rounded = weights_of(stored, node, 60) * scale
        assert (np.abs(rounded - exact) <= scale * 0.5001).all()
        np.testing.assert_allclose(scale, np.abs(exact).max(axis=0) / 127, rtol=1e-6)


N_FEATURES = 3000


def _dense(seed: int, n_children: int, density: float) -> F32:
    """Weights of whole numbers, which every type of weights keeps:
    some features have none, some all.
    """
    random = np.random.default_rng(seed)
    weights = random.integers(1, 127, (N_FEATURES, n_children)).astype(np.float32)
    weights[random.random((N_FEATURES, n_children)) >= density * random.random((N_FEATURES, 1))] = 0
    weights[random.random(N_FEATURES) < 0.5] = 0
    weights[7] = 127
    return weights


def _chunk(weights: F32) -> Chunk:
    feature, child = np.nonzero(weights)
    bias = np.arange(1, len(weights[0]) + 1).astype(np.float32)
    return Chunk.from_weights(feature, child, weights[feature, child], bias)


def _as_dense(chunk: Chunk) -> F32:
    weights = np.zeros((N_FEATURES, len(chunk.bias)), np.float32)
    weights[chunk.feature, chunk.child] = chunk.weight
    assert len(chunk.weight) == np.count_nonzero(weights), "each once, none of 0"
    assert np.all(np.diff(chunk.features) > 0) and np.all(np.diff(chunk.row_ptr) > 0)
    keys = chunk.feature.astype(np.int64) * len(chunk.bias) + chunk.child
    assert np.all(np.diff(keys) > 0), "in order"
    return weights


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("n_children", [1, 5, 40])
def test_a_chunk_is_read_as_it_was_built(n_children: int, weights: Weights) -> None:
    dense = _dense(n_children, n_children, 0.6)
    tree = over_leaves(n_children, _chunk(dense))
    found = chunk_of(build_ensemble([tree], n_children, N_FEATURES, weights), 0)
    assert np.array_equal(_as_dense(found), dense)
    assert np.array_equal(found.bias, np.arange(1, n_children + 1))


def check_merged(parts: list[F32], places: Sequence[Any], n_children: int) -> None:
    """Merge chunks by the places of their children, -1 for none, and compare with dense arrays."""
    expected, bias = (
        np.zeros((N_FEATURES, n_children), np.float32),
        np.zeros(n_children, np.float32),
    )
    for weights, place in zip(parts, places, strict=True):
        for child, at in enumerate(place):
            if at >= 0:
                expected[:, at] += weights[:, child]
                bias[at] = bias[at] or child + 1  # of what comes first
    pairs = [
        (_chunk(part), np.array(place, np.int32)) for part, place in zip(parts, places, strict=True)
    ]
    merged = merge_chunks(pairs, n_children)
    assert np.array_equal(_as_dense(merged), expected)
    assert np.array_equal(merged.bias, bias)


def test_chunks_are_merged_by_the_places_of_their_children() -> None:
    first, second, third = _dense(1, 6, 0.5), _dense(2, 3, 0.5), _dense(3, 2, 0.5)
    third[first[:, 1] != 0] = (
        0  # its first child goes on in the features that the first one's has none of
    )
    check_merged([first, second, third], [[0, 4, -1, 5, -1, 7], [1, -1, 6], [4, 2]], 9)


@pytest.mark.parametrize("n_parts", [0, 1, 2, 5, 8, 11])
def test_any_number_of_chunks_is_merged_as_they_are_side_by_side(n_parts: int) -> None:
    places = np.random.default_rng(n_parts).permutation(3 * n_parts).reshape(n_parts, 3)
    check_merged(
        [_dense(number, 3, 0.5) for number in range(n_parts)], places.tolist(), 3 * n_parts
    )
