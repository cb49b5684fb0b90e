"""Answers of a batch as rows of a Parquet file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import orjson

from xylem.datasets import check_installed

# About how many rows a group of the Parquet file has.
GROUP_ROWS = 1 << 14


@contextmanager
def answer_table(file: BinaryIO) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that writes complete lines of answers as rows of a Parquet file.

    The file is complete when the context ends. Its columns:

    id             the id of the line, as text
    labels, scores  of the prediction; scores are float32, as in the lines
    prediction_id  as in the line
    error          the error of a line that is not valid, as JSON; else null

    Raises BadParameter if pyarrow is missing.
    """
    check_installed()
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    text = pa.string()
    schema = pa.schema(
        {
            "id": text,
            "labels": pa.list_(text),
            "scores": pa.list_(pa.float32()),
            "prediction_id": text,
            "error": text,
        }
    )
    rows: list[dict[str, Any]] = []

    def flush() -> None:
        writer.write_table(pa.Table.from_pylist(rows, schema))
        rows.clear()

    def write(lines: bytes) -> None:
        rows.extend(_row(orjson.loads(line)) for line in lines.splitlines())
        if len(rows) >= GROUP_ROWS:
            flush()

    with ParquetWriter(file, schema, compression="zstd") as writer:
        yield write
        if rows:
            flush()


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
