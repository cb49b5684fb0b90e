"""Fields, items and results of steps: arrays in NamedTuples, lists and dataclasses."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def mapped(value: Any, of_array: Callable[[Array], Array]) -> Any:
    """Return a value with `of_array` of each array in it in the array's place."""
    if isinstance(value, np.ndarray):
        return of_array(value)
    if isinstance(value, tuple):
        parts = [mapped(part, of_array) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [mapped(part, of_array) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return dataclasses.replace(value, **{name: mapped(getattr(value, name), of_array) for name in fields})
    return value


class _SameMemory:
    """Shows an array's memory as numpy's array interface does, and keeps the array."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def shared(array: Array) -> Array:
    """Return an array over the same memory that is not marked read-only: kernels are compiled for those.

    The memory is other processes' too: who gets the array does not write to it.
    """
    return array if array.flags.writeable or not array.size else np.asarray(_SameMemory(array))


def n_bytes(value: Any) -> int:
    """Return the bytes of all arrays in a value."""
    sizes: list[int] = []

    def count(array: Array) -> Array:
        sizes.append(array.nbytes)
        return array

    mapped(value, count)
    return sum(sizes)
