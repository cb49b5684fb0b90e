"""Answers of a batch as rows of a Parquet file."""

from typing import Any, BinaryIO, Self

import orjson

from xylem.datasets import check_installed

GROUP_ROWS = 1 << 14
"""About how many rows a group of the Parquet file has."""


class AnswerTable:
    """Writes lines of answers as rows of a Parquet file: a context manager.

    The file is complete when the context ends. Its columns:

    id             the id of the line, as text
    labels, scores  of the prediction; scores are float32, as in the lines
    prediction_id  as in the line
    error          the error of a line that is not valid, as JSON; else null
    """

    def __init__(self, file: BinaryIO) -> None:
        """Begin the file. Raises BadParameter if pyarrow is missing."""
        check_installed()
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        text = pa.string()
        self._schema = pa.schema(
            {
                "id": text,
                "labels": pa.list_(text),
                "scores": pa.list_(pa.float32()),
                "prediction_id": text,
                "error": text,
            }
        )
        self._table = pa.Table
        self._writer = ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, lines: bytes) -> None:
        """Add complete lines."""
        self._rows += [_row(orjson.loads(line)) for line in lines.splitlines()]
        if len(self._rows) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._rows, self._schema))
        self._rows.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._rows:
            self._flush()
        self._writer.close()


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    identity = answer.get("id")
    fault = answer.get("error")
    labels = None if fault else answer["labels"]
    return {
        "id": None if identity is None else str(identity),
        "labels": None if labels is None else [label["label"] for label in labels],
        "scores": None if labels is None else [label["score"] for label in labels],
        "prediction_id": answer.get("prediction_id"),
        "error": None if fault is None else orjson.dumps(fault).decode(),
    }
