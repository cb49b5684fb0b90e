"""What training makes of a node: its rows and features, its
clusters, and the random numbers for them.
"""

from typing import Any

import numpy as np
import pytest
from tests.oracles import problems

from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers.classifiers import SolverOptions, chunk_of, members_of, solved_of
from xylem.trainers.kernels.cluster import GAIN_MIN, bisect, kmeans
from xylem.trainers.kernels.problem import NO_ROOM, forget_rows, localise, positives, rows_of
from xylem.trainers.kernels.random import next_random, random_below, shuffle
from xylem.trainers.representations import rows_by_label
from xylem_store.compiled.decorators import kernel


def _readonly(rows: Any) -> Any:
    return SparseRows(*problems.readonly(rows[:3]), rows.n_features)


def _data(seed: int, n_rows: int = 50) -> tuple[SparseRows, LabelRows]:
    rng = np.random.default_rng(seed)
    rows = problems.random_rows(rng, n_rows, 30, 0.15)
    labels = problems.random_labels(rng, n_rows, 20, 0.2)
    order = rng.permutation(20)[:17].astype(np.int32)
    return rows, labels, order, members_of(*rows_by_label(labels), order)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_rows", [1, 50, 400])
def test_rows_of_a_node(seed: int, n_rows: int) -> None:
    _, labels, order, members = _data(seed, n_rows)
    place, carried = np.zeros(n_rows, np.int32), problems.dense_labels(labels)
    for first, last in [(0, 17), (3, 4), (5, 9)]:
        found = rows_of(*problems.readonly(members[:2]), first, last, place)
        expected = np.flatnonzero(carried[:, order[first:last]].any(axis=1))
        assert found.tolist() == expected.tolist()
        assert place[found].tolist() == list(range(1, len(found) + 1))
        forget_rows(found, place)
        assert not place.any()


@pytest.mark.parametrize("seed", range(5))
def test_localise_keeps_the_rows_and_orders_features_by_use(seed: int) -> None:
    rows, *_ = _data(seed)
    chosen = np.sort(np.random.default_rng(seed).choice(50, 20, replace=False)).astype(np.int32)
    dense, rank = problems.dense_rows(rows)[chosen], np.zeros(30, np.int32)
    problem = localise(_readonly(rows), chosen, rank, *NO_ROOM)
    assert not rank.any()
    found = np.zeros((20, 30))
    found[np.repeat(np.arange(20), np.diff(problem.indptr)), problem.used[problem.features]] = (
        problem.values
    )
    np.testing.assert_array_equal(found, dense)
    np.testing.assert_allclose(problem.squares, (dense**2).sum(axis=1), rtol=1e-6)
    digits = [int(count).bit_length() for count in (dense != 0).sum(axis=0)[problem.used]]
    assert min(digits) > 0 and digits == sorted(digits, reverse=True)


def test_positives_of_a_tile() -> None:
    _, labels, order, members = _data(9)
    carried, place = problems.dense_labels(labels), np.zeros(50, np.int32)
    found = rows_of(members.ptr, members.rows, 0, 17, place)
    bounds = np.array([0, 1, 1, 5, 17])
    positive = np.full(len(found), 0xFFFF, np.uint16)
    positives(members.ptr, members.rows, bounds[:-1], bounds[1:], place, positive)
    for c in range(4):
        expected = carried[found][:, order[bounds[c] : bounds[c + 1]]].any(axis=1)
        assert (positive >> c & 1).astype(bool).tolist() == expected.tolist()
    assert not (positive >> 4).any()


