"""Rows of Parquet files, by pyarrow: the extra `data`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from service.base.errors import BadData, BadParameter
from service.datasets.stream import LINE_BYTES_MAX, DataFile

BATCH_ROWS = 4096
"""Rows read at once."""

EXTRA = "pip install 'xylem-serve[data]'"
"""What installs the reader."""


def check_installed() -> None:
    """Raise BadParameter unless the reader of Parquet is installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BadParameter(f"expected pyarrow, which reads .parquet files, found none: {EXTRA}") from None


class ParquetTable:
    """The columns of a Parquet file; the file's bytes are read once more, for its digest."""

    def __init__(self, file: DataFile) -> None:
        """Read the digest and the names of the columns. Raises BadData, and BadParameter without pyarrow."""
        check_installed()
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        if file.path.suffix == ".gz":
            fault = "expected a name that ends in .parquet, for such a file is compressed within"
            raise file.fault(None, f"{fault}, found .parquet.gz")
        for _ in file.blocks():
            pass
        self._file = file
        self._faults: tuple[type[Exception], ...] = (pa.ArrowException, OSError, UnicodeDecodeError)
        try:
            self._table = ParquetFile(file.path)
            self._schema = self._table.schema_arrow
        except self._faults as error:
            raise self._damage(error) from None
        self.columns: list[str] = list(self._schema.names)

    def close(self) -> None:
        """Close the file."""
        self._table.close()

    def check_types(self, texts: Sequence[str], labels: str | None) -> None:
        """Raise BadData unless the columns hold text, and labels: text, whole numbers, or lists of text."""
        for name in texts:
            found = _value_type(self._schema.field(name).type)
            if not _is_text(found):
                raise self._file.fault(None, f"column {name[:40]!r}: expected text, found {str(found)[:60]}")
        if labels is not None:
            found = _value_type(self._schema.field(labels).type)
            if not _is_label(found):
                expected = "expected text, whole numbers, or lists of text"
                fault = f"column {labels[:40]!r}: {expected}, found {str(found)[:60]}"
                raise self._file.fault(None, fault)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of each row, from 1, and its cells in some columns: None where there is nothing.

        Raises BadData for damage, and for a cell of more than LINE_BYTES_MAX bytes.
        """
        number = 0
        try:
            for batch in self._table.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(columns))):
                for cells in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    number += 1
                    self._check_size(number, cells)
                    yield number, list(cells)
        except self._faults as error:
            raise self._damage(error) from None

    def _check_size(self, number: int, cells: Sequence[Any]) -> None:
        # a list of labels may be longer than all its strings together
        if sum(len(cell) for cell in cells if isinstance(cell, str | list)) > LINE_BYTES_MAX:
            fault = f"expected a row of at most {LINE_BYTES_MAX} bytes, found a longer one"
            raise self._file.fault(number, fault)

    def _damage(self, error: Exception) -> BadData:
        text = str(error).split("\n", 1)[0][:200]
        return self._file.fault(None, f"expected a whole Parquet file, found damage: {text}")


def _value_type(kind: Any) -> Any:
    """Return the type of a column's values: of a dictionary that of what it encodes."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    view = getattr(pa.types, "is_string_view", None)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or (view and view(kind)))


def _is_label(kind: Any) -> bool:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    is_whole = pa.types.is_integer(kind) or pa.types.is_null(kind)
    return _is_text(kind) or is_whole or (is_list and _is_text(_value_type(kind.value_type)))
