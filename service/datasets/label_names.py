"""The names file of numeric formats: line i + 1 is the name of label i."""

from __future__ import annotations

from pathlib import Path

from model_store.errors import BadNames
from model_store.names import build_names
from service.datasets.stream import DataFile


def read_label_names(path: Path) -> list[str]:
    """Return the names in `path` (also .gz), in the order of its lines.

    Raises BadData, naming the line, for one that is empty, not UTF-8, repeated, too long or has control
    characters; and for an empty file.
    """
    file = DataFile(path)
    names: list[str] = []
    for block in file.lines():
        for line in block.removesuffix(b"\n").split(b"\n"):
            try:
                names.append(line.removesuffix(b"\r").decode())
            except UnicodeDecodeError as error:
                raise file.fault(
                    len(names) + 1, f"expected UTF-8, found other bytes: {error.reason}"
                ) from error
    if not names:
        raise file.fault(None, "expected the names of labels, found an empty file")
    try:
        build_names(names)
    except BadNames as error:
        raise file.fault(None if error.index is None else error.index + 1, error.fault) from error
    return names
