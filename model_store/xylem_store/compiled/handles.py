"""A handle: a NamedTuple of arrays and integers, passed to a kernel as one array of addresses.

numba inspects every array of every call: forty of them cost 13 microseconds, more than many
traversals. `handle_of` writes their addresses and shapes into one int64 array, once; in the kernel
`struct_at` makes the NamedTuple again from it, at no cost. The maker of a handle keeps the arrays
alive and in place while a kernel may run.

A struct is declared once, as a class whose annotations give the types of its fields:

    @handle
    class Rows(NamedTuple):
        indptr: I64_1
        indices: I32_1
        values: F32_1
"""

import functools
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Concatenate,
    NamedTuple,
    NoReturn,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    get_type_hints,
)

import numpy as np
from numba import from_dtype, types
from numba.core import cgutils, errors
from numpy.typing import NDArray

from xylem_store.compiled.decorators import instruction

_DIMS_MAX = 3
_PLACES = 1 + _DIMS_MAX


class Kind(NamedTuple):
    """The type of a field: an array with a dtype and a number of dimensions.

    A dtype that is a number n stands for the dtype of the n-th sample, an empty array passed beside
    the handle: so kernels are compiled for each type of weights. Kernels that read no weights pass
    no samples: such arrays then have bytes, which must not be read, and the kernel is compiled
    once.
    """

    dtype: Any
    dims: int


# Arrays by the type of their items, of any dimensions, for annotations of functions.
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
U8: TypeAlias = NDArray[np.uint8]
U16: TypeAlias = NDArray[np.uint16]
U32: TypeAlias = NDArray[np.uint32]
U64: TypeAlias = NDArray[np.uint64]
F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

# Annotations of a struct: the type of an array's items and its dimensions. `int` is a number.
I32_1: TypeAlias = Annotated[I32, Kind(np.int32, 1)]
I32_2: TypeAlias = Annotated[I32, Kind(np.int32, 2)]
I64_1: TypeAlias = Annotated[I64, Kind(np.int64, 1)]
I64_2: TypeAlias = Annotated[I64, Kind(np.int64, 2)]
U8_1: TypeAlias = Annotated[U8, Kind(np.uint8, 1)]
U64_1: TypeAlias = Annotated[U64, Kind(np.uint64, 1)]
U64_2: TypeAlias = Annotated[U64, Kind(np.uint64, 2)]
U32_2: TypeAlias = Annotated[U32, Kind(np.uint32, 2)]
U32_3: TypeAlias = Annotated[U32, Kind(np.uint32, 3)]
F32_1: TypeAlias = Annotated[F32, Kind(np.float32, 1)]
F32_2: TypeAlias = Annotated[F32, Kind(np.float32, 2)]
F32_3: TypeAlias = Annotated[F32, Kind(np.float32, 3)]
FirstSample_1: TypeAlias = Annotated[NDArray[Any], Kind(0, 1)]
SecondSample_1: TypeAlias = Annotated[NDArray[Any], Kind(1, 1)]
Handle: TypeAlias = I64_1

Struct = TypeVar("Struct")
_Class = TypeVar("_Class", bound=type)
_Kinds: TypeAlias = dict[str, Kind | None]
_KINDS: dict[Any, _Kinds] = {}  # the fields of each struct; None is an integer


def handle(cls: _Class) -> _Class:
    """Declare that a NamedTuple is passed to kernels by handles.

    Raises TypeError for other annotations.
    """
    kinds: _Kinds = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        array_kinds = [kind for kind in getattr(hint, "__metadata__", ()) if isinstance(kind, Kind)]
        if not array_kinds and hint is not int:
            raise TypeError(f"{cls.__name__}.{name}: expected int or a kind of array, found {hint}")
        kinds[name] = array_kinds[0] if array_kinds else None
    _KINDS[cls] = kinds
    return cls


