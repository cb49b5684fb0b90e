"""k-means kernels against a dense version, on clusters that everyone can see, and on degenerate vectors."""

from __future__ import annotations

import numpy as np
import pytest

from service.kernels.training.cluster import GAIN_MIN, bisect, kmeans
from tests.oracles.problems import dense_rows, halves, random_rows, readonly, splitmix64, to_rows


def _two_seeds(seed, n):
    first, second = splitmix64(seed, 2)
    first, second = (first >> 32) * n >> 32, (second >> 32) * (n - 1) >> 32
    return first, second + (second >= first)


@pytest.mark.parametrize("seed", range(12))
def test_bisect_equals_the_dense_version(seed):
    rng = np.random.default_rng(seed)
    vectors = random_rows(rng, 40, 25, 0.3)
    members = np.sort(rng.choice(40, 31, replace=False)).astype(np.int32)
    n_left = int(rng.integers(1, 31))
    sums = np.zeros((25, 2), np.float32)
    found = members.copy()
    bisect(*readonly(vectors[:3]), found, n_left, 20, seed, sums)
    first, second = _two_seeds(seed, 31)
    expected = members[halves(dense_rows(vectors)[members], n_left, first, second, 20, GAIN_MIN)]
    assert found[:n_left].tolist() == expected.tolist()
    assert found[n_left:].tolist() == sorted(set(members.tolist()) - set(expected.tolist()))
    assert not sums.any()


def _blocks(n_clusters, size):
    """Vectors of clusters that share no feature, the clusters interleaved."""
    rng = np.random.default_rng(7)
    dense = np.zeros((n_clusters * size, n_clusters * 5))
    for i in range(len(dense)):
        c = i % n_clusters
        dense[i, c * 5 : c * 5 + 5] = rng.random(5) + 0.5
    return to_rows(dense / np.sqrt((dense**2).sum(axis=1, keepdims=True)))


def test_bisect_finds_two_clusters():
    vectors = _blocks(2, 10)
    members = np.arange(20, dtype=np.int32)
    # Seeds whose two first centres lie in different clusters.
    for seed in [s for s in range(40) if sum(_two_seeds(s, 20)) % 2]:
        found = members.copy()
        bisect(*vectors[:3], found, 10, 20, seed, np.zeros((10, 2), np.float32))
        assert len(set((found[:10] % 2).tolist())) == 1
        assert len(set((found[10:] % 2).tolist())) == 1


@pytest.mark.parametrize("n_left", [1, 3, 5])
def test_bisect_keeps_sizes_of_equal_and_empty_vectors(n_left):
    for dense in (np.zeros((6, 4)), np.ones((6, 4)) / 2):
        members = np.arange(6, dtype=np.int32)
        bisect(*to_rows(dense)[:3], members, n_left, 20, 1, np.zeros((4, 2), np.float32))
        assert members.tolist() == list(range(6))


def _kmeans(vectors, members, n_clusters, seed):
    rank = np.zeros(vectors.n_features, np.int32)
    found = members.copy()
    bounds = kmeans(*readonly(vectors[:3]), found, n_clusters, 20, seed, rank)
    assert not rank.any()
    return found, bounds


@pytest.mark.parametrize(("n_clusters", "seed"), [(2, 0), (5, 1), (16, 2), (17, 3), (40, 4), (64, 5)])
def test_kmeans_divides_all_members(n_clusters, seed):
    rng = np.random.default_rng(seed)
    vectors = random_rows(rng, 60, 30, 0.2)
    members = np.sort(rng.choice(60, 40, replace=False)).astype(np.int32)
    found, bounds = _kmeans(vectors, members, n_clusters, seed)
    assert bounds[0] == 0
    assert bounds[-1] == 40
    assert (np.diff(bounds) >= 0).all()
    assert sorted(found) == members.tolist()
    for c in range(n_clusters):
        part = found[bounds[c] : bounds[c + 1]]
        assert (np.diff(part) > 0).all()


def test_kmeans_ends_where_no_vector_is_nearer_to_another_centre():
    vectors = random_rows(np.random.default_rng(11), 80, 20, 0.4)
    dense = dense_rows(vectors)
    found, bounds = _kmeans(vectors, np.arange(80, dtype=np.int32), 5, 3)
    centres = np.array([dense[found[bounds[c] : bounds[c + 1]]].sum(axis=0) for c in range(5)])
    lengths = np.sqrt((centres**2).sum(axis=1, keepdims=True))
    near = dense @ np.divide(centres, lengths, out=np.zeros_like(centres), where=lengths > 0).T
    own = np.empty(80, int)
    for c in range(5):
        own[found[bounds[c] : bounds[c + 1]]] = c
    # Rounds stop at a gain of GAIN_MIN a vector, so nearly all are where they belong.
    lost = near.max(axis=1) - near[np.arange(80), own]
    assert lost.mean() < 0.01


def test_kmeans_finds_clusters():
    vectors = _blocks(4, 12)
    best = 0
    for seed in range(10):
        found, bounds = _kmeans(vectors, np.arange(48, dtype=np.int32), 4, seed)
        parts = [set((found[bounds[c] : bounds[c + 1]] % 4).tolist()) for c in range(4)]
        best = max(best, sum(len(part) == 1 for part in parts))
    assert best == 4


def test_kmeans_of_equal_vectors_is_one_cluster():
    found, bounds = _kmeans(to_rows(np.ones((9, 4)) / 2), np.arange(9, dtype=np.int32), 3, 0)
    assert bounds.tolist() == [0, 9, 9, 9]
    assert found.tolist() == list(range(9))
