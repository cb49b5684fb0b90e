"""Weights in their stored types: one name for each way to read them, resolved when a kernel is compiled.

A sparse word holds a child's position and its weight in one load: uint64 for float32 weights, uint32 for
bfloat16, uint16 for int8. Dense rows hold weights only: float32, uint16 for bfloat16, or int8.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from model_store.compiled.decorators import instruction

_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_16 = np.uint32(16)
_LOW_16 = np.uint32(0xFFFF)
_HIGH_16 = np.uint32(0xFFFF0000)
_LOW_8 = np.uint16(0xFF)
_8 = np.uint16(8)


@instruction
def _float_of_bits(typing_context: Any, bits: Any) -> Any:
    """Return the float32 that has the given uint32's bits."""
    if bits != types.uint32:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), generate


def word_child(word: Any) -> Any:
    """Return the child's position that a sparse word holds, int64."""
    raise AssertionError("compiled code only")


def word_weight(word: Any) -> Any:
    """Return the weight that a sparse word holds, float32."""
    raise AssertionError("compiled code only")


def number_at(numbers: Any, row: Any, column: Any) -> Any:
    """Return an element of a matrix of float32, or of uint16 that are bfloat16, as float32."""
    raise AssertionError("compiled code only")


def _child_of_64(word: Any) -> Any:
    return np.int64(word & _LOW_32)


def _child_of_32(word: Any) -> Any:
    return np.int64(word & _LOW_16)


def _child_of_16(word: Any) -> Any:
    return np.int64(word & _LOW_8)


def _weight_of_64(word: Any) -> Any:
    return _float_of_bits(np.uint32(word >> _32))


def _weight_of_32(word: Any) -> Any:
    return _float_of_bits(np.uint32(word & _HIGH_16))


def _weight_of_16(word: Any) -> Any:
    return np.float32(np.int8(word >> _8))


def _number_float32(numbers: Any, row: Any, column: Any) -> Any:
    return numbers[row, column]


def _number_bfloat16(numbers: Any, row: Any, column: Any) -> Any:
    return _float_of_bits(np.uint32(np.uint32(numbers[row, column]) << _16))


@overload(word_child, inline="always")
def _word_child(word: Any) -> Any:
    return {types.uint64: _child_of_64, types.uint32: _child_of_32, types.uint16: _child_of_16}.get(word)


@overload(word_weight, inline="always")
def _word_weight(word: Any) -> Any:
    return {types.uint64: _weight_of_64, types.uint32: _weight_of_32, types.uint16: _weight_of_16}.get(word)


@overload(number_at, inline="always")
def _number_at(numbers: Any, row: Any, column: Any) -> Any:
    return {types.float32: _number_float32, types.uint16: _number_bfloat16}.get(numbers.dtype)
