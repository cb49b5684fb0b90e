"""Weights in their stored types: what they are as numbers, resolved when a kernel is compiled."""

from typing import Any

import numpy as np
from numba import types

from model_store.compiled.decorators import instruction
from model_store.compiled.decorators import nonallocating_inlined as inlined

_16 = np.uint32(16)


@instruction
def _float_of_bits(typing_context: Any, bits: Any) -> Any:
    """Return the float32 that has the given uint32's bits."""
    if bits != types.uint32:
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), generate


@inlined
def number_of(bits: np.uint32, n_bytes: int) -> np.float32:
    """Return the number that has these bits in so many bytes: a float32, a bfloat16, or an int8."""
    if n_bytes == 4:
        return np.float32(_float_of_bits(bits))
    if n_bytes == 2:
        return np.float32(_float_of_bits(np.uint32(bits << _16)))
    return np.float32(np.int8(bits))
