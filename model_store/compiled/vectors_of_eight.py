"""Vectors of 8 floats in compiled kernels: one register of AVX2, where 16 would be two, half of them empty.

As `vectors`: elementwise IEEE arithmetic without fusing or reordering, no bounds checked.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import errors
from numba.extending import models, register_model

from model_store.compiled.decorators import instruction

EIGHT = 8
"""Lanes of a Vec8."""

_F32 = ir.FloatType()
_V8F = ir.VectorType(_F32, EIGHT)
_V8I = ir.VectorType(ir.IntType(32), EIGHT)


class Vec8Type(types.Type):
    """The numba type of 8 float32 lanes."""

    def __init__(self) -> None:
        super().__init__(name="Vec8")


vec8: Any = Vec8Type()


@register_model(Vec8Type)
class _Vec8Model(models.PrimitiveModel):
    """Stored and passed as LLVM's <8 x float>."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        models.PrimitiveModel.__init__(self, dmm, fe_type, _V8F)


def _check_array(array: Any, *dtypes: Any) -> None:
    if not (isinstance(array, types.Array) and array.dtype in dtypes and array.layout == "C"):
        raise errors.TypingError(f"expected a C-contiguous array of {dtypes}, found {array}")


def _check_vectors(*vectors: Any) -> None:
    for vector in vectors:
        if not isinstance(vector, Vec8Type):
            raise errors.TypingError(f"expected Vec8, found {vector}")


def _pointer(context: Any, builder: Any, array_type: Any, args: Any, vector: Any) -> Any:
    """Return the address of element args[1] of array args[0], counted through all its dimensions."""
    data = context.make_array(array_type)(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), vector.as_pointer())


def _splat(builder: Any, scalar: Any) -> Any:
    nothing = ir.Constant(_V8F, ir.Undefined)
    zeros = ir.Constant(_V8I, [0] * EIGHT)
    one = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(one, nothing, zeros)


@instruction
def zero8(typingctx: Any) -> Any:
    """Return zeros."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(_V8F, [0.0] * EIGHT)

    return vec8(), generate


@instruction
def load8(typingctx: Any, array: Any, index: Any) -> Any:
    """Return elements index .. index + 7 of an array, counted through all its dimensions.

    Of float32, of uint16 as the upper halves of float32 numbers, or of int8.
    """
    _check_array(array, types.float32, types.uint16, types.int8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(context.get_value_type(array.dtype), EIGHT)
        found = builder.load(_pointer(context, builder, array, args, kind), align=array.dtype.bitwidth // 8)
        if array.dtype == types.uint16:
            upper = builder.shl(builder.zext(found, _V8I), ir.Constant(_V8I, [16] * EIGHT))
            return builder.bitcast(upper, _V8F)
        return found if array.dtype == types.float32 else builder.sitofp(builder.sext(found, _V8I), _V8F)

    return vec8(array, types.intp), generate


@instruction
def store8(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write `vector` to elements index .. index + 7 of a float32 array, counted as in load8."""
    _check_array(array, types.float32)
    _check_vectors(vector)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, array, args, _V8F), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, vec8), generate


@instruction
def add_scaled8(typingctx: Any, vector: Any, scalar: Any, other: Any) -> Any:
    """Return vector + scalar * other, the product rounded before it is added."""
    _check_vectors(vector, other)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(args[0], builder.fmul(_splat(builder, args[1]), args[2]))

    return vec8(vec8, types.float32, vec8), generate
