"""A table as lines of JSON, `{"text": ...}` each, with `labels` or without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from service.base.columns import TableColumns
from service.base.errors import BadData
from service.datasets.stream import DataFile
from service.datasets.tables import table_rows


class TableLines:
    """The texts of a table, read as a file of bytes is: a context, closed at its end.

    n_bytes  of the file; `tell` says how many of them are read
    """

    def __init__(self, path: Path, columns: TableColumns, *, with_labels: bool = False) -> None:
        """Read nothing yet. Raises BadData for a file that is not there."""
        try:
            self.n_bytes = path.stat().st_size
        except OSError as error:
            raise BadData(f"{path}: expected a file that can be read, found {error.strerror}") from None
        self._place = 0
        self._rows = table_rows(DataFile(path, self._move), columns, with_labels=with_labels)
        self._with_labels = with_labels
        self._lines = self._encoded()

    def read1(self, n_bytes: int) -> bytes:
        """Return whole lines, of n_bytes or a row more; none at the end. Raises what `table_rows` does."""
        pieces: list[bytes] = []
        size = 0
        for line in self._lines:
            pieces.append(line)
            size += len(line)
            if size >= n_bytes:
                break
        return b"".join(pieces)

    def readline(self) -> bytes:
        """Return the next line; none at the end. Raises what `table_rows` does."""
        return next(self._lines, b"")

    def tell(self) -> int:
        """Return how many bytes of the file are read."""
        return self._place

    def _move(self, done: int, total: int) -> None:
        self._place = done

    def _encoded(self) -> Iterator[bytes]:
        for row in self._rows:
            labels = {"labels": row.labels} if self._with_labels else {}
            yield orjson.dumps({"text": row.text, **labels}) + b"\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()
