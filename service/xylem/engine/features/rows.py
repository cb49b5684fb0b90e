"""Check rows of feature ids and values from outside, and weight and normalise rows of counts."""

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from xylem.base import BadInstance, SparseRows
from xylem.engine.features.parameters import Norm
from xylem.engine.kernels.text.sort_and_sum import narrow_features, sort_and_sum_rows
from xylem_store import F32, I32, I64, inlined, kernel

_NUMBER = frozenset({int, float})


def finite_values(instances: Sequence[Mapping[str, float]]) -> F32:
    """Return the values of all instances as float32; too large ones become infinite.

    Raises BadInstance, whose path is the instance's, for a value that is no number.
    """
    values = [list(instance.values()) for instance in instances]
    for i, numbers in enumerate(values):
        if not _NUMBER.issuperset(map(type, numbers)):
            wrong = next(value for value in numbers if type(value) not in _NUMBER)
            raise BadInstance(f"expected numbers, found {wrong!r:.40}").with_path(
                f"instances[{i}].features"
            )
    try:
        return np.frombuffer(array("f", chain.from_iterable(values)), np.float32)
    except OverflowError as error:
        i = next(i for i, numbers in enumerate(values) if max(map(abs, numbers), default=0) > 1e308)
        fault = "expected values that are finite in 32 bits, found an integer beyond them"
        raise BadInstance(fault).with_path(f"instances[{i}].features") from error


def rows_of_csr(
    indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n_features: int
) -> SparseRows:
    """Return checked copies of compressed sparse rows.

    indptr, indices  integers of any width
    values           numbers of any width

    Raises BadInstance for arrays that are no such rows.
    """
    if any(array.ndim != 1 for array in (indptr, indices, values)):
        raise BadInstance("expected indptr, indices and values in one dimension, found more")
    if (
        indptr.dtype.kind not in "iu"
        or indices.dtype.kind not in "iu"
        or values.dtype.kind not in "iuf"
    ):
        dtypes = ", ".join(str(array.dtype) for array in (indptr, indices, values))
        raise BadInstance(
            f"expected integers, integers and numbers as indptr, indices and values, found {dtypes}"
        )
    if len(indices) != len(values):
        raise BadInstance(
            f"expected as many values as indices, {len(indices)}, found {len(values)}"
        )
    starts = np.array(indptr, np.int64)
    features = np.empty(len(indices), np.int32)
    ascends, least, greatest = narrow_features(
        starts, np.array(indices, np.int32 if indices.dtype == np.int32 else np.int64), features
    )
    if not ascends:
        raise BadInstance(
            f"expected indptr to ascend from 0 to the {len(indices)} indices, found another"
        )
    if len(indices) and (least < 0 or greatest >= n_features):
        raise BadInstance(
            f"expected feature ids from 0 to {n_features - 1}, found {least} to {greatest}"
        )
    with np.errstate(over="ignore"):  # a number too large for 32 bits becomes infinite: refused
        narrow_values = values.astype(np.float32)
    return tidied(starts, features, narrow_values, n_features)


def tidied(indptr: I64, indices: I32, values: F32, n_features: int) -> SparseRows:
    """Return the rows sorted by feature, with repeated features summed; the arrays are overwritten.

    Raises BadInstance for a value or sum that is not finite.
    """
    n, bad = sort_and_sum_rows(indptr, indices, values)
    if bad >= 0:
        raise BadInstance(
            "expected values, and sums of values of one feature, that are finite in 32 bits, "
            "found one that is not"
        ).with_path(f"instances[{bad}]")
    return SparseRows(indptr, indices[:n], values[:n], n_features)


# The numbers of the norms, as kernels take them.
NORM_CODES = {norm: code for code, norm in enumerate(get_args(Norm))}

_L2, _L1, _NONE = range(3)


def idf_of(frequency: NDArray[Any], n_texts: float, smooth: bool) -> F32:
    """Return the inverse document frequency of each feature, float32[n].

    frequency  float64[n] or int64[n]: how many of the n_texts texts have the feature
    smooth     count as if one more text had every feature

    Source: scikit-learn, TfidfTransformer.
    """
    extra = int(smooth)
    return (np.log((n_texts + extra) / (frequency + extra)) + 1.0).astype(np.float32)


@kernel
def weigh_counts(indices: I32, values: F32, idf: F32, sublinear_tf: int) -> None:
    """Turn counts into tf-idf weights, in place: (1 + ln(count), or the count) times idf[feature].

    An empty `idf` stands for ones. Source: scikit-learn, TfidfTransformer.
    """
    for i in range(len(indices)):
        weight = np.float64(values[i])
        if sublinear_tf and weight != 1.0:
            weight = 1.0 + np.log(weight)
        if len(idf):
            weight *= idf[indices[i]]
        values[i] = np.float32(weight)


@kernel
def normalise_rows(indptr: I64, values: F32, code: int) -> None:
    """Scale every row by a norm, one of NORM_CODES, in place; a row of zeros stays as it is."""
    if code == _NONE:
        return
    for row in range(len(indptr) - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            value = np.float64(values[i])
            total += value * value if code == _L2 else abs(value)
        if total > 0.0:
            scale = np.sqrt(total) if code == _L2 else total
            for i in range(indptr[row], indptr[row + 1]):
                values[i] = np.float32(np.float64(values[i]) / scale)


@inlined
def finish_rows(norm: int, indptr: I64, indices: I32, values: F32) -> int:
    """Sort, sum and normalise rows in place; return their number of values.

    Return -1 if a value is not finite.
    """
    n_values, bad = sort_and_sum_rows(indptr, indices, values)
    if bad >= 0:
        return -1
    normalise_rows(indptr, values, norm)
    return n_values


@kernel
def weighted_rows(
    counts: tuple[I64, I32, F32], idf: F32, sublinear_tf: int, norm: int
) -> tuple[I64, I32, F32]:
    """Return rows of counts, (indptr, indices, values), weighted and scaled, in the same arrays.

    idf, sublinear_tf  as `weigh_counts` takes them
    norm               one of NORM_CODES
    """
    indptr, indices, values = counts
    weigh_counts(indices, values, idf, sublinear_tf)
    normalise_rows(indptr, values, norm)
    return indptr, indices, values