@pytest.mark.parametrize("prune", [0.0, 0.5])
def test_packing_keeps_what_is_not_small(prune: Any) -> None:
    rng = np.random.default_rng(4)
    tiles = rng.standard_normal((2, 8, 16)).astype(np.float32)
    tiles[:, 2] = 0
    tiles[0, 5, 3] = 0
    tiles[1, 1, 0] = 0.5
    used = rng.permutation(7).astype(np.int32)  # row 7 is the bias: not a feature
    ascending = np.argsort(used)
    solving = SolverOptions("squared_hinge", 1.0, 0.0, 0.0, 1e-3, 1000, prune)
    found = chunk_of([solved_of(tile, used, ascending, 16, solving) for tile in tiles])
    dense = np.hstack(tiles[:, ascending])
    dense[np.abs(dense) < prune] = 0
    feature, child = np.nonzero(dense)
    assert found.feature.tolist() == feature.tolist()
    assert found.features.tolist() == np.unique(feature).tolist()
    assert found.child.tolist() == child.tolist()
    assert found.weight.tolist() == dense[feature, child].tolist()
    assert found.bias.tolist() == tiles[:, 7].ravel().tolist()


@kernel
def _draw(state: Any, n: int) -> Any:
    found = np.empty(n, np.uint64)
    for i in range(n):
        found[i] = next_random(state)
    return found


@kernel
def _draw_below(state: Any, n: int, below: Any) -> Any:
    found = np.empty(n, np.int64)
    for i in range(n):
        found[i] = random_below(state, below)
    return found


@kernel
def _shuffled(state: Any, n: int, first: int) -> Any:
    items = np.arange(n).astype(np.int32)
    shuffle(items, first, state)
    return items


def _state(seed: int) -> Any:
    return np.array([seed], np.uint64)


def test_numbers_are_those_of_splitmix64() -> None:
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert _draw(_state(1234567), 5).tolist() == published == problems.splitmix64(1234567, 5)

    for seed in (0, 1, 2**64 - 1):
        assert _draw(_state(seed), 100).tolist() == problems.splitmix64(seed, 100)


@pytest.mark.parametrize("below", [1, 2, 7, 2**31 - 1])
def test_random_below_stays_below(below: Any) -> None:
    found = _draw_below(_state(5), 2000, below)
    assert found.min() >= 0 and found.max() < below
    assert found.tolist() == [(z >> 32) * below >> 32 for z in problems.splitmix64(5, 2000)]


def test_shuffle_permutes_the_first_items_only() -> None:
    items, same, others = (_shuffled(_state(seed), 50, 30).tolist() for seed in (3, 3, 4))
    assert sorted(items[:30]) == list(range(30)) != items[:30]
    assert items[30:] == list(range(30, 50))
    assert items == same != others


def test_shuffle_is_fair() -> None:
    counts = np.zeros((4, 4))
    for seed in range(4000):
        counts[np.arange(4), _shuffled(_state(seed), 4, 4)] += 1
    assert np.abs(counts / 4000 - 0.25).max() < 0.04


def _two_seeds(seed: int, n: int) -> Any:
    first, second = problems.splitmix64(seed, 2)
    first, second = (first >> 32) * n >> 32, (second >> 32) * (n - 1) >> 32
    return first, second + (second >= first)


