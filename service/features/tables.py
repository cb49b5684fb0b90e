"""Names of features among a model's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from model_store.errors import BadNames, Corrupt
from model_store.names import NameTable, check_names

NAMES = "features/names"
"""The group that holds the table of feature names."""


def table_arrays(table: NameTable) -> dict[str, NDArray[Any]]:
    """Return the arrays of the names under their stored names."""
    return {f"{NAMES}/{key}": array for key, array in table._asdict().items()}


def take_array(arrays: Mapping[str, NDArray[Any]], name: str, dtype: str, length: int) -> NDArray[Any]:
    """Return one array; raise Corrupt when it is missing, or not of this type and length."""
    found = arrays.get(name)
    if found is None:
        raise Corrupt(name, "the array", "none")
    if found.dtype != dtype or found.shape != (length,):
        raise Corrupt(name, f"{dtype}[{length}]", f"{found.dtype}{list(found.shape)}")
    return found


def take_names(arrays: Mapping[str, NDArray[Any]]) -> NameTable:
    """Return the table of the names; raise Corrupt when it is missing or damaged."""
    parts = [arrays.get(f"{NAMES}/{key}") for key in NameTable._fields]
    offsets, utf8, slots = parts
    if offsets is None or utf8 is None or slots is None:
        raise Corrupt(NAMES, f"the arrays {', '.join(NameTable._fields)}", "one missing")
    try:
        return check_names(offsets, utf8, slots)
    except BadNames as error:
        raise Corrupt(NAMES, "a table of names", str(error)) from error


def take_feature_names(arrays: Mapping[str, NDArray[Any]], n_features: int) -> NameTable:
    """Return the table of the names; raise Corrupt also when there are not n_features of them."""
    table = take_names(arrays)
    if table.n_names != n_features:
        raise Corrupt(NAMES, f"{n_features} names", str(table.n_names))
    return table
