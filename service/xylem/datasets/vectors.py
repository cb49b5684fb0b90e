"""Vectors that stand beside the texts of a data file, in a `.npy` file."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from xylem.base import BadData, Dataset, TableColumns, checked_vectors
from xylem_store import F32

_FILE = "expected a .npy file with a matrix of floats, a row for each row of the data"


def with_vectors(dataset: Dataset, path: Path, columns: TableColumns) -> Dataset:
    """Return a data set with the vectors of the file that stands beside its own, if there is one.

    Raises BadData.
    """
    file = columns.vectors_of(path)
    if file is None:
        return dataset
    matrix = _open(file)
    _check_rows(len(matrix), dataset.n_rows, path, file)
    return _beside(dataset, matrix, 0, file)


def parts_with_vectors(
    parts: Iterator[Dataset], path: Path, columns: TableColumns
) -> Iterator[Dataset]:
    """Yield the parts of a data file with their vectors, as `with_vectors` a whole one.

    Memory: the vectors of a part.
    """
    file = columns.vectors_of(path)
    if file is None:
        yield from parts
        return
    matrix = _open(file)
    first = 0
    for part in parts:
        if first + part.n_rows > len(matrix):
            _check_rows(len(matrix), f"more than {len(matrix)}", path, file)
        yield _beside(part, matrix, first, file)
        first += part.n_rows
    _check_rows(len(matrix), first, path, file)


def vector_blocks(path: Path, columns: TableColumns) -> Iterator[F32]:
    """Yield the vectors beside a data file, in blocks. Raises BadData."""
    file = columns.vectors_of(path)
    if file is not None:
        matrix = _open(file)
        for first in range(0, len(matrix), _BLOCK_ROWS):
            yield checked_vectors(matrix[first : first + _BLOCK_ROWS], str(file))


_BLOCK_ROWS = 1 << 12


def lines_with_vectors(
    lines: Iterator[bytes], path: Path, columns: TableColumns
) -> Generator[bytes]:
    """Yield the lines of a file of instances, with its vector in each JSON object.

    Other lines stay as they are; empty ones have no vector. Raises BadData for vectors that do not
    fit the file.
    """
    file = columns.vectors_of(path)
    if file is None:
        yield from lines
        return
    matrix = _open(file)
    row = 0
    for line in lines:
        if not line.strip():
            yield line
            continue
        if row == len(matrix):
            _check_rows(row, f"more than {row}", path, file)
        (vector,) = checked_vectors(matrix[row : row + 1], str(file), first=row)
        yield _with_vector(line, vector)
        row += 1
    _check_rows(len(matrix), row, path, file)


def _with_vector(line: bytes, vector: F32) -> bytes:
    try:
        instance = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    if not isinstance(instance, dict):
        return line
    return orjson.dumps(
        {**instance, "vector": vector},
        option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE,
    )


def _beside(part: Dataset, matrix: NDArray[Any], first: int, file: Path) -> Dataset:
    if part.texts is None:
        raise BadData(f"{file}: expected vectors beside texts, found rows of features beside them")
    return replace(
        part, vectors=checked_vectors(matrix[first : first + part.n_rows], str(file), first=first)
    )


def _check_rows(n_vectors: int, n_rows: int | str, path: Path, file: Path) -> None:
    if n_vectors != n_rows:
        raise BadData(
            f"{file}: expected as many rows as {path.name} has, {n_rows}, found {n_vectors}"
        )


def _open(file: Path) -> NDArray[Any]:
    """Return the matrix of a file, which is mapped into memory. Raises BadData.

    Arrays of objects, which pickle would read, are refused by numpy's `open_memmap`.
    """
    try:
        matrix = np.lib.format.open_memmap(file, mode="r")
    except (OSError, ValueError) as error:
        raise BadData(f"{file}: {_FILE}, found another: {error}") from None
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise BadData(f"{file}: {_FILE}, found {matrix.dtype}{list(matrix.shape)}")
    return matrix
