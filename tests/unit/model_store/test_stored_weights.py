"""Weights in fewer bits: each is the nearest that the type has, everything else stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_store.build import CHILDREN_MAX, store_weights, to_bfloat16
from model_store.ensemble import TreeEnsemble
from tests.small_models import small_draft

ENSEMBLE = small_draft(3, n_labels=40, n_features=60, n_trees=2).ensemble


def as_float32(halves: np.ndarray) -> np.ndarray:
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


@settings(deadline=None)
@given(st.lists(st.floats(-(2.0**126), 2.0**126, width=32), min_size=1, max_size=20))
def test_bfloat16_is_the_nearest_and_of_two_the_even_one(numbers: list[float]) -> None:
    weights = np.array(numbers, np.float32)
    found = to_bfloat16(weights)
    for weight, half in zip(weights, found, strict=True):
        around = [int(half) - 1, int(half), int(half) + 1]
        values = [as_float32(np.array([h & 0xFFFF], np.uint16))[0].astype(np.float64) for h in around]
        best = min(abs(v - float(weight)) for v in values if np.isfinite(v))
        assert abs(values[1] - float(weight)) == best
        if [abs(v - float(weight)) for v in values].count(best) > 1:
            assert int(half) % 2 == 0


def test_float32_is_the_same_ensemble() -> None:
    assert store_weights(ENSEMBLE, "float32") is ENSEMBLE


def words_of(ensemble: TreeEnsemble) -> tuple[np.ndarray, np.ndarray]:
    """The child's position and the float32 weight of every sparse word of a float32 ensemble."""
    words = ensemble.sparse
    return (words & np.uint64(0xFFFFFFFF)).astype(int), (words >> np.uint64(32)).astype(np.uint32).view(
        np.float32
    )


def test_bfloat16_words() -> None:
    stored = store_weights(ENSEMBLE, "bfloat16")
    children, weights = words_of(ENSEMBLE)
    assert (stored.sparse & np.uint32(0xFFFF)).astype(int).tolist() == children.tolist()
    np.testing.assert_array_equal((stored.sparse >> np.uint32(16)).astype(np.uint16), to_bfloat16(weights))
    np.testing.assert_array_equal(stored.dense, to_bfloat16(ENSEMBLE.dense))


def test_int8_is_within_half_a_step_of_each_childs_scale() -> None:
    stored = store_weights(ENSEMBLE, "int8")
    children, weights = words_of(ENSEMBLE)
    assert (stored.sparse & np.uint16(0xFF)).astype(int).tolist() == children.tolist()
    units = (stored.sparse >> np.uint16(8)).astype(np.uint8).view(np.int8)
    most = np.zeros(len(ENSEMBLE.parent))
    n_words = n_dense = 0
    for node in np.flatnonzero(ENSEMBLE.node_chunk >= 0):
        chunk, first = ENSEMBLE.node_chunk[node], ENSEMBLE.child_ptr[node]
        n_children = ENSEMBLE.child_ptr[node + 1] - first
        for word in range(ENSEMBLE.sparse_ptr[chunk], ENSEMBLE.sparse_ptr[chunk + 1]):
            child, scale = first + children[word], stored.node_scale[first + children[word]]
            assert abs(units[word] * scale - weights[word]) <= scale * 0.5001
            most[child] = max(most[child], abs(weights[word]))
            n_words += 1
        begin, end = ENSEMBLE.dense_ptr[chunk], ENSEMBLE.dense_ptr[chunk + 1]
        width = (end - begin) // max(1, (end - begin) // _width(n_children))
        for place in range(begin, end):
            position = (place - begin) % width
            if position < n_children:
                child, scale = first + position, stored.node_scale[first + position]
                assert abs(stored.dense[place] * scale - ENSEMBLE.dense[place]) <= scale * 0.5001
                most[child] = max(most[child], abs(ENSEMBLE.dense[place]))
                n_dense += 1
            else:
                assert stored.dense[place] == 0
    assert n_words == len(ENSEMBLE.sparse)
    assert n_dense > 0
    np.testing.assert_allclose(stored.node_scale, most / 127, rtol=1e-6)


def _width(n_children: int) -> int:
    """The width of a dense row, from FORMAT.md: a power of two up to 16, then a multiple of 16."""
    return -(-n_children // 16) * 16 if n_children > 16 else 1 << (int(n_children) - 1).bit_length()


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_everything_else_is_shared(weights: str) -> None:
    stored = store_weights(ENSEMBLE, weights)  # type: ignore[arg-type]
    for name in set(TreeEnsemble._fields) - {"sparse", "dense", "node_scale"}:
        assert getattr(stored, name) is getattr(ENSEMBLE, name)
    assert len(stored.node_scale) == (len(ENSEMBLE.parent) if weights == "int8" else 0)


@pytest.mark.parametrize(("n_children", "fits"), [(256, True), (257, False)])
def test_as_many_children_as_a_word_can_tell_apart_and_one_more(n_children: int, fits: bool) -> None:
    assert CHILDREN_MAX["int8"] == 256
    wide = ENSEMBLE._replace(child_ptr=np.array([1, 1 + n_children], np.int32))
    if fits:
        narrow = small_draft(1, n_labels=256, n_features=20, n_trees=1).ensemble
        assert store_weights(narrow, "int8").dense.dtype == np.int8
    else:
        with pytest.raises(ValueError, match=f"at most 256 children for int8, found {n_children}"):
            store_weights(wide, "int8")


def test_a_type_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="float32, bfloat16, int8"):
        store_weights(ENSEMBLE, "float64")  # type: ignore[arg-type]