def kinds_of(cls: Any) -> dict[str, Kind]:
    """Return the kind of each array field of a struct."""
    return {name: kind for name, kind in _KINDS[cls].items() if kind is not None}


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to.

    Kernels are compiled for read-only arrays, and would be compiled again for others.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def zeros(struct: Any, shapes: Mapping[str, int | tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Return arrays of zeros for fields of a struct, by name; its annotations give their types.

    shapes  keyed by the names of all fields with this shape, separated by blanks
    """
    kinds = kinds_of(struct)
    return {
        name: np.zeros(shape, kinds[name].dtype)
        for names, shape in shapes.items()
        for name in names.split()
    }


@functools.cache
def word_of(cls: Any, field: str) -> int:
    """Return the index in a handle of a field: of an integer, or of the address of an array."""
    return list(_KINDS[cls]).index(field) * _PLACES


def empty_handle(cls: Any) -> NDArray[np.int64]:
    """Return a handle of a `cls` without addresses: write them before a kernel reads it."""
    return np.zeros(len(_KINDS[cls]) * _PLACES, np.int64)


def handle_of(struct: tuple[Any, ...]) -> NDArray[np.int64]:
    """Return the handle of a NamedTuple: the addresses and shapes of its arrays, and its integers.

    Raises ValueError for an array that is not C-contiguous or not of its kind.
    """
    handle = empty_handle(type(struct))
    for name, value in zip(_KINDS[type(struct)], struct, strict=True):
        set_field(handle, type(struct), name, value)
    return handle


def set_field(handle: NDArray[np.int64], cls: Any, field: str, value: Any) -> None:
    """Set a field of a handle of a `cls` to an array or an integer.

    Raises what `handle_of` raises.
    """
    kind = _KINDS[cls][field]
    word = word_of(cls, field)
    if kind is None:
        handle[word] = value
        return
    if not (isinstance(kind.dtype, int) or value.dtype == kind.dtype) or value.ndim != kind.dims:
        raise ValueError(
            f"{field}: expected {kind.dims} dimensions of {kind.dtype}, found {value.ndim} "
            f"of {value.dtype}"
        )
    if not value.flags.c_contiguous:
        raise ValueError(f"{field}: expected a C-contiguous array")
    handle[word] = value.ctypes.data
    handle[word + 1 : word + 1 + value.ndim] = value.shape


def _type_of(kind: Kind | None, samples: Any) -> Any:
    if kind is None:
        return types.int64
    item = from_dtype(np.uint8 if isinstance(kind.dtype, int) else kind.dtype)
    if isinstance(kind.dtype, int) and samples is not None:
        item = samples[kind.dtype].dtype
    return types.Array(item, kind.dims, "C")


def _emit_struct_at(typing_context: Any, cls: Any, handle: Any, samples: Any = None) -> Any:
    """Emit the struct of a class from a handle; `samples` is a tuple of arrays, if it needs any."""
    fields = [_type_of(kind, samples) for kind in _KINDS[cls.instance_class].values()]
    struct_type = types.NamedTuple(fields, cls.instance_class)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = context.make_array(signature.args[1])(context, builder, arguments[1]).data
        return context.make_tuple(
            builder,
            struct_type,
            [_read(context, builder, words, place, field) for place, field in enumerate(fields)],
        )

    return struct_type(cls, handle, types.none if samples is None else samples), generate


def _emit_write_struct(typing_context: Any, cls: Any, handle: Any, values: Any) -> Any:
    """Emit the writing of a tuple, with the fields of a class, to a handle.

    The handle then has the addresses of the tuple's arrays, and its integers.
    """
    kinds = _KINDS[cls.instance_class]
    if len(values.types) != len(kinds):
        raise errors.TypingError(
            f"expected {len(kinds)} values of {cls.instance_class}, found {values}"
        )
    for (name, kind), value_type in zip(kinds.items(), values.types, strict=True):
        expected = _type_of(kind, None)
        is_array = (
            kind is not None and isinstance(value_type, types.Array) and value_type.layout == "C"
        )
        fits = (
            value_type.dtype == expected.dtype and value_type.ndim == expected.ndim
            if is_array
            else False
        )
        if not (fits or (kind is None and isinstance(value_type, types.Integer | types.Boolean))):
            raise errors.TypingError(f"{name}: expected {expected}, found {value_type}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = context.make_array(signature.args[1])(context, builder, arguments[1]).data
        for place, value_type in enumerate(signature.args[2].types):
            _write(
                context,
                builder,
                words,
                place,
                value_type,
                builder.extract_value(arguments[2], place),
            )
        return context.get_dummy_value()

    return types.void(cls, handle, values), generate


struct_at: Callable[Concatenate[type[Struct], ...], Struct] = instruction(_emit_struct_at)
write_struct: Any = instruction(_emit_write_struct)


def _word_address(context: Any, builder: Any, words: Any, place: int, offset: int) -> Any:
    """Emit the address of a word of a field in a handle."""
    return builder.gep(words, [context.get_value_type(types.intp)(place * _PLACES + offset)])


def _write(context: Any, builder: Any, words: Any, place: int, kind: Any, value: Any) -> None:
    """Emit the writing of an array's address and shape, or an integer, to a place of a handle."""
    if not isinstance(kind, types.Array):
        builder.store(
            context.cast(builder, value, kind, types.int64),
            _word_address(context, builder, words, place, 0),
        )
        return
    array = context.make_array(kind)(context, builder, value)
    address = builder.ptrtoint(array.data, context.get_value_type(types.intp))
    for offset, word in enumerate(
        [address, *cgutils.unpack_tuple(builder, array.shape, kind.ndim)]
    ):
        builder.store(word, _word_address(context, builder, words, place, offset))


def _read(context: Any, builder: Any, words: Any, place: int, kind: Any) -> Any:
    """Emit the array whose address and shape are at a place of a handle, or the integer there."""
    if kind == types.int64:
        return builder.load(_word_address(context, builder, words, place, 0))
    field_words = [
        builder.load(_word_address(context, builder, words, place, offset))
        for offset in range(1 + kind.ndim)
    ]
    word = context.get_value_type(types.intp)
    array = context.make_array(kind)(context, builder)
    item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides: list[Any] = []
    stride = word(item)
    for size in reversed(field_words[1:]):
        strides.insert(0, stride)
        stride = builder.mul(stride, size)
    pack: Any = cgutils.pack_array
    null: Any = cgutils.get_null_value
    array.data = builder.inttoptr(field_words[0], array.data.type)
    array.shape, array.strides = pack(builder, field_words[1:]), pack(builder, strides)
    array.itemsize, array.nitems = word(item), functools.reduce(builder.mul, field_words[1:])
    array.meminfo, array.parent = null(array.meminfo.type), null(array.parent.type)
    return array._getvalue()


class Uncopyable:
    """An object that holds addresses of this process's arrays, or needs an object that does.

    A copy would hold the addresses as numbers, which would lead to freed memory.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise TypeError: `copy.copy`, `copy.deepcopy` and `pickle` all call this method."""
        raise TypeError(
            f"cannot copy or pickle {type(self).__name__}: it holds addresses of arrays of "
            "this process; "
            "copy the xylem.Model or the estimator that it belongs to"
        )
