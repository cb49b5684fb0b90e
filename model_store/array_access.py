"""Arrays of a version, taken by name: of the type and shape that the format asks for, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from model_store.arrays import file_name
from model_store.errors import Corrupt


def take(
    arrays: Mapping[str, NDArray[Any]], name: str, dtype: str, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """Return an array as a read-only view, having checked its type and the sizes that are known.

    Raises Corrupt when it is missing or another one. Reads no data.
    """
    if name not in arrays:
        raise Corrupt("manifest.json: arrays", f"an array {name}", "none")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        size is None or size == found for size, found in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits or not array.flags.c_contiguous:
        sizes = ", ".join("*" if size is None else str(size) for size in shape)
        raise Corrupt(file_name(name), f"{dtype}[{sizes}]", f"{array.dtype}{list(array.shape)}")
    view = array.view()
    view.flags.writeable = False  # one compiled form of every kernel, and nobody writes by mistake
    return view


def at(name: str, index: int) -> str:
    """Return how a refusal names an element of an array."""
    return f"{file_name(name)}[{index}]"
