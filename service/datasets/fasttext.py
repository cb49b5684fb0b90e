"""fastText's files of labelled texts: a row a line; its words that begin with `__label__` are its labels."""

from collections.abc import Iterator
from pathlib import Path

from service.datasets.delimited import text_lines
from service.datasets.json_lines import TextRow
from service.datasets.stream import DataFile

LABEL = "__label__"


def is_fasttext(file: Path) -> bool:
    """Return whether the first line of a .txt file has a label of fastText's. Raises BadData."""
    line, _, _ = next(DataFile(file).lines(), b"").partition(b"\n")
    return any(word.startswith(LABEL.encode()) for word in line.split())


def fasttext_lines(file: DataFile) -> Iterator[TextRow]:
    """Yield the rows; empty lines are passed over. Raises BadData, naming the line.

    A label is what follows LABEL. It may stand anywhere in its line. The other words are the text, a blank
    between each two. A line without labels is a row without labels; fastText leaves it out.
    """
    for number, line in text_lines(file):
        words = line.split()
        if not words:
            continue
        if LABEL in words:
            raise file.fault(number, f"expected the name of a label after {LABEL}, found none")
        labels = [word.removeprefix(LABEL) for word in words if word.startswith(LABEL)]
        yield TextRow(number, " ".join(word for word in words if not word.startswith(LABEL)), labels)
