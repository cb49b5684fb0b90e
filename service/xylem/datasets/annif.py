"""Read labelled texts in the formats of Annif and fastText.

A corpus of Annif is a directory of documents, each with a file of its subjects, or a file with a
text and URIs in each line. A file of fastText has one row in each line; the words that begin with
`__label__` are its labels.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from xylem.base import BadData, what_is
from xylem.datasets.delimited import text_lines
from xylem.datasets.json_lines import TextRow, json_object
from xylem.datasets.label_names import subject_labels
from xylem.datasets.stream import FASTTEXT_LABEL, LINE_BYTES_MAX, DataFile, Progress

# The suffixes of documents in a directory.
DOCUMENT = ".txt"
JSON_DOCUMENT = ".json"
DOCUMENTS = (DOCUMENT, JSON_DOCUMENT)

DIRECTORY = "directory"  # the `kind` of a directory of documents; that of a file is its suffix

_URIS = re.compile(r"\s*(<[^<>\s]+>\s*|[a-z]+://[^<>\s]+(\s+|$))*")
_URI_LINE = re.compile(r"<[^<>\s]+>")


class CorpusDirectory(DataFile):
    """A directory of documents that is read as one data file.

    A document is `NAME.txt`, with subjects in `NAME.tsv` or `NAME.key`; or `NAME.json`, an object
    with `text` and `subjects`. Documents come in the order of their names. Subdirectories and other
    files are ignored. `n_without` counts the documents read so far that have no subjects.
    """

    def __init__(self, path: Path, on_progress: Progress | None = None) -> None:
        """List the documents.

        Raises BadData for a directory that cannot be read or has no document.
        """
        super().__init__(path, on_progress)
        self.kind = DIRECTORY
        self.n_without = 0
        try:
            self.names = sorted(
                file.name
                for file in path.iterdir()
                if file.suffix in DOCUMENTS and not file.name.startswith(".") and file.is_file()
            )
        except OSError as error:
            raise super().fault(
                None, f"expected a directory to read, found: {error.strerror}"
            ) from None
        if not self.names:
            raise super().fault(
                None,
                f"expected documents named *{', *'.join(DOCUMENTS)} in the directory, found none",
            )

    def fault(self, line: int | None, message: str) -> BadData:
        """Return an error that names the document of index `line`, or the directory if None."""
        return (
            super().fault(None, message)
            if line is None
            else BadData(f"{self.path / self.names[line]}: {message}")
        )

    @property
    def warning(self) -> str | None:
        """Return how many of the documents read have no subjects; None if all have some."""
        return (
            f"{self.n_without} of {len(self.names)} documents have no subjects: rows without labels"
            if self.n_without
            else None
        )

    def documents(self, *, with_labels: bool = True) -> Iterator[TextRow]:
        """Yield each document, with its labels unless `with_labels` is False.

        Raises BadData, which names the file and the line. Memory: one document and its subjects.
        """
        for number, name in enumerate(self.names):
            path = self.path / name
            text = "\n".join(line for _, line in self._lines(path)).strip()
            if path.suffix == JSON_DOCUMENT:
                yield self._json_row(number, text, with_labels=with_labels)
            else:
                yield TextRow(number, text, self._subjects(path) if with_labels else [])
            if self._on_progress:
                self._on_progress(number + 1, len(self.names))

    def _json_row(self, number: int, content: str, *, with_labels: bool) -> TextRow:
        document = json_object(self, number, content.encode())
        text = document.get("text")
        if not isinstance(text, str):
            raise self.fault(number, f"expected a string as `text`, found {what_is(text)}")
        self.n_without += "subjects" not in document
        return TextRow(
            number,
            text,
            subject_labels(self, number, document.get("subjects", []) if with_labels else []),
        )

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
        """Yield the number and the text of each line of a file, and add its bytes to the digest.

        Raises BadData.
        """
        file = DataFile(path, previous=self)
        size = 0
        for number, line in text_lines(file):
            size += len(line)
            if size > LINE_BYTES_MAX:
                raise file.fault(
                    number, f"expected at most {LINE_BYTES_MAX} characters in a file, found more"
                )
            yield number, line
        self._digest = file._digest


def is_corpus(file: DataFile) -> bool:
    """Return whether a .tsv file is a corpus of Annif, by its first line.

    That line has a text, a tab and URIs, in angle brackets or bare, perhaps none. In a table it is
    a header with the names of columns. Raises BadData.
    """
    _, line = next(text_lines(file.again()), (1, ""))
    text, tab, uris = line.partition("\t")
    return bool(text and tab) and _URIS.fullmatch(uris) is not None


def corpus_lines(file: DataFile) -> Iterator[TextRow]:
    """Yield the rows of a .tsv file that has a text and URIs in each line, and no header.

    Quotes are part of the text. Empty lines are ignored. Raises BadData, which names the line.
    """
    for number, line in text_lines(file):
        if line.strip():
            text, tab, uris = line.partition("\t")
            if not tab or _URIS.fullmatch(uris) is None:
                raise file.fault(
                    number,
                    "expected a text, a tab, and URIs with blanks between, "
                    f"found {(uris if tab else line)[:60]!r}",
                )
            yield TextRow(number, text, uris_in(uris))


def uris_in(cell: str) -> list[str]:
    """Return the URIs in a text, which blanks separate, without their angle brackets."""
    return [uri.removeprefix("<").removesuffix(">") for uri in cell.split()]


def _label_of(file: Path, number: int, line: str) -> str:
    """Return the URI in a line of a .tsv file of subjects, or the label if there is no URI.

    Raises BadData.
    """
    cells = [cell.strip() for cell in line.split("\t")]
    uris = [cell[1:-1] for cell in cells if _URI_LINE.fullmatch(cell)]
    if len(uris) > 1 or (cells[0].startswith("<") and not uris):
        raise BadData(f"{file}:{number}: expected <URI>, a tab and a label, found {line[:60]!r}")
    return uris[0] if uris else next(cell for cell in cells if cell)


def fasttext_lines(file: DataFile) -> Iterator[TextRow]:
    """Yield the rows of a file of fastText. Raises BadData, which names the line.

    A word that begins with FASTTEXT_LABEL names a label, wherever it stands in the line. The other
    words, joined by single blanks, are the text. Blanks are those of ASCII, as in fastText: a
    no-break space is part of a word. Empty lines are ignored. A line without labels is a row
    without labels; fastText itself ignores such a line.
    """
    mark = FASTTEXT_LABEL.encode()
    for number, line in text_lines(file):
        words = line.encode().split()  # `str.split` also divides at other blanks
        if not words:
            continue
        if mark in words:
            raise file.fault(
                number, f"expected the name of a label after {FASTTEXT_LABEL}, found none"
            )
        yield TextRow(
            number,
            b" ".join(word for word in words if not word.startswith(mark)).decode(),
            [word.removeprefix(mark).decode() for word in words if word.startswith(mark)],
        )
