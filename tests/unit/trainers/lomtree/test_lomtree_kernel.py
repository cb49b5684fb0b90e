"""The online tree against its definition, and the tables that it keeps."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.trainings import data_of
from tests.oracles.lomtree_oracle import Lomtree, Node
from tests.oracles.problems import dense_labels
from tests.oracles.trees import row_dicts

from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers.lomtree import finish, tables, tree as trees
from xylem.trainers.lomtree.learning import learn_rows, make_scratch, route_rows
from xylem.trainers.lomtree.tables import N_VALUES, Pool, insert, make_pool, n_refused
from xylem.trainers.lomtree.tree import (
    COUNT,
    LEAF,
    N_NODES,
    N_SPLITS,
    N_SWAPS,
    ROOT,
    SCALE,
    WEIGHT,
    Budget,
)

seeds = st.integers(0, 2**32 - 1)


def items(pool: Pool, table: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (keys ascending, their values) of a table, copied."""
    if pool.bits[table] < 0:
        return np.empty(0, np.int32), np.empty((0, N_VALUES), pool.value.dtype)
    block = slice(int(pool.start[table]), int(pool.start[table]) + (1 << int(pool.bits[table])))
    keys = pool.key[block]
    here = np.flatnonzero(keys >= 0)
    here = here[np.argsort(keys[here])]
    return keys[here], pool.value[block, :N_VALUES][here]


