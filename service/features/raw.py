"""Feature ids and values, from anywhere, to checked rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import BadInstance
from service.kernels.tidy import tidy_rows
from service.rows import SparseRows

_INTEGER = frozenset({int})
_NUMBER = frozenset({int, float})


def rows_of_lists(indices: Sequence[list[int]], values: Sequence[list[float]], n_features: int) -> SparseRows:
    """Return a row for each pair of lists. Strict: `True` is no id and no value, 1.0 is no id.

    Raises BadInstance, its path naming the instance. About 10 microseconds for an instance of 65 features.
    """
    if len(indices) != len(values):
        raise BadInstance(
            f"expected as many lists of values as of indices, {len(indices)}, found {len(values)}"
        )
    for i, (ids, numbers) in enumerate(zip(indices, values, strict=True)):
        if len(ids) != len(numbers):
            fault = f"expected as many values as indices, {len(ids)}, found {len(numbers)}"
            raise BadInstance(fault).at(f"instances[{i}].values")
        if not _INTEGER.issuperset(map(type, ids)):
            wrong = next(value for value in ids if type(value) is not int)
            raise BadInstance(f"expected integers, found {_shown(wrong)}").at(f"instances[{i}].indices")
        if ids and not 0 <= min(ids) <= max(ids) < n_features:
            wrong = next(value for value in ids if not 0 <= value < n_features)
            fault = f"expected feature ids from 0 to {n_features - 1}, found {_shown(wrong)}"
            raise BadInstance(fault).at(f"instances[{i}].indices")
    indptr = np.zeros(len(indices) + 1, np.int64)
    np.cumsum([len(ids) for ids in indices], out=indptr[1:])
    flat = np.fromiter(chain.from_iterable(indices), np.int32, int(indptr[-1]))
    return tidied(indptr, flat, finite_values(values, "values"), n_features)


def finite_values(values: Sequence[Sequence[float]], key: str) -> NDArray[np.float32]:
    """Return the numbers of all instances as float32; one that is infinite there becomes so.

    Raises BadInstance, its path naming the instance and `key`, for something that is no number.
    """
    for i, numbers in enumerate(values):
        if not _NUMBER.issuperset(map(type, numbers)):
            wrong = next(value for value in numbers if type(value) not in _NUMBER)
            raise BadInstance(f"expected numbers, found {_shown(wrong)}").at(f"instances[{i}].{key}")
    try:
        flat = np.array(list(chain.from_iterable(values)), np.float64)
    except OverflowError as error:
        i = next(i for i, numbers in enumerate(values) if max(map(abs, numbers), default=0) > 1e308)
        fault = "expected values that are finite in 32 bits, found an integer beyond them"
        raise BadInstance(fault).at(f"instances[{i}].{key}") from error
    with np.errstate(over="ignore"):
        return flat.astype(np.float32)


def _shown(value: object) -> str:
    """Return a value as a message shows it; a very long integer has no decimal form."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.40}"


def rows_of_csr(
    indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n_features: int
) -> SparseRows:
    """Return checked copies of compressed sparse rows: integers, integers and numbers of any width.

    Raises BadInstance.
    """
    if any(array.ndim != 1 for array in (indptr, indices, values)):
        raise BadInstance("expected indptr, indices and values in one dimension, found more")
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu" or values.dtype.kind not in "iuf":
        found = ", ".join(str(array.dtype) for array in (indptr, indices, values))
        raise BadInstance(
            f"expected integers, integers and numbers as indptr, indices and values, found {found}"
        )
    if len(indices) != len(values):
        raise BadInstance(f"expected as many values as indices, {len(indices)}, found {len(values)}")
    ascending = len(indptr) > 0 and indptr[0] == 0 and indptr[-1] == len(indices)
    if not ascending or bool((indptr[1:] < indptr[:-1]).any()):
        raise BadInstance(f"expected indptr to ascend from 0 to the {len(indices)} indices, found another")
    if len(indices) and (indices.min() < 0 or indices.max() >= n_features):
        found = f"{indices.min()} to {indices.max()}"
        raise BadInstance(f"expected feature ids from 0 to {n_features - 1}, found {found}")
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
    return tidied(indptr.astype(np.int64), indices.astype(np.int32), numbers, n_features)


def tidied(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], values: NDArray[np.float32], n_features: int
) -> SparseRows:
    """Return rows sorted and summed; the arrays are used up. Raises BadInstance for one not finite."""
    n, bad = tidy_rows(indptr, indices, values)
    if bad >= 0:
        raise BadInstance(
            "expected values, and sums of values of one feature, that are finite in 32 bits"
        ).at(f"instances[{bad}]")
    return SparseRows(indptr, indices[:n], values[:n], n_features)
