"""A NamedTuple of arrays handed to a kernel as one array of addresses.

numba looks at every array of every call: forty of them cost 13 microseconds, more than many traversals.
`lend` writes their addresses and shapes into one int64 array, once; in the kernel, what `borrower` returns
makes the NamedTuple of them again, at no cost. The lender keeps the arrays alive and in place while a kernel
may run.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from model_store.compiled.decorators import instruction

_DIMS_MAX = 3
_PLACES = 1 + _DIMS_MAX


Kinds = dict[str, tuple[Any, int]]
"""For each field its dtype and number of dimensions; a dtype that is a number n stands for that of the n-th
sample, an empty array handed over beside the handle: so kernels are compiled for each type of weights."""


def lend(arrays: tuple[NDArray[Any], ...], kinds: Kinds) -> NDArray[np.int64]:
    """Return the addresses and shapes of the arrays of a NamedTuple.

    Raises ValueError for an array that is not C-contiguous or not of its kind.
    """
    handle = np.zeros((len(arrays), _PLACES), np.int64)
    for places, array, (name, (dtype, dims)) in zip(handle, arrays, kinds.items(), strict=True):
        if not (isinstance(dtype, int) or array.dtype == dtype) or array.ndim != dims:
            raise ValueError(
                f"{name}: expected {dims} dimensions of {dtype}, found {array.ndim} of {array.dtype}"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"{name}: expected a C-contiguous array")
        places[0] = array.ctypes.data
        places[1 : 1 + array.ndim] = array.shape
    return handle.reshape(-1)


def relend(handle: NDArray[np.int64], place: int, array: NDArray[Any]) -> None:
    """Have a handle lend another array of the same kind and shape in one of its places."""
    handle[place * _PLACES] = array.ctypes.data


def borrower(cls: Any, kinds: Kinds) -> Any:
    """Return what makes a `cls` of a handle in a kernel: borrow(handle, tuple of samples)."""
    if tuple(kinds) != cls._fields:
        raise ValueError(f"expected the fields {cls._fields}, found {tuple(kinds)}")

    def borrow(typing_context: Any, handle: Any, samples: Any) -> Any:
        fields = [
            types.Array(samples[kind].dtype if isinstance(kind, int) else numba.from_dtype(kind), dims, "C")
            for kind, dims in kinds.values()
        ]
        named_tuple: Any = types.NamedTuple
        made = named_tuple(fields, cls)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_array(signature.args[0])(context, builder, arguments[0])
            arrays = [
                _array_at(context, builder, view.data, place, field) for place, field in enumerate(fields)
            ]
            return context.make_tuple(builder, made, arrays)

        return made(handle, samples), generate

    return instruction(borrow)


def _array_at(context: Any, builder: Any, handle: Any, place: int, field: Any) -> Any:
    """Emit the array whose address and shape stand at a place of a handle."""
    word = context.get_value_type(types.intp)
    at = [
        builder.load(builder.gep(handle, [word(place * _PLACES + offset)]))
        for offset in range(1 + field.ndim)
    ]
    array = context.make_array(field)(context, builder)
    item = context.get_abi_sizeof(context.get_data_type(field.dtype))
    strides: list[Any] = []
    stride = word(item)
    for size in reversed(at[1:]):
        strides.insert(0, stride)
        stride = builder.mul(stride, size)
    fill: Any = populate_array
    pack: Any = cgutils.pack_array
    fill(
        array,
        data=builder.inttoptr(at[0], array.data.type),
        shape=pack(builder, at[1:]),
        strides=pack(builder, strides),
        itemsize=word(item),
        meminfo=None,
    )
    return array._getvalue()
