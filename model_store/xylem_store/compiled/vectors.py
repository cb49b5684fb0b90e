"""Vectors of 16 or 8 floats in compiled kernels: numba types and the operations on them.

A `Vec16` value lives in vector registers (two of AVX2, one of AVX-512, four of SSE), a `Vec8` in
one of AVX2, where 16 would be two, half of them empty. They exist only inside kernels: they have no
Python object, so a kernel neither takes nor returns one. Every operation is elementwise IEEE
arithmetic without fusing or reordering: the same bits on every machine. Loads and stores need no
alignment beyond that of the elements and are NOT bounds-checked (except with NUMBA_BOUNDSCHECK=1):
the caller proves that elements i .. i + 15, or i + 7, exist.

Sets of lanes are integers: bit k stands for lane k.
"""

import inspect
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils, errors
from numba.extending import models, register_model

from xylem_store.compiled.decorators import instruction

_F32 = ir.FloatType()
_I16 = ir.IntType(16)
_I32 = ir.IntType(32)
_LANES = 16
_V16F = ir.VectorType(_F32, _LANES)
_V16I = ir.VectorType(_I32, _LANES)

EIGHT = 8  # the number of lanes of a Vec8


class VectorType(types.Type):
    """The numba type of a vector of float32 lanes: Vec16, Vec8."""

    def __init__(self, lanes: int) -> None:
        super().__init__(name=f"Vec{lanes}")
        self.lanes = lanes


vec16: Any = VectorType(_LANES)
vec8: Any = VectorType(EIGHT)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    """A vector is stored and passed as LLVM's <16 x float> or <8 x float>."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        models.PrimitiveModel.__init__(self, dmm, fe_type, ir.VectorType(_F32, fe_type.lanes))


def _refuse(expected: str, actual: Any) -> None:
    raise errors.TypingError(f"expected {expected}, found {actual}")


def _check_array(array: Any, *dtypes: Any) -> None:
    if not (isinstance(array, types.Array) and array.dtype in dtypes and array.layout == "C"):
        _refuse(f"a C-contiguous array of {' or '.join(map(str, dtypes))}", array)


def _pointer(context: Any, builder: Any, array_type: Any, args: Any, vector: Any) -> Any:
    """Return the address of element args[1] of array args[0].

    The index counts through all dimensions of the array.
    """
    return builder.bitcast(
        builder.gep(context.make_array(array_type)(context, builder, args[0]).data, [args[1]]),
        vector.as_pointer(),
    )


def _checked_pointer(context: Any, builder: Any, array_type: Any, args: Any, vector: Any) -> Any:
    """Return what `_pointer` returns.

    With NUMBA_BOUNDSCHECK the code raises IndexError unless the array has all elements of the
    vector.
    """
    if context.enable_boundscheck:
        n_items = context.make_array(array_type)(context, builder, args[0]).nitems
        for offset in (0, vector.count - 1):
            cgutils.do_boundscheck(
                context, builder, builder.add(args[1], args[1].type(offset)), n_items
            )
    return _pointer(context, builder, array_type, args, vector)


def _splat(builder: Any, scalar: Any, vector: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    return builder.shuffle_vector(
        builder.insert_element(undefined, scalar, _I32(0)),
        undefined,
        ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count),
    )


def _bits_of(builder: Any, lanes: Any) -> Any:
    """Return the integer with the bits of <16 x i1>, as 64 bits."""
    return builder.zext(builder.bitcast(lanes, _I16), ir.IntType(64))


def _load(kind: Any) -> Any:
    def load(typingctx: Any, array: Any, index: Any) -> Any:
        """Return the elements of an array from an index on; it counts through all dimensions.

        The array is of float32, of uint16 (the upper halves of float32 numbers), or of int8.
        """
        _check_array(array, types.float32, types.uint16, types.int8)
        floats = ir.VectorType(_F32, kind.lanes)
        integers = ir.VectorType(_I32, kind.lanes)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            stored = ir.VectorType(context.get_value_type(array.dtype), kind.lanes)
            lanes = builder.load(
                _checked_pointer(context, builder, array, args, stored),
                align=array.dtype.bitwidth // 8,
            )
            if array.dtype == types.uint16:
                return builder.bitcast(
                    builder.shl(
                        builder.zext(lanes, integers), ir.Constant(integers, [16] * kind.lanes)
                    ),
                    floats,
                )
            if array.dtype == types.int8:
                return builder.sitofp(builder.sext(lanes, integers), floats)
            return lanes

        return kind(array, types.intp), generate

    return instruction(load)


vload = _load(vec16)
load8 = _load(vec8)


@instruction
def vstore(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write a Vec16 or Vec8 to a float32 array from an index on, which counts as in vload."""
    _check_array(array, types.float32)
    if not isinstance(vector, VectorType):
        _refuse("a vector", vector)
    if not array.mutable:
        _refuse("a writable array", array)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(
            args[2],
            _checked_pointer(context, builder, array, args, ir.VectorType(_F32, vector.lanes)),
            align=4,
        )
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


