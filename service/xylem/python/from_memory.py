"""Turn instances and labels in memory into a data set."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xylem.base import (
    BadData,
    BadInstance,
    Dataset,
    LabelRows,
    SparseRows,
    TextFields,
    checked_vectors,
    offsets,
)
from xylem.datasets import N_IDS_MAX, dataset_in_memory
from xylem.engine import rows_of_csr
from xylem_store import F32, NameTable

Kind = Literal["text", "features", "matrix"]

_NUMBERS = frozenset("biuf")  # numpy's letters for types of numbers


class InMemoryInstances(NamedTuple):
    """Instances of one kind: texts, values by feature name, or a matrix in compressed rows."""

    kind: Kind
    rows: list[Any]
    matrix: SparseRows | None

    @property
    def n_rows(self) -> int:
        """Return the number of instances."""
        return len(self.rows) if self.matrix is None else self.matrix.n_rows


def instances_from_memory(instances: object, n_features: int | None = None) -> InMemoryInstances:
    """Check instances: strings, mappings, or a matrix with a row for each instance.

    instances   an iterable of strings or of mappings, as a column of a data frame; a matrix with
                `tocsr`, as those of scipy have; or an array of numbers, float[n, features]
    n_features  the number of features of a model, which a matrix may not exceed; None: any number

    Raises BadData for other instances, BadInstance for a matrix with wrong values.
    """
    if is_matrix(instances):
        return InMemoryInstances("matrix", [], _matrix(instances, n_features))
    if isinstance(instances, str | bytes | Mapping) or not isinstance(instances, Iterable):
        raise BadData(
            "instances: expected a list of texts, a list of mappings, or a matrix, "
            f"found {type(instances).__name__}"
        )
    rows: list[Any] = list(instances)
    kind: Kind = "features" if rows and isinstance(rows[0], Mapping) else "text"
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
                raise BadData(
                    f"row {i}: expected text that UTF-8 has bytes for, found a lone surrogate"
                ) from None
        else:
            raise BadData(
                f"row {i}: expected "
                f"{'a mapping as the rows before' if kind == 'features' else 'a string'}, "
                f"found {describe(row)}"
            )
    return InMemoryInstances(kind, rows, None)


def dataset_from_memory(
    instances: object,
    labels: object,
    model: NameTable | None = None,
    n_features: int | None = None,
    fields: TextFields = TextFields(),
    vectors: object = None,
    sample_weight: object = None,
) -> Dataset:
    """Return instances and their labels as `read_dataset` returns those of a file.

    labels      a list of names or whole numbers for each instance, or a mapping from these to
                their weights; or an indicator matrix, sparse
                or an array, in which a value in a row and a column gives the row that label. The
                label's name is the number of the column, or the model's name of that id. Columns
                beyond the model's are labels that it does not know. Lists are such a matrix, too,
                if all have one length of 2 or more, and only 0 and 1, or -1 and 1. A missing value
                is no label
    model       the label names of an existing model
    n_features  the number of features of that model
    fields      the fields that texts were joined of
    vectors     a matrix of floats with a row for each text; None: there are no vectors
    sample_weight  the weight of each instance, None: all are 1; one of weight 0 is left out

    Raises BadData, which names the row, from 0, and BadInstance.
    """
    checked = instances_from_memory(instances, n_features)
    if checked.n_rows == 0:
        raise BadData("instances: expected one at least, found none")
    labels = _indicators_of(labels)
    checked_labels: LabelRows | list[Any] = (
        _indicator_labels(labels, checked.n_rows)
        if is_matrix(labels)
        else label_lists(labels, checked.n_rows, with_weights=True)
    )
    dataset = dataset_in_memory(
        checked_labels,
        model,
        checked.rows if checked.kind == "text" else None,
        checked.rows if checked.kind == "features" else None,
    )
    vector_rows = vectors_from_memory(vectors, checked)
    dataset = replace(
        dataset,
        sha256=_digest(checked, checked_labels, vector_rows),
        rows=checked.matrix,
        vectors=vector_rows,
        fields=fields,
    )
    return dataset if sample_weight is None else weighed_rows(dataset, sample_weight)


def vectors_from_memory(vectors: Any, instances: InMemoryInstances) -> F32 | None:
    """Return the vectors beside texts, None if there are none. Raises BadData."""
    if vectors is None:
        return None
    if instances.kind != "text":
        raise BadData(f"vectors: expected texts beside vectors, found {instances.kind}")
    try:
        return checked_vectors(np.asarray(vectors), "vectors", instances.n_rows)
    except ValueError:  # numpy cannot make a matrix of such rows
        raise BadData(
            "vectors: expected one length for all rows, found several, or a row without a vector"
        ) from None


_INDICATORS = (frozenset([0, 1]), frozenset([-1, 1]))


def _indicators_of(labels: Any) -> Any:
    """Return lists of 0 and 1, or -1 and 1, as a matrix, and any other labels unchanged."""
    if is_matrix(labels) or isinstance(labels, str | bytes | Mapping):
        return labels
    rows = list(labels) if isinstance(labels, Iterable) else []
    lengths = {len(row) if isinstance(row, Sequence | np.ndarray) else 0 for row in rows}
    if len(lengths) != 1 or max(lengths) < 2:
        return rows or labels
    try:
        values = {value for row in rows for value in row if not is_missing(value)}
    except TypeError:  # a value that cannot be in a set is no number
        return rows
    if any(isinstance(value, str) for value in values) or values not in _INDICATORS:
        return rows
    return np.array([[0 if is_missing(value) else value for value in row] for row in rows], int)


def _indicator_labels(labels: object, n_rows: int) -> LabelRows:
    """Return the labels in an indicator matrix. Raises BadData and BadInstance."""
    matrix = _matrix(labels, None, "labels")
    if matrix.n_rows != n_rows:
        raise BadData(
            f"labels: expected {n_rows} rows, as many as instances, found {matrix.n_rows}"
        )
    is_set = matrix.values != 0
    if not hasattr(labels, "tocsr"):
        is_set = matrix.values == 1
        wrong_values = matrix.values[~np.isin(matrix.values, (-1, 0, 1))]
        if len(wrong_values):
            raise BadData(
                "labels: expected an array of 0 and 1, or a list of labels a row, "
                f"found {wrong_values[0]:g} in it"
            )
    return LabelRows(offsets(is_set)[matrix.indptr], matrix.indices[is_set], matrix.n_features)


_ONE_LABEL = ": write [[3], [1]] for one label a row"


def label_lists(labels: object, n_rows: int, *, with_weights: bool = False) -> list[Any]:
    """Return the label names of each of `n_rows` rows; whole numbers become names.

    with_weights  whether a row may be a mapping from labels to weights; it stays a mapping

    Raises BadData.
    """
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
        raise BadData(
            "labels: expected a list of labels for each instance, or an indicator matrix, "
            f"found {type(labels).__name__}"
        )
    rows: list[Any] = []
    for i, row in enumerate(labels):
        if is_missing(row):
            rows.append([])
            continue
        is_weighed = with_weights and isinstance(row, Mapping)
        is_list = isinstance(row, Iterable) and not isinstance(row, str | bytes | Mapping)
        if not is_list and not is_weighed:
            hint = _ONE_LABEL if isinstance(row, int | float) else ""
            raise BadData(
                f"labels: row {i}: expected a list of strings, found {describe(row)}{hint}"
            )
        names = [name for name in row if not is_missing(name)]
        for name in names:
            if not isinstance(name, str | int | np.integer) or isinstance(name, bool):
                raise BadData(
                    f"labels: row {i}: expected a list of strings, found {describe(name)} in it"
                )
        rows.append({str(name): row[name] for name in names} if is_weighed else [*map(str, names)])
    if len(rows) != n_rows:
        raise BadData(f"labels: expected {n_rows} rows, as many as instances, found {len(rows)}")
    return rows


def is_matrix(value: Any) -> bool:
    """Return whether a value is a matrix: a sparse one, or an array of numbers."""
    return (
        hasattr(value, "tocsr") or getattr(getattr(value, "dtype", None), "kind", None) in _NUMBERS
    )


def _matrix(matrix: Any, n_columns: int | None, name: str = "matrix") -> SparseRows:
    """Check and copy a matrix. Raises BadData and BadInstance.

    n_columns  the number of columns, which the matrix may not exceed; None: that of the matrix
    name       what messages call it
    """
    if not hasattr(matrix, "tocsr"):
        matrix = np.asarray(matrix)
        if matrix.ndim != 2:
            raise BadData(
                f"{name}: expected an array of rows and columns, found {matrix.ndim} dimensions"
                f"{_ONE_LABEL if name == 'labels' else ''}"
            )
        matrix = csr_matrix(matrix)
    rows = matrix.tocsr()
    width = int(rows.shape[1]) if n_columns is None else n_columns
    if not 0 < width <= N_IDS_MAX:
        raise BadData(f"{name}: expected 1 to {N_IDS_MAX} columns, found {width}")
    values = np.asarray(rows.data)
    values = values.astype(np.float32) if values.dtype == np.bool_ else values
    indptr = np.asarray(rows.indptr)
    indices = np.asarray(rows.indices)
    are_compared = values.dtype.kind == "f" and len(indices) == len(values)
    faults = np.flatnonzero(~np.isfinite(values)) if are_compared else np.empty(0, np.int64)
    if len(faults):
        row = np.searchsorted(indptr, faults[0], "right") - 1
        raise BadData(
            f"{name}: row {row}, column {indices[faults[0]]}"
            f": expected a finite number, found {values[faults[0]]}"
        )
    with naming_row():
        return rows_of_csr(indptr, indices, values, width)


@contextmanager
def naming_row() -> Iterator[None]:
    """Put the row, from 0, in front of the message of a BadInstance that the block raises."""
    try:
        yield
    except BadInstance as error:
        place = re.fullmatch(r"instances\[(\d+)\]", error.path or "")
        raise BadInstance(f"row {place[1]}: {error}") if place else error from None


def _digest(checked: InMemoryInstances, labels: object, vectors: F32 | None) -> str:
    """Return a digest of instances, labels and vectors; equal rows have equal digests."""
    digest = hashlib.sha256()
    label_arrays = labels[:2] if isinstance(labels, LabelRows) else ()
    for array in (*(checked.matrix or ())[:3], *label_arrays, vectors):
        if array is not None:
            digest.update(np.ascontiguousarray(array).tobytes())
    for row in chain(checked.rows, labels if isinstance(labels, list) else ()):
        digest.update(repr(row).encode() + b"\n")  # `repr` escapes lone surrogates
    return digest.hexdigest()


def describe(value: object) -> str:
    """Describe a value for a message: its type, the value, and whether it is a missing one."""
    note = ": a missing value" if is_missing(value) else ""
    return f"{type(value).__name__} {value!r:.40}{note}"


def as_list(values: Any) -> Any:
    """Return a series as a list of Python's values, and any other value unchanged."""
    for method in ("to_list", "to_pylist"):
        if hasattr(values, method):
            return getattr(values, method)()
    return values


