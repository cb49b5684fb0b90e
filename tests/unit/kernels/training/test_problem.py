"""A node's rows, renumbered features and positives against dense arrays; the packing of weights."""

from __future__ import annotations

import numpy as np
import pytest

from service.kernels.training.problem import (
    count_features,
    forget_rows,
    localise,
    pack_tile,
    place_tile,
    positives,
    rows_of,
)
from service.trainers.classifiers import members_of
from service.trainers.spec import rows_by_label
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows, readonly


def _data(seed, n_rows=50):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n_rows, 30, 0.15)
    labels = random_labels(rng, n_rows, 20, 0.2)
    order = rng.permutation(20)[:17].astype(np.int32)
    return rows, labels, order, members_of(*rows_by_label(labels), order)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_rows", [1, 50, 400])
def test_rows_of_a_node(seed, n_rows):
    _, labels, order, members = _data(seed, n_rows)
    place = np.zeros(n_rows, np.int32)
    carried = dense_labels(labels)
    for first, last in [(0, 17), (3, 4), (5, 9)]:
        found = rows_of(*readonly(members), first, last, place)
        expected = np.flatnonzero(carried[:, order[first:last]].any(axis=1))
        assert found.tolist() == expected.tolist()
        assert place[found].tolist() == list(range(1, len(found) + 1))
        forget_rows(found, place)
        assert not place.any()


@pytest.mark.parametrize("seed", range(5))
def test_localise_keeps_the_rows_and_orders_features_by_use(seed):
    rows, *_ = _data(seed)
    dense = dense_rows(rows)
    chosen = np.sort(np.random.default_rng(seed).choice(50, 20, replace=False)).astype(np.int32)
    rank = np.zeros(30, np.int32)
    problem = localise(*readonly(rows[:3]), chosen, rank)
    assert not rank.any()
    found = np.zeros((20, 30))
    for i in range(20):
        span = slice(problem.indptr[i], problem.indptr[i + 1])
        found[i, problem.used[problem.features[span]]] = problem.values[span]
    np.testing.assert_array_equal(found, dense[chosen])
    np.testing.assert_allclose(problem.squares, (dense[chosen] ** 2).sum(axis=1), rtol=1e-6)
    counts = (dense[chosen] != 0).sum(axis=0)[problem.used]
    assert (counts > 0).all()
    digits = [int(count).bit_length() for count in counts]
    assert digits == sorted(digits, reverse=True)
    assert count_features(rows.indptr, rows.indices, chosen, np.zeros(30, np.uint8)) == len(problem.used)


def test_positives_of_a_tile():
    _, labels, order, members = _data(9)
    carried = dense_labels(labels)
    place = np.zeros(50, np.int32)
    found = rows_of(members.ptr, members.rows, 0, 17, place)
    bounds = np.array([0, 1, 1, 5, 17])
    positive = np.full(len(found), 0xFFFF, np.uint16)
    positives(members.ptr, members.rows, bounds, place, positive)
    for c in range(4):
        expected = carried[found][:, order[bounds[c] : bounds[c + 1]]].any(axis=1)
        assert (positive >> c & 1).astype(bool).tolist() == expected.tolist()
    assert not (positive >> 4).any()


@pytest.mark.parametrize("prune", [0.0, 0.5])
def test_packing_keeps_what_is_not_small(prune):
    rng = np.random.default_rng(4)
    tiles = [rng.standard_normal((8, 16)).astype(np.float32) for _ in range(2)]
    tiles[0][2] = 0
    tiles[1][2] = 0
    tiles[0][5, 3] = 0
    tiles[1][1, 0] = 0.5
    ascending = rng.permutation(7)  # row 7 is the bias: not a feature
    packed = []
    for tile in tiles:
        counts = np.empty(7, np.int32)
        packed.append((counts, *pack_tile(tile, ascending, 13, prune, counts)))
    dense = np.hstack([tile[ascending][:, :13] for tile in tiles])
    dense[(np.abs(dense) < prune)] = 0
    counts = np.sum([p[0] for p in packed], axis=0)
    assert counts.tolist() == (dense != 0).sum(axis=1).tolist()
    following = np.cumsum(counts) - counts
    child, weight = np.empty(counts.sum(), np.int32), np.empty(counts.sum(), np.float32)
    for number, (tile_counts, lane, kept) in enumerate(packed):
        place_tile(tile_counts, lane, kept, 13 * number, following, child, weight)
    row, expected = np.nonzero(dense)
    assert child.tolist() == expected.tolist()
    assert weight.tolist() == dense[row, expected].tolist()
