"""Columns of frames as lists: of pandas, polars, pyarrow and Hugging Face, none of them imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.base.errors import BadData, BadParameter

_SHOWN_MAX = 10


def columns_from_memory(
    instances: Any, labels: Any, text_column: str | None, label_column: str | None
) -> tuple[Any, Any]:
    """Return instances and labels as `dataset_from_memory` takes them: columns and series as lists.

    instances     a frame, with text_column, or whatever else `instances_from_memory` takes
    labels        None with label_column: then they are that column of the frame
    text_column   the column of a frame that has the texts
    label_column  the column of a frame that has a list of names in each row

    Raises BadParameter for columns that are named without a frame or not at all, or labels given twice;
    BadData for a frame without them.
    """
    if not _is_frame(instances):
        for name, value in (("text_column", text_column), ("label_column", label_column)):
            if value is not None:
                raise BadParameter(f"{name}: expected a frame with columns, found {type(instances).__name__}")
        return _listed(instances), _labels(labels)
    texts = _column(instances, "text_column", text_column)
    if labels is None and label_column is not None:
        return texts, _column(instances, "label_column", label_column)
    if label_column is not None:
        raise BadParameter("label_column: expected labels or a column of the frame, found both")
    return texts, _labels(labels)


def _labels(labels: Any) -> Any:
    """Return labels that stand beside the instances. Raises BadData for a frame: a column of it is meant."""
    if _is_frame(labels):
        raise BadData(f"labels: expected a list, or a column of a frame, found {type(labels).__name__}")
    return _listed(labels)


def _is_frame(value: Any) -> bool:
    """Tell whether something has named columns. Only attributes are asked for, no values."""
    if isinstance(value, Mapping) or hasattr(value, "tocsr"):
        return False
    return hasattr(type(value), "column_names") or hasattr(type(value), "columns")


def _column(frame: Any, parameter: str, name: str | None) -> list[Any]:
    """Return a column of a frame. Raises BadParameter, and BadData with the columns that there are."""
    kind = type(frame).__name__
    if not hasattr(frame, "__getitem__") or hasattr(frame, "collect"):
        raise BadData(f"instances: expected a frame whose rows are there, found {kind}: collect it")
    # those of pyarrow's `columns` are values
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    shown = ", ".join(repr(column)[:42] for column in names[:_SHOWN_MAX]) or "none"
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    if name is None:
        raise BadParameter(
            f"{parameter}: expected the name of a column, for {kind} is a frame, found none: "
            f"there are {shown}{more}"
        )
    if names.count(name) != 1:
        raise BadData(f"{parameter}: expected one column {name[:80]!r}, found columns {shown}{more}")
    return list(_listed(frame[name]))


def _listed(values: Any) -> Any:
    """Return a series as a list of Python's values; all else as it is."""
    for method in ("to_list", "to_pylist"):
        if hasattr(values, method):
            return getattr(values, method)()
    return values
