"""A kernel that calls another by its address does what the other does, and says when it fails."""

from typing import Any

import numpy as np
import pytest
from numba import types

from model_store.compiled.calls import address_of, caller
from model_store.compiled.decorators import kernel

_UniTuple: Any = types.UniTuple
PAIR = _UniTuple(types.int64, 2)
_call = caller(PAIR)
ARRAY = np.array([3, 4, 5])


@kernel
def _ends(array: Any, step: int) -> tuple[int, int]:
    if step == 0:
        raise ValueError("expected a step")
    return array[0] * step, array[len(array) - 1] * step


@kernel
def _by_address(address: int, array: Any, step: int) -> tuple[int, int]:
    first, last = _call(address, (array[1:], step))
    return last, first


def test_arguments_and_results() -> None:
    address = address_of(_ends, PAIR, ARRAY, 0)
    assert _by_address(address, ARRAY, 10) == (50, 40)


def test_an_error_of_the_kernel_that_is_called() -> None:
    address = address_of(_ends, PAIR, ARRAY, 0)
    with pytest.raises(ValueError, match="expected a step"):
        _by_address(address, ARRAY, 0)


def test_a_kernel_that_returns_something_else() -> None:
    with pytest.raises(TypeError, match="expected a kernel that returns int64, found UniTuple"):
        address_of(_ends, types.int64, ARRAY, 0)
