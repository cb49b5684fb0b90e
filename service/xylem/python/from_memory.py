"""Instances and labels that a caller of Python has at hand, columns of frames too, as
a data set.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xylem.base import BadData, BadParameter, Dataset, LabelRows, SparseRows, offsets
from xylem.datasets import N_IDS_MAX, DataFile, RowCollector, first_labels
from xylem.engine import rows_of_csr
from xylem_store import NameTable

SOURCE = "python"
"""What the origin of a version says instead of a file's name."""

TextColumn = str | Sequence[str] | None
"""The column of a frame that has the texts, or several, which are joined."""

Kind = Literal["text", "features", "matrix"]

_NUMBERS = frozenset("biuf")  # numpy's letters for types of numbers


class InMemoryInstances(NamedTuple):
    """Instances of one kind: texts, values by feature name, or a matrix in compressed rows."""

    kind: Kind
    rows: list[Any]
    matrix: SparseRows | None

    @property
    def n_rows(self) -> int:
        """Return how many there are."""
        return len(self.rows) if self.matrix is None else self.matrix.n_rows


class _FromMemory(DataFile):
    """What collects rows names the place of a fault by it: a row, from 0."""

    def __init__(self) -> None:
        super().__init__(Path(SOURCE))

    def fault(self, line: int | None, message: str) -> BadData:
        """Return the error that names the row."""
        return BadData(message if line is None else f"row {line}: {message}")


def instances_from_memory(instances: object, n_features: int | None = None) -> InMemoryInstances:
    """Return the instances that a caller gave: strings, mappings, or a matrix, a row each.

    Any iterable of strings or mappings is taken, a column of a data frame too, any matrix that has
    `tocsr`, as scipy's have, and an array of numbers, float[n, features]. `n_features`: a model's,
    which a matrix may not exceed. Raises BadData for what is none of them, BadInstance for a matrix
    with wrong values.
    """
    if is_matrix(instances):
        return InMemoryInstances("matrix", [], _matrix(instances, n_features))
    if isinstance(instances, str | bytes | Mapping) or not isinstance(instances, Iterable):
        expected = "a list of texts, a list of mappings, or a matrix"
        raise BadData(f"instances: expected {expected}, found {type(instances).__name__}")
    rows: list[Any] = list(instances)
    first = rows[0] if rows else ""
    kind: Kind = "features" if isinstance(first, Mapping) else "text"
    for i, row in enumerate(rows):
        if kind == "features" and isinstance(row, Mapping):  # numpy's numbers become Python's
            rows[i] = {
                name: value.item() if hasattr(value, "item") else value
                for name, value in row.items()
            }
        elif kind == "text" and isinstance(row, str):
            try:
                row.encode()
            except UnicodeEncodeError:
                row_kind = "text that UTF-8 has bytes for"
                raise BadData(f"row {i}: expected {row_kind}, found a lone surrogate") from None
        else:
            row_kind = "a mapping as the rows before" if kind == "features" else "a string"
            raise BadData(f"row {i}: expected {row_kind}, found {_described(row)}")
    return InMemoryInstances(kind, rows, None)


