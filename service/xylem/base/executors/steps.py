"""Steps: what runs on threads, processes or a cluster; values there, and values as bytes.

A step is a piece of work whose result depends only on its fields and an item.
"""

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable
from io import BytesIO
from typing import (
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class ValueHandle(Protocol[R_co]):
    """A handle of a value that stays where it was made until a step gets it.

    Handles are hashable, and small in messages.
    """

    def get(self) -> R_co:
        """Return the value; its arrays must not be written to."""


class Step(Protocol[T_contra, R_co]):
    """A frozen dataclass whose fields are shared by all items, and whose `run` handles one item.

    Arrays and NamedTuples of arrays may be among its fields. Fields, items and results go to other
    processes, which find the class by its name: so it is defined at the top of a module. The same
    fields and item give the same result, bit for bit, in every process and in any order.

    A result consists of NamedTuples, lists, arrays and numbers. The return type of `run` says how
    it is read from a file (`unpacked`).
    """

    def workspace(self) -> Any:
        """Return arrays in which calls of `run` work, one after the other.

        Each call leaves them as they were.
        """

    def run(self, item: T_contra, workspace: Any, stop: NDArray[np.uint8]) -> R_co:
        """Return the result of an item.

        Once stop[0] is 1, it may end early: its result is dropped.
        """


@dataclasses.dataclass(frozen=True)
class Calls(Generic[T, R]):
    """A step that calls a function of a module with an item and the shared arguments."""

    function: Callable[Concatenate[T, ...], R]
    shared: tuple[Any, ...] = ()

    def workspace(self) -> None:
        """Return None: no workspace is needed."""

    def run(self, item: T, workspace: None, stop: NDArray[np.uint8]) -> R:
        """Return the result of an item."""
        return self.function(item, *self.shared)


def function_of(step: Step[Any, Any]) -> Callable[..., Any]:
    """Return the function that computes a step's results; it has a name and a return type."""
    return step.function if isinstance(step, Calls) else step.run


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
        return dataclasses.replace(
            value,
            **{
                field.name: mapped(getattr(value, field.name), of_array)
                for field in dataclasses.fields(value)
            },
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
        "expected arrays, numbers, texts, or lists, dicts and dataclasses of these, found "
        f"{type(value).__name__}"
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
