"""Vec8 operations against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.errors import TypingError

from model_store.compiled.decorators import kernel
from model_store.compiled.vectors_of_eight import add_scaled8, load8, store8, zero8


@kernel
def _copy(source, start, out, to):
    store8(out, to, load8(source, start))


@kernel
def _add_scaled(a, scalar, b, out):
    store8(out, 0, add_scaled8(load8(a, 0), scalar, load8(b, 0)))
    store8(out, 8, add_scaled8(zero8(), scalar, load8(b, 0)))


@kernel
def _add_numbers(a, scalar, out):
    store8(out, 0, add_scaled8(load8(a, 0), scalar, scalar))


def test_eight_elements_are_copied_from_and_to_where_the_indices_say():
    source = np.arange(40, dtype=np.float32).reshape(10, 4)
    out = np.full(20, -1, np.float32)
    _copy(source, 13, out, 5)
    assert out.tolist() == [-1.0] * 5 + list(range(13, 21)) + [-1.0] * 7


def test_narrow_weights_are_widened():
    numbers = np.array([0, 1, -2, 3.5, -0.25, 96, 1e30, -7], np.float32)
    out = np.zeros(8, np.float32)
    _copy(np.concatenate([[0], numbers.view(np.uint32) >> 16]).astype(np.uint16), 1, out, 0)
    assert out.tolist() == (numbers.view(np.uint32) & 0xFFFF0000).view(np.float32).tolist()
    _copy(np.array([9, -128, -1, 0, 1, 2, 50, 127, -3], np.int8), 1, out, 0)
    assert out.tolist() == [-128, -1, 0, 1, 2, 50, 127, -3]


@pytest.mark.parametrize("seed", range(3))
def test_products_are_rounded_before_they_are_added(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(8).astype(np.float32) * 10 for _ in range(2))
    scalar, out = np.float32(rng.standard_normal()), np.empty(16, np.float32)
    _add_scaled(a, scalar, b, out)
    assert out[:8].tobytes() == (a + scalar * b).tobytes()
    assert out[8:].tobytes() == (scalar * b).tobytes()


def test_other_types_are_refused():
    with pytest.raises(TypingError, match="C-contiguous array of"):
        _copy(np.zeros(16), 0, np.zeros(16, np.float32), 0)
    with pytest.raises(TypingError, match="expected Vec8"):
        _add_numbers(np.zeros(8, np.float32), np.float32(1), np.zeros(8, np.float32))