def dataset_from_memory(
    instances: object, labels: object, model: NameTable | None = None, n_features: int | None = None
) -> Dataset:
    """Return instances and their labels as `read_dataset` returns those of a file.

    labels  a list of names for each instance, of whole numbers too, or an indicator matrix, sparse
            or an array: each column with a value in a row is a label of that row; its name is the
            column's number, or the model's name of that id. Columns beyond the model's are labels
            that it does not know
    model   the names of an existing model, with n_features

    Raises BadData, naming the row from 0, and BadInstance.
    """
    checked = instances_from_memory(instances, n_features)
    if checked.n_rows == 0:
        raise BadData("instances: expected one at least, found none")
    checked_labels: Any
    unknown = np.zeros(checked.n_rows, np.int32)
    unknown_names = list[str]()
    if is_matrix(labels):
        checked_labels = row_labels = _indicated(labels, checked.n_rows)
        names = [str(i) for i in range(row_labels.n_labels)] if model is None else None
        if model is not None:
            row_labels, unknown, unknown_names = first_labels(row_labels, model.n_names)
    else:
        checked_labels = label_lists(labels, checked.n_rows)
        collector = RowCollector(_FromMemory())
        for number, row in enumerate(checked_labels):
            if checked.kind == "features":
                collector.add_named(number, checked.rows[number], row)
            else:  # rows of a matrix have no text
                collector.add_text(number, checked.rows[number] if checked.rows else "", row)
        collected_rows = collector.finish(model)
        row_labels = collected_rows.labels
        unknown = collected_rows.unknown_labels
        names = collected_rows.label_names
        unknown_names = list(collected_rows.unknown_names)
    return Dataset(
        source=SOURCE,
        sha256=_digest(checked, checked_labels),
        n_rows=checked.n_rows,
        rows=checked.matrix,
        texts=checked.rows if checked.kind == "text" else None,
        named_rows=checked.rows if checked.kind == "features" else None,
        labels=row_labels,
        unknown_labels=unknown,
        label_names=names,
        unknown_names=unknown_names,
    )


def _indicated(labels: object, n_rows: int) -> LabelRows:
    """Return the labels that an indicator matrix says. Raises BadData and BadInstance."""
    matrix = _matrix(labels, None)
    if matrix.n_rows != n_rows:
        raise BadData(
            f"labels: expected {n_rows} rows, as many as instances, found {matrix.n_rows}"
        )
    is_set = matrix.values != 0
    if not hasattr(labels, "tocsr") and (matrix.values[is_set] != 1).any():
        value = matrix.values[is_set & (matrix.values != 1)][0]
        raise BadData(
            "labels: expected an array of 0 and 1, or a list of labels a row, found "
            f"{value:g} in it"
        )
    return LabelRows(offsets(is_set)[matrix.indptr], matrix.indices[is_set], matrix.n_features)


def label_lists(labels: object, n_rows: int) -> list[list[str]]:
    """Return the names of the labels of each of so many rows; a
    whole number is a name. Raises BadData.
    """
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
        expected = "a list of labels for each instance, or an indicator matrix"
        raise BadData(f"labels: expected {expected}, found {type(labels).__name__}")
    rows: list[list[str]] = []
    for i, row in enumerate(labels):
        if isinstance(row, str | bytes | Mapping) or not isinstance(row, Iterable):
            raise BadData(f"labels: row {i}: expected a list of strings, found {_described(row)}")
        names = list(row)
        for name in names:
            if not isinstance(name, str | int | np.integer) or isinstance(name, bool):
                raise BadData(
                    f"labels: row {i}: expected a list of strings, found {_described(name)} in it"
                )
        rows.append([str(name) for name in names])
    if len(rows) != n_rows:
        raise BadData(f"labels: expected {n_rows} rows, as many as instances, found {len(rows)}")
    return rows


def is_matrix(value: Any) -> bool:
    """Tell whether something is a matrix: a sparse one, or an array of numbers."""
    return (
        hasattr(value, "tocsr") or getattr(getattr(value, "dtype", None), "kind", None) in _NUMBERS
    )


def _matrix(matrix: Any, n_columns: int | None) -> SparseRows:
    """Return a matrix as rows, checked and copied. Raises BadData and BadInstance."""
    if not hasattr(matrix, "tocsr"):
        matrix = np.asarray(matrix)
        if matrix.ndim != 2:
            raise BadData(
                f"matrix: expected an array of rows and columns, found {matrix.ndim} dimensions"
            )
        matrix = csr_matrix(matrix)
    rows = matrix.tocsr()
    width = int(rows.shape[1]) if n_columns is None else n_columns
    if not 0 < width <= N_IDS_MAX:
        raise BadData(f"matrix: expected 1 to {N_IDS_MAX} columns, found {width}")
    values = np.asarray(rows.data)
    values = values.astype(np.float32) if values.dtype == np.bool_ else values
    return rows_of_csr(np.asarray(rows.indptr), np.asarray(rows.indices), values, width)