@pytest.mark.parametrize("seed", range(12))
def test_bisect_equals_the_dense_version(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = problems.random_rows(rng, 40, 25, 0.3)
    members = np.sort(rng.choice(40, 31, replace=False)).astype(np.int32)
    n_left, sums, found = int(rng.integers(1, 31)), np.zeros((25, 2), np.float32), members.copy()
    bisect(_readonly(vectors), found, n_left, seed, sums)
    first, second = _two_seeds(seed, 31)
    dense = problems.dense_rows(vectors)[members]
    expected = members[problems.halves(dense, n_left, first, second, 20, GAIN_MIN)]
    assert found[:n_left].tolist() == expected.tolist()
    assert found[n_left:].tolist() == sorted(set(members.tolist()) - set(expected.tolist()))
    assert not sums.any()


def _blocks(n_clusters: Any, size: Any) -> Any:
    """Vectors of clusters that share no feature, the clusters interleaved."""
    rng = np.random.default_rng(7)
    dense = np.zeros((n_clusters * size, n_clusters * 5))
    for i in range(len(dense)):
        c = i % n_clusters
        dense[i, c * 5 : c * 5 + 5] = rng.random(5) + 0.5
    return problems.to_rows(dense / np.sqrt((dense**2).sum(axis=1, keepdims=True)))


def test_bisect_finds_two_clusters() -> None:
    vectors = _blocks(2, 10)
    members = np.arange(20, dtype=np.int32)
    # Seeds whose two first centres lie in different clusters.
    for seed in [s for s in range(40) if sum(_two_seeds(s, 20)) % 2]:
        found = members.copy()
        bisect(vectors, found, 10, seed, np.zeros((10, 2), np.float32))
        assert [len(set((half % 2).tolist())) for half in (found[:10], found[10:])] == [1, 1]


@pytest.mark.parametrize("n_left", [1, 3, 5])
def test_bisect_keeps_sizes_of_equal_and_empty_vectors(n_left: Any) -> None:
    for dense in (np.zeros((6, 4)), np.ones((6, 4)) / 2):
        members = np.arange(6, dtype=np.int32)
        bisect(problems.to_rows(dense), members, n_left, 1, np.zeros((4, 2), np.float32))
        assert members.tolist() == list(range(6))


def _kmeans(vectors: np.ndarray, members: Any, n_clusters: Any, seed: int) -> Any:
    rank = np.zeros(vectors.n_features, np.int32)
    found = members.copy()
    bounds = kmeans(_readonly(vectors), found, n_clusters, seed, rank)
    assert not rank.any()
    return found, bounds


@pytest.mark.parametrize(
    ("n_clusters", "seed"), [(2, 0), (5, 1), (16, 2), (17, 3), (40, 4), (64, 5)]
)
def test_kmeans_divides_all_members(n_clusters: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = problems.random_rows(rng, 60, 30, 0.2)
    members = np.sort(rng.choice(60, 40, replace=False)).astype(np.int32)
    found, bounds = _kmeans(vectors, members, n_clusters, seed)
    assert (bounds[0], bounds[-1]) == (0, 40) and (np.diff(bounds) >= 0).all()
    assert sorted(found) == members.tolist()
    for part in np.split(found, bounds[1:-1]):
        assert (np.diff(part) > 0).all()


def test_kmeans_ends_where_no_vector_is_nearer_to_another_centre() -> None:
    vectors = problems.random_rows(np.random.default_rng(11), 80, 20, 0.4)
    dense = problems.dense_rows(vectors)
    found, bounds = _kmeans(vectors, np.arange(80, dtype=np.int32), 5, 3)
    parts = np.split(found, bounds[1:-1])
    centres = np.array([dense[part].sum(axis=0) for part in parts])
    lengths = np.sqrt((centres**2).sum(axis=1, keepdims=True))
    near = dense @ np.divide(centres, lengths, out=np.zeros_like(centres), where=lengths > 0).T
    lost = np.concatenate([near[part].max(axis=1) - near[part, c] for c, part in enumerate(parts)])
    # Rounds stop at a gain of GAIN_MIN a vector, so nearly all are where they belong.
    assert lost.mean() < 0.01


def test_kmeans_finds_clusters() -> None:
    vectors = _blocks(4, 12)
    best = 0
    for seed in range(10):
        found, bounds = _kmeans(vectors, np.arange(48, dtype=np.int32), 4, seed)
        parts = np.split(found % 4, bounds[1:-1])
        best = max(best, sum(len(set(part.tolist())) == 1 for part in parts))
    assert best == 4


def test_kmeans_of_equal_vectors_is_one_cluster() -> None:
    found, bounds = _kmeans(
        problems.to_rows(np.ones((9, 4)) / 2), np.arange(9, dtype=np.int32), 3, 0
    )
    assert (bounds.tolist(), found.tolist()) == ([0, 9, 9, 9], list(range(9)))