def _operation(return_type: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes an intrinsic from what emits it: emit(builder, *values).

    return_type, kinds  the numba types of the result and of the values

    Numbers are converted; numba refuses a value that is no vector where a vector is expected.
    """

    def make(emit: Callable[..., Any]) -> Any:
        def operation(typingctx: Any, *operand_types: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return emit(builder, *args)

            return return_type(*kinds), generate

        names = [
            "typingctx",
            *(f"value{i}" for i in range(len(kinds))),
        ]  # numba counts the parameters
        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names
        ]
        vars(operation)["__signature__"] = inspect.Signature(parameters)
        operation.__doc__ = emit.__doc__
        return instruction(operation)

    return make


@_operation(vec8)
def zero8(builder: Any) -> Any:
    """Return eight zeros."""
    return ir.Constant(ir.VectorType(_F32, EIGHT), [0.0] * EIGHT)


@_operation(vec8, vec8, types.float32, vec8)
def add_scaled8(builder: Any, vector: Any, scalar: Any, other: Any) -> Any:
    """Return vector + scalar * other, the product rounded before it is added."""
    return builder.fadd(
        vector, builder.fmul(_splat(builder, scalar, ir.VectorType(_F32, EIGHT)), other)
    )


@_operation(vec16, types.float32)
def vbroadcast(builder: Any, scalar: Any) -> Any:
    """Return a vector with `scalar`, rounded to float32, in every lane."""
    return _splat(builder, scalar, _V16F)


_binary = _operation(vec16, vec16, vec16)

# Lane by lane: sum, difference, product, quotient, the larger, the smaller of left and right.
#
# vmax and vmin give right where either is NaN.
vadd = _binary(lambda builder, a, b: builder.fadd(a, b))
vsub = _binary(lambda builder, a, b: builder.fsub(a, b))
vmul = _binary(lambda builder, a, b: builder.fmul(a, b))
vdiv = _binary(lambda builder, a, b: builder.fdiv(a, b))
vmax = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
vmin = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered("<", a, b), a, b))

_comparison = _operation(types.int64, vec16, vec16)

# The set of lanes (int64) where left > right, or left >= right.
vgreater = _comparison(lambda builder, a, b: _bits_of(builder, builder.fcmp_ordered(">", a, b)))
vatleast = _comparison(lambda builder, a, b: _bits_of(builder, builder.fcmp_ordered(">=", a, b)))


@_operation(types.int64, vec16)
def vnonzero(builder: Any, vector: Any) -> Any:
    """Return the set of lanes (int64) that are not zero; NaN counts as non-zero."""
    return _bits_of(
        builder, builder.fcmp_unordered("!=", vector, ir.Constant(_V16F, [0.0] * _LANES))
    )


@_operation(vec16, types.int64, vec16, vec16)
def vselect(builder: Any, lanes: Any, left: Any, right: Any) -> Any:
    """Return left in the lanes of the set, right in the others."""
    bits = builder.and_(
        _splat(builder, builder.trunc(lanes, _I32), _V16I),
        ir.Constant(_V16I, [1 << k for k in range(_LANES)]),
    )
    return builder.select(builder.icmp_unsigned("!=", bits, _integer(0)), left, right)


@_operation(vec16)
def vall(builder: Any) -> Any:
    """Return a vector with all bits set, for `vkeep`."""
    return builder.bitcast(_integer(-1), _V16F)


@_operation(vec16, vec16, vec16, types.float32, types.int32)
def vkeep(builder: Any, sets: Any, x: Any, threshold: Any, bits: Any) -> Any:
    """Return sets of 32 bits in each lane; where x > threshold only the bits in `bits` are kept."""
    words = builder.bitcast(sets, _V16I)
    masked_words = builder.and_(words, _splat(builder, bits, _V16I))
    return builder.bitcast(
        builder.select(
            builder.fcmp_ordered(">", x, _splat(builder, threshold, _V16F)), masked_words, words
        ),
        _V16F,
    )


@instruction
def vfirst(typingctx: Any, sets: Any, array: Any, index: Any) -> Any:
    """Return array[index + the lowest bit] for sets of 32 bits a lane, none empty.

    The array is float32.
    """
    _check_array(array, types.float32)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_V16I, [_V16I, ir.IntType(1)])
        lowest = builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.v16i32"),
            [builder.bitcast(args[0], _V16I), ir.Constant(ir.IntType(1), 1)],
        )
        vector = ir.Constant(_V16F, ir.Undefined)
        for lane in map(_I32, range(_LANES)):
            position = builder.add(
                args[2], builder.zext(builder.extract_element(lowest, lane), args[2].type)
            )
            vector = builder.insert_element(
                vector,
                builder.load(_pointer(context, builder, array, (args[1], position), _F32)),
                lane,
            )
        return vector

    return vec16(vec16, array, types.intp), generate


@instruction
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of element `index` of a C-contiguous array.

    The element need not exist.
    """
    if not (isinstance(array, types.Array) and array.layout == "C"):
        _refuse("a C-contiguous array", array)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        address = _pointer(context, builder, array, args, ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"),
            [address, _I32(0), _I32(3), _I32(1)],
        )
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@_operation(types.int64, types.int64)
def lowest_lane(builder: Any, lanes: Any) -> Any:
    """Return the lowest lane of a set that is not empty, int64."""
    return builder.cttz(lanes, ir.Constant(ir.IntType(1), 1))


def _number(value: float) -> Any:
    return ir.Constant(_V16F, [value] * _LANES)


def _integer(value: int) -> Any:
    return ir.Constant(_V16I, [value] * _LANES)


def _polynomial(builder: Any, coefficients: tuple[float, ...], x: Any) -> Any:
    """Emit the polynomial of x with these coefficients, highest power first (Horner's scheme)."""
    y = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        y = builder.fadd(builder.fmul(y, x), _number(coefficient))
    return y


_LOG_COEFFICIENTS = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


@_operation(vec16, vec16)
def vlog(builder: Any, vector: Any) -> Any:
    """Return the natural logarithm of positive normal numbers; other lanes have no meaning.

    Source: logf of the Cephes library (Moshier 1989): x = m * 2^e with m in [sqrt(1/2), sqrt(2)), a
    polynomial of degree 9 in m - 1. Its error is below 2 units in the last place.
    """
    bits = builder.bitcast(vector, _V16I)
    power = builder.ashr(builder.sub(bits, _integer(0x3F3504F3)), _integer(23))
    x = builder.fsub(
        builder.bitcast(builder.sub(bits, builder.shl(power, _integer(23))), _V16F), _number(1.0)
    )
    y = _polynomial(builder, _LOG_COEFFICIENTS, x)
    e = builder.sitofp(power, _V16F)
    square = builder.fmul(x, x)
    y = builder.fmul(builder.fmul(y, x), square)
    y = builder.fadd(y, builder.fmul(e, _number(-2.12194440e-4)))
    y = builder.fsub(y, builder.fmul(square, _number(0.5)))
    return builder.fadd(builder.fadd(x, y), builder.fmul(e, _number(0.693359375)))


_EXP_COEFFICIENTS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


@_operation(vec16, vec16)
def vexp(builder: Any, vector: Any) -> Any:
    """Return e^x for x in [-87, 88]; other lanes have no meaning.

    Source: expf of the Cephes library (Moshier 1989): x = n log 2 + r with |r| <= log(2) / 2, and
    e^r by a polynomial of degree 7. Its error is below 2 units in the last place.
    """
    turns = builder.fadd(builder.fmul(vector, _number(1.44269504088896341)), _number(0.5))
    n = builder.sitofp(builder.fptosi(turns, _V16I), _V16F)
    n = builder.fsub(
        n, builder.select(builder.fcmp_ordered(">", n, turns), _number(1.0), _number(0.0))
    )
    r = builder.fsub(vector, builder.fmul(n, _number(0.693359375)))
    r = builder.fsub(r, builder.fmul(n, _number(-2.12194440e-4)))
    y = builder.fmul(_polynomial(builder, _EXP_COEFFICIENTS, r), builder.fmul(r, r))
    y = builder.fadd(builder.fadd(y, r), _number(1.0))
    return builder.fmul(
        y,
        builder.bitcast(
            builder.shl(builder.add(builder.fptosi(n, _V16I), _integer(127)), _integer(23)), _V16F
        ),
    )
