"""Vectors that stand beside the texts of a data file, in a `.npy` file."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from xylem.base import BadData, Dataset, TableColumns, checked_vectors, what_is
from xylem_store import F32

VECTOR = "vector"  # the key of the vector in an instance

_FILE = "expected a .npy file with a matrix of floats, a row for each row of the data"


class VectorCells:
    """The vectors in the cells of a column, one after the other.

    name  of the column, or of the key in lines of JSON; empty: there is none
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._n_numbers = 0
        self._vectors: list[F32] = []

    def add(self, cell: object) -> None:
        """Add the vector in a cell. Raises ValueError unless it is as long as the first one."""
        if not isinstance(cell, list) or not cell:
            raise ValueError(
                f"expected a vector, found {'none' if cell is None else what_is(cell)}"
            )
        if not {int, float}.issuperset(map(type, cell)):
            other = next(number for number in cell if type(number) not in (int, float))
            raise ValueError(f"expected a vector of numbers, found {what_is(other)} among them")
        self._n_numbers = self._n_numbers or len(cell)
        if len(cell) != self._n_numbers:
            raise ValueError(
                f"expected a vector of {self._n_numbers} numbers, as in the rows before, found one "
                f"of {len(cell)}"
            )
        with np.errstate(over="ignore"):  # a number too large for 32 bits becomes infinite: refused
            vector = np.array(cell, np.float32)
        if not np.isfinite(vector).all():
            raise ValueError(
                "expected a vector of finite 32-bit numbers, found "
                f"{vector[~np.isfinite(vector)][0]}"
            )
        self._vectors.append(vector)

    def take(self, file: Path) -> F32 | None:
        """Return the vectors, and remove them; None if there is no column. Raises BadData."""
        if not self.name:
            return None
        matrix = np.array(self._vectors, np.float32).reshape(len(self._vectors), self._n_numbers)
        self._vectors = []
        return checked_vectors(matrix, f"{file}: `{self.name}`")


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
        {**instance, VECTOR: vector},
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
