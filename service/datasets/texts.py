"""Texts alone, without labels: what `task=text` trains on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from service.base.errors import BadData
from service.datasets.dataset import N_ROWS_MAX
from service.datasets.reader import suffix_of
from service.datasets.stream import DataFile, Progress


class Texts(NamedTuple):
    """The texts of a file, its base name, and the sha256 of its decompressed bytes."""

    texts: list[str]
    source: str
    sha256: str


def read_texts(path: Path, on_progress: Progress | None = None) -> Texts:
    """Return the `text` of each line of a .jsonl or .ndjson file (also .gz).

    Other keys and empty lines are passed over. Raises BadData, naming the line.
    """
    check_texts(path)
    file = DataFile(path, on_progress)
    texts = [text for block in text_blocks(file) for text in block]
    if not 0 < len(texts) < N_ROWS_MAX:
        raise file.fault(1, f"expected from 1 to {N_ROWS_MAX} rows, found {len(texts)}")
    return Texts(texts, file.path.name, file.sha256)


def check_texts(path: Path) -> None:
    """Raise BadData unless a file is named as one of texts."""
    if suffix_of(path) not in (".jsonl", ".ndjson"):
        raise BadData(f"{path}: expected a .jsonl file of texts, found {path.name!r}")


def text_blocks(file: DataFile) -> Iterator[list[str]]:
    """Yield the texts of a file, those of a block of it at a time, as `read_texts` reads them."""
    for block in file.lines():
        lines = enumerate(block.split(b"\n"), file.line)
        yield [_text_of(file, number, line) for number, line in lines if line and line != b"\r"]


def _text_of(file: DataFile, number: int, line: bytes) -> str:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        message = f"expected a JSON object, found {error.msg} at byte {error.pos}"
        raise file.fault(number, message) from error
    text = found.get("text") if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise file.fault(number, "expected an object with a string `text`, found none")
    return text
