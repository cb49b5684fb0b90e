"""Vectors beside the texts of rows, as whoever has made them hands them over: they are checked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base.errors import BadData

NUMBERS_MAX = 4096  # the most numbers of a vector


def checked_vectors(
    matrix: NDArray[Any], place: str, n_rows: int | None = None, first: int = 0
) -> NDArray[np.float32]:
    """Return vectors of training rows, or of a file, as float32[n, numbers]. Raises BadData.

    place   what errors call the matrix
    n_rows  the number of texts; None: any
    first   the number of the first row, for errors
    """
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise BadData(
            f"{place}: expected a matrix of floats, a row for each text, found "
            f"{matrix.dtype}{list(matrix.shape)}"
        )
    if n_rows is not None and len(matrix) != n_rows:
        raise BadData(f"{place}: expected {n_rows} rows, as many as texts, found {len(matrix)}")
    if not 1 <= matrix.shape[1] <= NUMBERS_MAX:
        raise BadData(
            f"{place}: expected vectors of 1 to {NUMBERS_MAX} numbers, found {matrix.shape[1]}"
        )
    with np.errstate(over="ignore"):  # a number too large for 32 bits becomes infinite: refused
        vectors = np.ascontiguousarray(matrix, np.float32)
    if not np.isfinite(vectors).all():
        row, position = np.argwhere(~np.isfinite(vectors))[0].tolist()
        raise BadData(
            f"{place}: row {first + row}: expected a vector of finite 32-bit numbers, "
            f"found {vectors[row, position]}"
        )
    return vectors
