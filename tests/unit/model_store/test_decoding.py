"""Chunks read again from an ensemble, and put together from several."""

import numpy as np
import pytest

from model_store.build import build_ensemble
from model_store.compiled.handles import F32, I32
from model_store.decoding import chunk_of
from model_store.ensemble import Chunk, Tree, Weights
from service.trainers.classifiers import merge_chunks

N_FEATURES = 3000


def _dense(seed: int, n_children: int, density: float) -> F32:
    """Weights of whole numbers, which every type of weights keeps: some features have none, some all."""
    random = np.random.default_rng(seed)
    weights = random.integers(1, 127, (N_FEATURES, n_children)).astype(np.float32)
    weights[random.random((N_FEATURES, n_children)) >= density * random.random((N_FEATURES, 1))] = 0
    weights[random.random(N_FEATURES) < 0.5] = 0
    weights[7] = 127
    return weights


def _chunk(weights: F32) -> Chunk:
    feature, child = np.nonzero(weights)
    return Chunk.of(
        feature, child, weights[feature, child], np.arange(1, len(weights[0]) + 1).astype(np.float32)
    )


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
    child_ptr = np.append([1], np.full(n_children + 1, n_children + 1)).astype(np.int32)
    label = np.append([-1], np.arange(n_children)).astype(np.int32)
    tree = Tree(child_ptr, label, [_chunk(dense), *[None] * n_children])
    found = chunk_of(build_ensemble([tree], n_children, N_FEATURES, weights), 0)
    assert np.array_equal(_as_dense(found), dense)
    assert np.array_equal(found.bias, np.arange(1, n_children + 1))


def test_chunks_are_merged_by_the_places_of_their_children() -> None:
    first, second, third = _dense(1, 6, 0.5), _dense(2, 3, 0.5), _dense(3, 2, 0.5)
    third[first[:, 1] != 0] = 0  # its first child goes on in the features that the first one's has none of
    places: list[I32] = [np.array(of, np.int32) for of in ([0, 4, -1, 5, -1, 7], [1, -1, 6], [4, 2])]
    merged = merge_chunks(list(zip(map(_chunk, (first, second, third)), places, strict=True)), 9)
    expected, bias = np.zeros((N_FEATURES, 9), np.float32), np.zeros(9, np.float32)
    for weights, place in zip((first, second, third), places, strict=True):
        for child, at in enumerate(place.tolist()):
            if at >= 0:
                expected[:, at] += weights[:, child]
                bias[at] = bias[at] or child + 1  # of what comes first
    assert np.array_equal(_as_dense(merged), expected)
    assert np.array_equal(merged.bias, bias)


@pytest.mark.parametrize("n_parts", [0, 1, 2, 5, 8, 11])
def test_any_number_of_chunks_is_merged_as_they_are_side_by_side(n_parts: int) -> None:
    parts = [_dense(number, 3, 0.5) for number in range(n_parts)]
    order = np.random.default_rng(n_parts).permutation(3 * n_parts).astype(np.int32).reshape(n_parts, 3)
    merged = merge_chunks(list(zip(map(_chunk, parts), order, strict=True)), 3 * n_parts)
    expected = np.zeros((N_FEATURES, 3 * n_parts), np.float32)
    for weights, place in zip(parts, order, strict=True):
        expected[:, place] = weights
    assert np.array_equal(_as_dense(merged), expected)
    assert np.array_equal(merged.bias[order.ravel()], np.tile([1.0, 2.0, 3.0], n_parts))