def data(seed: int, n_rows: int, n_labels: int, extra: float) -> tuple[SparseRows, LabelRows]:
    """Rows that tell their labels, some with several, some without any."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, n_labels, n_rows)
    carried = rng.random((n_rows, n_labels)) < extra
    carried[np.arange(n_rows), own] = True
    carried[rng.random(n_rows) < 0.1] = False
    x = rng.random((n_rows, 8)) * (rng.random((n_rows, 8)) < 0.5) * 3
    x[np.arange(n_rows), own % 8] += 2
    x[rng.random(n_rows) < 0.05] = 0
    return data_of(x, carried)


def learnt(
    rows: SparseRows, labels: LabelRows, budget: Budget, slots: int = 1 << 14
) -> trees.OnlineTree:
    tree = trees.make_tree(2 * budget.splits + 1, slots, slots)
    order = np.arange(rows.n_rows, dtype=np.int32)
    learn_rows(tree, budget, rows, labels, order, make_scratch(8))
    return tree


def leaves_of(tree: trees.OnlineTree, rows: SparseRows) -> np.ndarray:
    """The leaf that each row goes to."""
    leaf, waiting = np.empty(rows.n_rows, np.int32), np.empty((len(tree.left) + 1, 2), np.int64)
    route_rows(tree, rows, np.arange(rows.n_rows, dtype=np.int32), waiting, leaf)
    return leaf


def assert_same(tree: trees.OnlineTree, node: int, expected: Node) -> int:
    """Compare two subtrees; return the number of nodes."""
    assert (tree.left[node] == LEAF) == (not expected.children)
    assert (tree.n_rows[node], tree.least[node]) == (expected.rows, expected.least)
    labels, values = items(tree.classes, node)
    assert dict(zip(labels.tolist(), values[:, COUNT].tolist(), strict=True)) == {
        label: seen.rows for label, seen in expected.classes.items()
    }
    if not expected.children:
        return 1
    features, weights = items(tree.weights, node)
    assert set(features.tolist()) == set(expected.weights)
    of_features = [
        (expected.weights[feature].v, expected.weights[feature].s) for feature in features
    ]
    found = weights[:, [WEIGHT, SCALE]]
    np.testing.assert_allclose(found, np.reshape(of_features, (-1, 2)), rtol=1e-3, atol=1e-4)
    children = (int(tree.left[node]), int(tree.right[node]))
    assert tree.parent[list(children)].tolist() == [node, node]
    return 1 + sum(
        assert_same(tree, *pair) for pair in zip(children, expected.children, strict=True)
    )


def learnt_as_defined(rows: SparseRows, labels: LabelRows, budget: Budget) -> trees.OnlineTree:
    """What is learnt is the tree of the definition."""
    tree, oracle = learnt(rows, labels, budget), Lomtree(*budget)
    for x, carried in zip(row_dicts(rows[:3]), dense_labels(labels), strict=True):
        if carried.any():
            oracle.learn(x, np.flatnonzero(carried).tolist())
    n_nodes = assert_same(tree, int(tree.state[ROOT]), oracle.root)
    assert tree.state[N_SWAPS] == oracle.swaps
    assert n_nodes == tree.state[N_NODES] == 2 * tree.state[N_SPLITS] + 1 <= 2 * budget.splits + 1
    return tree


@given(
    seeds,
    st.integers(1, 9),
    st.integers(0, 12),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([0, 0.2]),
)
@settings(max_examples=40)
def test_the_tree_is_that_of_the_definition(
    seed: int, n_labels: int, splits: int, resistance: float, extra: float
) -> None:
    learnt_as_defined(*data(seed, 150, n_labels, extra), Budget(splits, resistance, 0.5))


def test_swaps_happen_and_keep_the_tree_whole() -> None:
    rows, labels = data(1, 2000, 8, 0)
    tree = learnt_as_defined(rows, labels, Budget(3, 1.0, 0.5))
    assert tree.state[N_SWAPS] > 3
    assert (tree.left[leaves_of(tree, rows)] == LEAF).all()


def test_huge_and_tiny_values_give_finite_weights() -> None:
    x = np.zeros((60, 4), np.float32)
    x[:, 0] = np.tile([3e38, 1e-38, 1e-20, 1.0], 15)
    x[:, 1] = np.tile([1.0, -3e38, 1e-30], 20)
    tree = learnt(*data_of(x, np.arange(60)[:, None] % 3 == np.arange(3)), Budget(4, 4.0, 0.5))
    for node in range(int(tree.state[N_NODES])):
        _, values = items(tree.weights, node)
        assert np.isfinite(values).all() and np.isfinite(values[:, WEIGHT] / values[:, SCALE]).all()
    assert np.isfinite(tree.score).all()


@pytest.mark.parametrize("piece", [1 << 16, 20])
def test_weights_of_chunks_are_those_of_the_tables_by_feature(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "_PIECE", piece)
    rows, labels = data(4, 300, 6, 0)
    tree = learnt(rows, labels, Budget(9, 4.0, 0.5))
    chunks = finish.chunks_of(tree, np.arange(tree.state[N_NODES]))
    assert sum(chunk is not None and len(chunk.weight) > 0 for chunk in chunks) == 9
    for node, chunk in enumerate(chunks):
        assert (chunk is None) == (tree.left[node] == LEAF)
        if chunk is not None:
            features, values = items(tree.weights, node)
            kept = np.flatnonzero(values[:, WEIGHT])
            assert [part.tolist() for part in chunk] == [
                features[kept].tolist(),
                list(range(len(kept) + 1)),
                [1] * len(kept),
                (values[kept, WEIGHT] / values[kept, SCALE]).tolist(),
                [0.0, tree.bias[node, WEIGHT]],
            ]


def test_a_node_and_a_feature_lie_in_their_cache_lines() -> None:
    tree = trees.make_tree(5, 64, 64)
    for of_nodes in (tree.left, tree.norm, tree.weights.start, tree.classes.used):
        assert of_nodes.strides == (2 * tables.LINE_BYTES,)
    for memory in (tree.nodes, tree.weights.value, tree.classes.value):
        assert memory.ctypes.data % tables.LINE_BYTES == 0
    for pool in (tree.weights, tree.classes):
        assert pool.key.strides == pool.value.strides[:1]
        assert tables.LINE_BYTES % pool.value.strides[0] == 0


def test_a_full_pool_leaves_new_features_and_labels_out() -> None:
    rows, labels = data(3, 500, 8, 0)
    tree = learnt(rows, labels, Budget(20, 4.0, 0.5), slots=64)
    assert n_refused(tree.weights) > 0
    assert tree.weights.counts[0] <= 64
    assert (tree.left[leaves_of(tree, rows)] == LEAF).all()


operations = st.lists(
    st.tuples(
        st.integers(0, 3), st.one_of(st.integers(0, 40), st.just(-1), st.integers(0, 2**31 - 1))
    ),
    max_size=300,
)


@given(operations, st.sampled_from([16, 64, 4096]))
@settings(max_examples=60)
def test_tables_are_dicts_in_bounded_memory(found: list[tuple[int, int]], n_slots: int) -> None:
    pool: Pool = make_pool(np.empty(4, tables.TABLE), n_slots, np.float64)
    expected: list[dict[int, float]] = [{} for _ in range(4)]
    for number, (table, key) in enumerate(found):
        if key < 0:
            tables.release(pool, table)
            expected[table] = {}
            continue
        refused = n_refused(pool)
        slot = insert(pool, table, key)
        if slot < 0:
            assert n_refused(pool) == refused + 1
            assert key not in expected[table]
        else:
            assert pool.value[slot, 0] == expected[table].get(key, 0.0)
            pool.value[slot, 0] = expected[table][key] = number + 1.0
    for table, pairs in enumerate(expected):
        keys, values = items(pool, table)
        assert list(zip(keys.tolist(), values[:, 0].tolist(), strict=True)) == sorted(pairs.items())
    assert pool.counts[0] <= n_slots
    if n_slots == 4096:
        assert n_refused(pool) == 0


def test_a_table_with_reserved_room_does_not_move_until_full() -> None:
    pool = make_pool(np.empty(2, tables.TABLE), 80, np.float32)
    tables.reserve(pool, 0, 48)
    start = pool.start[0]
    assert 2 ** pool.bits[0] == 64
    for key in range(48):
        assert start <= insert(pool, 0, key) < start + 64
    assert items(pool, 0)[0].tolist() == list(range(48))
    tables.reserve(pool, 1, 48)  # more than is left
    assert pool.bits[1] == -1
    assert insert(pool, 1, 7) >= 0
    assert n_refused(pool) == 0
