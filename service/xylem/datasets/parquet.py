"""Read the columns of a Parquet file, in batches of a few rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import orjson

from xylem.base import PACKED, BadData, BadParameter, faults_of
from xylem.datasets.stream import LINE_BYTES_MAX, DataFile


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
        """Return the cells of a column of classes as lists of names; other columns unchanged.

        -1 stands for no class. An id without a name stays a number.
        """
        names: dict[int, str | None] = dict(enumerate(self.get(column, ())))
        if not names:
            return cells
        names[-1] = None
        return [
            [names.get(i, i) for i in (cell if isinstance(cell, list) else [cell])]
            for cell in cells
        ]


# How many rows of a Parquet file are read at once; fewer, at least BATCH_ROWS_LEAST, if they may
# be long. A row takes 20 microseconds, 40 if 16 are read at once, 13 if 4,096 are.
BATCH_ROWS = 64
BATCH_ROWS_LEAST = 16

BATCH_BYTES = 1 << 28  # the most bytes of rows read at once, if the file's metadata are true

# A row group is refused if its columns unpack to more than GROUP_BYTES_MAX bytes, and to more
# than GROUP_RATIO_MAX times their size in the file.
GROUP_BYTES_MAX = 1 << 30
GROUP_RATIO_MAX = 16


def check_installed() -> None:
    """Raise BadParameter unless pyarrow, which reads Parquet, is installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BadParameter(
            "reading .parquet files needs pyarrow: pip install 'xylem-serve[data]'"
        ) from None


class ParquetTable:
    """An open Parquet file. Its bytes are read twice: once for the digest, once by pyarrow.

    columns  the names of the columns
    line     None: it has no header
    """

    line = None

    def __init__(self, file: DataFile, *, with_digest: bool = True) -> None:
        """Compute the digest of the file, if requested, and read the names of its columns.

        Raises BadData, and BadParameter if pyarrow is not installed.
        """
        check_installed()
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        if file.path.suffix in PACKED:
            raise file.fault(
                None,
                "expected a name that ends in .parquet, for such a file is compressed within, "
                f"found .parquet{file.path.suffix}",
            )
        for _ in file.blocks() if with_digest else ():
            pass
        self._file = file
        self._faults = (pa.ArrowException, UnicodeDecodeError, *faults_of(file.path))
        try:
            with ExitStack() as stack:
                self._table = ParquetFile(stack.enter_context(file.path.open("rb")))
                self._schema = self._table.schema_arrow
                self._open_file = stack.pop_all()
        except self._faults as error:
            raise self._damage(error) from None
        self.columns: list[str] = list(self._schema.names)
        self._classes = ClassNames(self._schema.metadata)

    def close(self) -> None:
        """Close the file."""
        self._open_file.close()

    def check_types(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        vector: str = "",
        *,
        are_flags: bool = False,
    ) -> None:
        """Raise BadData for a column of another type than expected.

        texts      names of columns, which must hold text
        labels     names of columns, which must hold text, whole numbers, or lists of these
        vector     name of the column that must hold lists of numbers; empty: there is none
        are_flags  whether there are several of them, which may hold any numbers and booleans
        """
        from pyarrow import types

        if vector:
            list_type = self._schema.field(vector).type
            number_type = getattr(list_type, "value_type", list_type)
            is_number = types.is_floating(number_type) or types.is_integer(number_type)
            if number_type is list_type or not is_number:
                raise self._file.fault(
                    None,
                    f"column {vector[:40]!r}: expected lists of numbers, found "
                    f"{str(list_type)[:60]}",
                )

        for name in texts:
            value_type = _value_type(self._schema.field(name).type)
            if not _is_text(value_type):
                raise self._file.fault(
                    None, f"column {name[:40]!r}: expected text, found {str(value_type)[:60]}"
                )
        for name in labels:
            value_type = _value_type(self._schema.field(name).type)
            is_list = (
                types.is_list(value_type)
                or types.is_large_list(value_type)
                or types.is_fixed_size_list(value_type)
            )
            is_flag = types.is_boolean(value_type) or types.is_floating(value_type)
            entry_type = _value_type(value_type.value_type) if is_list else value_type
            is_label = (
                _is_text(entry_type) or types.is_integer(entry_type) or types.is_null(entry_type)
            )
            if not is_label and not (are_flags and is_flag):
                raise self._file.fault(
                    None,
                    f"column {name[:40]!r}: expected text, whole numbers, or lists of these, "
                    f"found {str(value_type)[:60]}",
                )

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of each row, from 1, and its cells in the columns; a null is None.

        Ids of classes that the schema names are lists of names.

        Raises BadData for damage, and for a row whose cells are longer than LINE_BYTES_MAX.
        """
        number = 0
        try:
            for batch in self._batches(list(dict.fromkeys(columns))):
                for cells in zip(
                    *(
                        self._classes.names_in(name, batch.column(name).to_pylist())
                        for name in columns
                    ),
                    strict=True,
                ):
                    number += 1
                    # the length of a list counts too: a list of empty strings may be long
                    if (
                        sum([len(cell) for cell in cells if isinstance(cell, (str, list))])
                        > LINE_BYTES_MAX
                    ):
                        raise self._file.fault(
                            number,
                            f"expected a row of at most {LINE_BYTES_MAX} bytes, found a longer one",
                        )
                    yield number, list(cells)
        except self._faults as error:
            raise self._damage(error) from None

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield batches of a few rows. Raises BadData for a file that was made to fill the memory.

        No cell is longer than its column's data in a row group. But cells that repeat an entry of a
        dictionary, or the cell before them, can make gigabytes of a few kB.
        """
        for number in range(self._table.num_row_groups):
            group = self._table.metadata.row_group(number)
            chunks = [
                chunk
                for chunk in map(group.column, range(group.num_columns))
                if chunk.path_in_schema.startswith(tuple(columns))
            ]
            n_bytes = sum(chunk.total_uncompressed_size for chunk in chunks)
            is_dense = n_bytes > GROUP_RATIO_MAX * sum(
                chunk.total_compressed_size for chunk in chunks
            )
            if is_dense and n_bytes > GROUP_BYTES_MAX:
                raise self._file.fault(
                    None,
                    f"expected row groups that unpack to at most {GROUP_BYTES_MAX} bytes, "
                    f"found one of {n_bytes}: write smaller ones",
                )
            yield from self._table.iter_batches(
                max(
                    1 if is_dense else BATCH_ROWS_LEAST,
                    min(BATCH_ROWS, BATCH_BYTES // max(1, n_bytes)),
                ),
                row_groups=[number],
                columns=columns,
                # threads take more processor time than they save for batches of a few rows
                use_threads=False,
            )

    def _damage(self, error: Exception) -> BadData:
        if isinstance(error, MemoryError):
            raise error
        text = str(error).split("\n", 1)[0][:200]
        return self._file.fault(None, f"expected a whole Parquet file, found damage: {text}")


def _value_type(kind: Any) -> Any:
    """Return the type of a column's values; for a column with a dictionary, that of its entries."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
