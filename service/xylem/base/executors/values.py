"""Steps: pieces of work whose result depends only on their fields and an item. Values as bytes."""

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable
from io import BytesIO
from typing import (
    Any,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class NamedHandle(NamedTuple):
    """A handle with a name that represents the value in digests."""

    handle: Any
    name: str

    def get(self) -> Any:
        """Return the value."""
        return self.handle.get()


def mapped(value: Any, of_array: Callable[[Array], Array]) -> Any:
    """Return a value in which each array is replaced by `of_array` of it."""
    if isinstance(value, np.ndarray):
        return of_array(value)
    if isinstance(value, tuple):
        parts = [mapped(part, of_array) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return [mapped(part, of_array) for part in value]
    if isinstance(value, dict):
        return {key: mapped(part, of_array) for key, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return dataclasses.replace(
            value, **{name: mapped(getattr(value, name), of_array) for name in names}
        )
    return value


class _SameMemory:
    """An object that shares an array's memory by numpy's array interface, and keeps it alive."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def shared(array: Array) -> Array:
    """Return an array over the same memory that is not marked read-only.

    Kernels are compiled for writeable arrays. Other processes use the same memory, so the array
    must not be written to.
    """
    return array if array.flags.writeable or not array.size else np.asarray(_SameMemory(array))


def n_bytes(value: Any) -> int:
    """Return the total bytes of all arrays in a value."""
    arrays: list[Array] = []
    _layout(value, arrays)
    return sum(array.nbytes for array in arrays)


def digest_of(*values: Any) -> bytes:
    """Return the SHA-256 of values, of their content and not of their types."""
    arrays: list[Array] = []
    digest = hashlib.sha256(json.dumps(_layout(values, arrays)).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def packed(value: Any) -> bytes:
    """Return a result as bytes: the length of its layout, the layout as JSON, and the arrays."""
    arrays: list[Array] = []
    layout = json.dumps(_layout(value, arrays)).encode()
    return b"".join(
        [len(layout).to_bytes(8, "little"), layout, *(array.tobytes() for array in arrays)]
    )


def unpacked(kind: Any, content: bytes) -> Any:
    """Return the result of type `kind` from bytes of `packed`."""
    stream = BytesIO(content)
    return _built(kind, json.loads(stream.read(int.from_bytes(stream.read(8), "little"))), stream)


def _layout(value: Any, arrays: list[Array]) -> Any:
    """Return the content of a value as JSON, each array as its type and shape.

    Arrays are appended to `arrays`. Raises TypeError for a value that is not made of arrays,
    numbers and texts.
    """
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return [value.dtype.str, list(value.shape)]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, NamedHandle):
        return value.name
    if inspect.isfunction(value):
        return value.__qualname__
    if isinstance(value, tuple | list):
        return [_layout(part, arrays) for part in value]
    if isinstance(value, dict):
        return [[key, _layout(part, arrays)] for key, part in value.items()]
    if dataclasses.is_dataclass(value):
        return [_layout(getattr(value, field.name), arrays) for field in dataclasses.fields(value)]
    if hasattr(value, "model_dump_json"):  # a trainer's parameters
        return value.model_dump_json()
    raise TypeError(
        f"expected arrays, numbers and what is made of them, found {type(value).__name__}"
    )


def _built(kind: Any, layout: Any, stream: BytesIO) -> Any:
    """Build a value of type `kind` from its layout, and from the bytes of its arrays in `stream`.

    Raises ValueError if the bytes are cut off.
    """
    if layout is None:
        return None
    origin = get_origin(kind)
    inner = get_args(kind)
    if origin is np.ndarray:
        dtype, shape = layout
        array: Array = np.empty(shape, dtype)
        if (n_read := stream.readinto(array.reshape(-1).view(np.uint8).data)) != array.nbytes:
            raise ValueError(f"expected an array of {array.nbytes} bytes, found {n_read}")
        return array
    if type(None) in inner:
        return _built(
            next(inner_kind for inner_kind in inner if inner_kind is not type(None)), layout, stream
        )
    if origin is list:
        return [_built(inner[0], part, stream) for part in layout]
    if origin is tuple:
        return tuple(
            _built(inner_kind, part, stream) for inner_kind, part in zip(inner, layout, strict=True)
        )
    if isinstance(layout, list):
        kinds = get_type_hints(kind).values()  # of a NamedTuple or a dataclass
        return kind(
            *(
                _built(inner_kind, part, stream)
                for inner_kind, part in zip(kinds, layout, strict=True)
            )
        )
    return kind(layout)
