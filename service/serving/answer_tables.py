"""Answers as a table: rows of a Parquet file, in the place of lines of JSON."""

from typing import Any, BinaryIO, Self

import orjson

from service.datasets.tables import check_installed

GROUP_ROWS = 1 << 14
"""Rows of a group of the file, about."""


class AnswerTable:
    """Takes lines of answers, and writes them as rows: a context, whole at its end.

    id             what the line said, as text
    labels, scores  of a prediction, the scores as float32, as the lines have them
    prediction_id  as the line has it
    error          of a line that cannot be used, as JSON; else null
    """

    def __init__(self, file: BinaryIO) -> None:
        """Begin the file. Raises BadParameter without pyarrow."""
        check_installed()
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        text, floats = pa.string(), pa.float32()
        self._schema = pa.schema(
            {
                "id": text,
                "labels": pa.list_(text),
                "scores": pa.list_(floats),
                "prediction_id": text,
                "error": text,
            }
        )
        self._table = pa.Table
        self._writer = ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, lines: bytes) -> None:
        """Add whole lines."""
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
    identity, fault = answer.get("id"), answer.get("error")
    labels = None if fault else answer["labels"]
    return {
        "id": None if identity is None else str(identity),
        "labels": None if labels is None else [one["label"] for one in labels],
        "scores": None if labels is None else [one["score"] for one in labels],
        "prediction_id": answer.get("prediction_id"),
        "error": None if fault is None else orjson.dumps(fault).decode(),
    }