def is_missing(value: object) -> bool:
    """Return whether a value is None, a NaN, or the missing value of pandas, which has a class."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ == "NAType"
    )


def weighed_rows(dataset: Dataset, sample_weight: Any) -> Dataset:
    """Return rows with these weights, without those of weight 0. Raises BadData."""
    values = (
        list(as_list(sample_weight))
        if isinstance(sample_weight, Iterable) and not isinstance(sample_weight, Mapping)
        else [sample_weight]
    )
    if len(values) != dataset.n_rows:
        raise BadData(
            f"sample_weight: expected {dataset.n_rows} weights, as many as instances, found "
            f"{len(values)}"
        )
    weights = np.empty(len(values), np.float32)
    for row, value in enumerate(values):
        try:
            weights[row] = LabelRows.weight_of(value)
        except ValueError as error:
            raise BadData(f"sample_weight: row {row}: {error}") from None
    if not weights.any():
        raise BadData("sample_weight: expected a weight above 0, found 0 in all rows")
    labels = dataset.labels.weighed(
        weights, dataset.labels.weights and dataset.labels.weights.labels
    )
    return replace(
        dataset,
        labels=labels,
        sha256=hashlib.sha256(dataset.sha256.encode() + weights.tobytes()).hexdigest(),
    ).with_weight()
