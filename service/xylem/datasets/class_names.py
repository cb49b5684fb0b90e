"""Names of classes that a schema of Arrow has for the ids in its columns."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson


class ClassNames(dict[str, list[str]]):
    """The names of classes by column, in the order of their ids.

    Hugging Face's libraries write them into the metadata of a schema, and of Parquet: columns with
    the feature `ClassLabel`, or lists of it.
    """

    def __init__(self, metadata: Mapping[bytes, bytes] | None) -> None:
        """Read the metadata; what has another form names no classes."""
        super().__init__()
        with suppress(ValueError, TypeError, LookupError, AttributeError):
            description = orjson.loads((metadata or {})[b"huggingface"])
            for column, feature in description["info"]["features"].items():
                entry = feature[0] if isinstance(feature, list) else feature.get("feature", feature)
                if entry.get("_type") == "ClassLabel":
                    self[column] = entry["names"]

    def names_in(self, column: str, cells: Sequence[Any]) -> Sequence[Any]:
        """Return cells of a column as lists of names; those of another column unchanged.

        -1 is no class. An id without a name stays as it is.
        """
        names: dict[int, str | None] = dict(enumerate(self.get(column, ())))
        if not names:
            return cells
        names[-1] = None
        lists = (cell if isinstance(cell, list) else [cell] for cell in cells)
        return [[names.get(i, i) for i in ids] for ids in lists]