def _digest(checked: InMemoryInstances, labels: object) -> str:
    """Return a digest of instances and labels: the same rows, the same digest."""
    digest = hashlib.sha256()
    for part in (checked.matrix, labels):
        if isinstance(part, SparseRows | LabelRows):
            for array in part[:-1]:
                digest.update(np.ascontiguousarray(array).tobytes())
    lists: Sequence[Any] = labels if isinstance(labels, list) else ()
    for rows in (checked.rows, lists):
        for row in rows:
            digest.update(repr(row).encode() + b"\n")  # which escapes what is no UTF-8
    return digest.hexdigest()


def _described(value: object) -> str:
    """Return a value as a message says it."""
    is_nan = isinstance(value, float) and math.isnan(value)
    # pandas has one of its own
    is_missing = value is None or is_nan or type(value).__name__ == "NAType"
    return f"{type(value).__name__} {value!r:.40}{': a missing value' if is_missing else ''}"


def columns_from_memory(
    instances: Any, labels: Any, text_column: TextColumn, label_column: str | None
) -> tuple[Any, Any]:
    """Return instances and labels as `dataset_from_memory` takes them: columns and series as lists.

    instances     a frame, with text_column, or whatever else `instances_from_memory` takes
    labels        None with label_column: then they are that column of the frame
    text_column   the column of a frame that has the texts, or several, joined by line ends as those
                  of tables
    label_column  the column of a frame that has a list of names in each row

    Raises BadParameter for columns that are named without a frame or not at all, or labels given
    twice; BadData for a frame without them.
    """
    if not _is_frame(instances):
        for name, value in (("text_column", text_column), ("label_column", label_column)):
            if value is not None:
                raise BadParameter(
                    f"{name}: expected a frame with columns, found {type(instances).__name__}"
                )
        return _as_list(instances), _labels(labels)
    if text_column is None or isinstance(text_column, str):
        texts = _column(instances, "text_column", text_column)
    else:
        columns = [_column(instances, "text_column", name) for name in text_column]
        texts = []
        for number, cells in enumerate(zip(*columns, strict=True)):
            for cell in cells:
                if not isinstance(cell, str):
                    raise BadData(f"row {number}: expected a string, found {_described(cell)}")
            texts.append("\n".join(cells))
    if labels is None and label_column is not None:
        return texts, _column(instances, "label_column", label_column)
    if label_column is not None:
        raise BadParameter("label_column: expected labels or a column of the frame, found both")
    return texts, _labels(labels)


def _labels(labels: Any) -> Any:
    """Return labels that stand beside the instances.

    Raises BadData for a frame: a column of it is meant.
    """
    if _is_frame(labels):
        raise BadData(
            f"labels: expected a list, or a column of a frame, found {type(labels).__name__}"
        )
    return _as_list(labels)


def _is_frame(value: Any) -> bool:
    """Tell whether something has named columns. Only attributes are asked for, no values."""
    if isinstance(value, Mapping) or hasattr(value, "tocsr"):
        return False
    return hasattr(type(value), "column_names") or hasattr(type(value), "columns")


def _column(frame: Any, parameter: str, name: str | None) -> list[Any]:
    """Return a column of a frame.

    Raises BadParameter, and BadData with the columns that there are.
    """
    kind = type(frame).__name__
    if not hasattr(frame, "__getitem__") or hasattr(frame, "collect"):
        raise BadData(f"instances: expected a frame whose rows are there, found {kind}: collect it")
    # those of pyarrow's `columns` are values
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    listing = ", ".join(repr(column)[:42] for column in names[:10]) or "none"
    suffix = f" and {len(names) - 10} more" if len(names) > 10 else ""
    if name is None:
        raise BadParameter(
            f"{parameter}: expected the name of a column, for {kind} is a frame, found none: "
            f"there are {listing}{suffix}"
        )
    if names.count(name) != 1:
        raise BadData(
            f"{parameter}: expected one column {name[:80]!r}, found columns {listing}{suffix}"
        )
    return list(_as_list(frame[name]))


def _as_list(values: Any) -> Any:
    """Return a series as a list of Python's values; all else as it is."""
    for method in ("to_list", "to_pylist"):
        if hasattr(values, method):
            return getattr(values, method)()
    return values
