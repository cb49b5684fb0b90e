"""Labelled texts as other tools have them.

Corpora of Annif are a directory of documents with files of subjects beside, or lines of text and
URIs. Files of fastText have a row a line, whose words that begin with `__label__` are its labels.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from xylem.base import BadData
from xylem.datasets.delimited import text_lines
from xylem.datasets.json_lines import TextRow
from xylem.datasets.stream import LINE_BYTES_MAX, DataFile, Progress

DOCUMENT = ".txt"

DIRECTORY = "directory"
"""The kind of a directory of documents."""

_URIS = re.compile(r"\s*(<[^<>\s]+>\s*)*")
_URI_LINE = re.compile(r"<[^<>\s]+>")


class CorpusDirectory(DataFile):
    """A directory of `NAME.txt`, each with `NAME.tsv` or `NAME.key` beside, read as one data file.

    Documents come in the order of their names; what is in directories below, and other files, is
    passed over. `n_without` is how many of those read so far have no file of subjects.
    """

    def __init__(self, path: Path, on_progress: Progress | None = None) -> None:
        """List the documents. Raises BadData for a directory that cannot be read or has none."""
        super().__init__(path, on_progress)
        self.kind = DIRECTORY
        self.n_without = 0
        try:
            file_names = [
                file.name for file in path.iterdir() if file.suffix == DOCUMENT and file.is_file()
            ]
        except OSError as error:
            raise super().fault(
                None, f"expected a directory to read, found: {error.strerror}"
            ) from None
        self.names = sorted(name for name in file_names if not name.startswith("."))
        if not self.names:
            raise super().fault(
                None, f"expected documents named *{DOCUMENT} in the directory, found none"
            )

    def fault(self, line: int | None, message: str) -> BadData:
        """Return the error that names the document of that number."""
        if line is None:
            return super().fault(None, message)
        return BadData(f"{self.path / self.names[line]}: {message}")

    @property
    def warning(self) -> str | None:
        """Say how many of the documents read have no subjects, if any."""
        without = f"{self.n_without} of {len(self.names)} documents have no file of subjects"
        return f"{without}: rows without labels" if self.n_without else None

    def documents(self, *, with_labels: bool = True) -> Iterator[TextRow]:
        """Yield each document; with_labels False: without its labels.

        Raises BadData, naming file and line. Memory: a document and its subjects.
        """
        for number, name in enumerate(self.names):
            text = "\n".join(line for _, line in self._lines(self.path / name)).strip()
            yield TextRow(number, text, self._subjects(self.path / name) if with_labels else [])
            if self._on_progress:
                self._on_progress(number + 1, len(self.names))

    def _subjects(self, document: Path) -> list[str]:
        for suffix, read in (
            (".tsv", _label_of),
            (".key", lambda _file, _number, line: line.strip()),
        ):
            file = document.with_suffix(suffix)
            if file.exists():
                return [
                    read(file, number, line) for number, line in self._lines(file) if line.strip()
                ]
        self.n_without += 1
        return []

    def _lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Yield the lines of a file, by number; the digest goes on. Raises BadData."""
        file = DataFile(path, previous=self)
        size = 0
        for number, line in text_lines(file):
            size += len(line)
            if size > LINE_BYTES_MAX:
                fault = f"expected at most {LINE_BYTES_MAX} characters in a file, found more"
                raise file.fault(number, fault)
            yield number, line
        self._digest = file._digest


def is_corpus(file: Path) -> bool:
    """Tell whether the first line of a .tsv file is a text, a tab
    and URIs in angle brackets, or none.

    The header of a table has names of columns there. Raises BadData.
    """
    _, line = next(text_lines(DataFile(file)), (1, ""))
    text, tab, uris = line.partition("\t")
    return bool(text and tab) and _URIS.fullmatch(uris) is not None


def corpus_lines(file: DataFile) -> Iterator[TextRow]:
    """Yield the rows of a .tsv file of texts and URIs, without a
    header; quotes are part of the text.

    Empty lines are passed over. Raises BadData, naming the line.
    """
    for number, line in text_lines(file):
        if line.strip():
            text, tab, uris = line.partition("\t")
            if not tab or _URIS.fullmatch(uris) is None:
                expected = "expected a text, a tab, and URIs in angle brackets with blanks between"
                raise file.fault(number, f"{expected}, found {(uris if tab else line)[:60]!r}")
            yield TextRow(number, text, uris_in(uris))


def uris_in(cell: str) -> list[str]:
    """Return the URIs in a text, with blanks between, without their angle brackets."""
    return [uri.removeprefix("<").removesuffix(">") for uri in cell.split()]


def _label_of(file: Path, number: int, line: str) -> str:
    """Return the URI in a line of a .tsv file of subjects, else its label. Raises BadData."""
    cells = [cell.strip() for cell in line.split("\t")]
    uris = [cell[1:-1] for cell in cells if _URI_LINE.fullmatch(cell)]
    if len(uris) > 1 or (cells[0].startswith("<") and not uris):
        raise BadData(f"{file}:{number}: expected <URI>, a tab and a label, found {line[:60]!r}")
    return uris[0] if uris else next(cell for cell in cells if cell)


LABEL = "__label__"


def is_fasttext(file: Path) -> bool:
    """Return whether the first line of a .txt file has a label of fastText's. Raises BadData."""
    line, _, _ = next(DataFile(file).lines(), b"").partition(b"\n")
    return any(word.startswith(LABEL.encode()) for word in line.split())


def fasttext_lines(file: DataFile) -> Iterator[TextRow]:
    """Yield the rows; empty lines are passed over. Raises BadData, naming the line.

    A label is what follows LABEL. It may stand anywhere in its line. The other words are the text,
    a blank between each two. A line without labels is a row without labels; fastText leaves it out.
    """
    for number, line in text_lines(file):
        words = line.split()
        if not words:
            continue
        if LABEL in words:
            raise file.fault(number, f"expected the name of a label after {LABEL}, found none")
        labels = [word.removeprefix(LABEL) for word in words if word.startswith(LABEL)]
        yield TextRow(
            number, " ".join(word for word in words if not word.startswith(LABEL)), labels
        )
