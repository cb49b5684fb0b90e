"""Read columns of frames, and fields of mappings, as instances and labels."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from xylem.base import BadData, BadInstance, BadParameter, TableColumns, TextFields
from xylem.datasets import ClassNames
from xylem.python.from_memory import as_list, describe, is_missing

# The column of a frame with the texts, or several, which are joined; None without a frame.
#
# Each may have a weight, as in `--text-column`; so may the keys of mappings.
TextColumn = str | Sequence[str] | None


def fields_of(text_column: TextColumn) -> TextFields:
    """Return the columns that are named, as fields. Raises BadParameter."""
    names = [text_column] if isinstance(text_column, str) else text_column
    return TextFields.of_options(names or ())


def columns_from_memory(
    instances: Any,
    labels: Any,
    text_column: TextColumn,
    label_column: str | None,
    fields: TextFields = TextFields(),
) -> tuple[Any, Any]:
    """Return instances and labels for `dataset_from_memory`: columns and series become lists.

    instances     a frame; mappings from fields to texts; or anything else that
                  `instances_from_memory` takes
    labels        the labels; None with label_column. A frame has a column for each label, of 0
                  and 1, or -1 and 1
    text_column   the columns of a frame, or keys of mappings, that are joined as those of a table
    label_column  the column of a frame with a list of label names in each row
    fields        those of the model that the rows are for, which need not be named

    Raises BadParameter if columns are named but there is neither a frame nor mappings, if there is
    a frame without a column that is named or a field, or if there are both labels and label_column;
    BadData if the frame does not have the columns, or for a value that is no text.
    """
    columns_named = fields_of(text_column)
    if fields:
        TableColumns(texts=columns_named).for_version(fields)
    fields = columns_named or fields
    if fields and _are_mappings(instances):
        return list(_texts_of(instances, fields)), _labels(labels)
    if not _is_frame(instances):
        for name, value in (("text_column", text_column), ("label_column", label_column)):
            if value is not None:
                raise BadParameter(
                    f"{name}: expected a frame with columns, found {type(instances).__name__}"
                )
        return as_list(instances), _labels(labels)
    names: list[str | None] = [*fields.names] or [None]
    columns = [_column(instances, "text_column", name) for name in names]
    texts = []
    for number, cells in enumerate(zip(*columns, strict=True)):
        for cell in cells:
            if not isinstance(cell, str) and (len(fields) < 2 or not is_missing(cell)):
                raise BadData(f"row {number}: expected a string, found {describe(cell)}")
        texts.append(fields.join(None if is_missing(cell) else cell for cell in cells))
    if labels is None and label_column is not None:
        return texts, _column(instances, "label_column", label_column)
    if label_column is not None:
        raise BadParameter("label_column: expected labels or a column of the frame, found both")
    return texts, _labels(labels)


def _are_mappings(instances: Any) -> bool:
    """Return whether instances are a list of mappings, from fields to texts or from features."""
    return (
        isinstance(instances, Sequence)
        and not isinstance(instances, str | bytes)
        and len(instances) > 0
        and isinstance(instances[0], Mapping)
    )


def _texts_of(rows: Iterable[Any], fields: TextFields) -> Iterator[str]:
    """Yield the texts of mappings from fields to texts. Raises BadData, which names the row."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadData(
                f"row {number}: expected a mapping as the rows before, found {describe(row)}"
            )
        try:
            yield fields.text(row)
        except BadInstance as error:
            raise BadData(f"row {number}: {error}") from None


def _labels(labels: Any) -> Any:
    """Return labels, a series as a list, and of a frame the names of the columns with a 1.

    Raises BadData for a frame with other values than 0 and 1, -1 and missing ones.
    """
    if not _is_frame(labels):
        return as_list(labels)
    rows = defaultdict[int, list[str]](list)
    for name in _column_names(labels):
        for number, value in enumerate(_column(labels, "labels", name)):
            is_flag = isinstance(value, int | float | np.number) and value in (-1, 0, 1)
            if not is_flag and not is_missing(value):
                raise BadData(
                    f"labels: row {number}: expected columns of 0 and 1 in a frame of labels, "
                    f"found {describe(value)} in column {name!r:.60}"
                )
            rows[number] += [name] if is_flag and value == 1 else []
    return list(rows.values())


def _is_frame(value: Any) -> bool:
    """Return whether a value has named columns. Its class is inspected, no data are read."""
    has_columns = hasattr(type(value), "column_names") or hasattr(type(value), "columns")
    return has_columns and not isinstance(value, Mapping) and not hasattr(value, "tocsr")


def _column(frame: Any, parameter: str, name: str | None) -> list[Any]:
    """Return the values of a column of a frame.

    parameter  the parameter that names the column, for messages

    Raises BadParameter if no column is named, and BadData if the frame does not have it; both list
    the columns of the frame.
    """
    kind = type(frame).__name__
    if not hasattr(frame, "__getitem__") or hasattr(frame, "collect"):
        raise BadData(f"instances: expected a frame whose rows are there, found {kind}: collect it")
    names = _column_names(frame)
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
    # pyarrow has a schema, Hugging Face's data sets have features that make one
    schema = getattr(
        getattr(frame, "features", frame), "arrow_schema", getattr(frame, "schema", None)
    )
    return list(
        ClassNames(getattr(schema, "metadata", None)).names_in(name, list(as_list(frame[name])))
    )


def _column_names(frame: Any) -> list[str]:
    """Return the names of the columns of a frame; in pyarrow, `columns` has the values."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
