"""Bring compressed rows into the form that all other code relies on: sorted, without repeated
features, finite.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem_store import F32, I32, I64, kernel, nonallocating_inlined

_32 = np.int64(32)
_LOW_32 = np.int64(0xFFFFFFFF)


@nonallocating_inlined
def _ascending(indices: I32, start: int, end: int) -> bool:
    i = start + 1
    while i < end and indices[i] > indices[i - 1]:
        i += 1
    return i >= end


@kernel
def _sum_row(indices: I32, values: F32, start: int, end: int, out: int) -> tuple[int, bool]:
    """Write the row [start, end), sorted and summed, at `out`, which is <= start.

    Return (the end of the written row, whether its values are finite).
    """
    n = end - start
    # the place in the low half makes the sort stable: values of a feature are summed in their order
    keys = np.empty(n, np.int64)
    for i in range(n):
        keys[i] = (np.int64(indices[start + i]) << _32) | i
    keys.sort()
    unsorted = values[start:end].copy()
    total = 0.0
    finite = True
    for i in range(n):
        total += np.float64(unsorted[keys[i] & _LOW_32])
        if i + 1 == n or keys[i + 1] >> _32 != keys[i] >> _32:
            indices[out] = keys[i] >> _32
            values[out] = np.float32(total)
            finite &= bool(np.isfinite(values[out]))
            total = 0.0
            out += 1
    return out, finite


@kernel
def sort_and_sum_rows(indptr: I64, indices: I32, values: F32) -> tuple[int, int]:
    """Sort each row by feature and sum repeated features, in place.

    The rows are moved to the front, so that no gaps remain.

    indptr   int64[n + 1], indptr[0] = 0
    indices  int32[nnz], >= 0
    values   float32[nnz]

    All three are overwritten. Values of one feature are added in double precision, in their order,
    and rounded once. Return (the new nnz, the first row in which a value is not finite, or -1).
    Linear for rows that are sorted already, else n log n a row. Deterministic.
    """
    out = 0
    bad = -1
    start = indptr[0]
    for row in range(len(indptr) - 1):
        end = indptr[row + 1]
        if _ascending(indices, start, end):
            finite = True
            for i in range(start, end):
                finite &= bool(np.isfinite(values[i]))
                indices[out] = indices[i]
                values[out] = values[i]
                out += 1
        else:
            out, finite = _sum_row(indices, values, start, end, out)
        if not finite and bad < 0:
            bad = row
        indptr[row + 1] = out
        start = end
    return out, bad


@kernel
def narrow_features(indptr: I64, indices: NDArray[Any], features_out: I32) -> tuple[bool, int, int]:
    """Copy the features of unchecked rows to 32 bits, and find their range.

    indptr        int64[..]
    indices       int32[nnz] or int64[nnz]
    features_out  int32[nnz]

    Return (whether indptr ascends from 0 to nnz, the least index, the greatest index); without
    indices the latter are 0 and -1. Linear.
    """
    n = len(indices)
    ascends = len(indptr) > 0 and indptr[0] == 0 and indptr[len(indptr) - 1] == n
    for row in range(len(indptr) - 1):
        ascends &= indptr[row + 1] >= indptr[row]
    least = np.int64(0)
    greatest = np.int64(-1)
    if n:
        least = greatest = np.int64(indices[0])
    for i in range(n):
        features_out[i] = indices[i]
        least = min(least, np.int64(indices[i]))
        greatest = max(greatest, np.int64(indices[i]))
    return bool(ascends), int(least), int(greatest)


def sort_labels(indptr: I64, indices: I32) -> int:
    """Sort each row of labels and remove repeated labels, in place; return the new nnz.

    The rows are moved to the front, so that no gaps remain.

    indptr   int64[n + 1], indptr[0] = 0; overwritten
    indices  int32[nnz]; overwritten
    """
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    pairs = np.sort(rows << _32 | indices[: len(rows)])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    indices[: len(pairs)] = pairs & _LOW_32
    indptr[1:] = np.searchsorted(pairs >> _32, np.arange(1, len(indptr)))
    return len(pairs)
