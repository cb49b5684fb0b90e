"""Read the subjects of a vocabulary: from a table, or from the concepts of SKOS in RDF.

The suffix of the file's name tells the format. RDF is read by an optional part of the package.
"""

from collections.abc import Iterator
from typing import NamedTuple

from xylem.base import load_extra
from xylem.datasets.delimited import DELIMITERS, delimited_rows, text_lines
from xylem.datasets.stream import DataFile
from xylem_store import NAME, NOTATION, UNDETERMINED, URI, Subject, is_language

_LABEL_COLUMN = "label_"  # prefix of the columns with the names in one language, as label_fi


class SubjectList(NamedTuple):
    """The subjects of a file in its order, and the line of each; `lines` is empty for RDF."""

    subjects: list[Subject]
    lines: list[int]


def read_subject_table(file: DataFile, language: str | None) -> SubjectList:
    """Read the subjects of a .tsv or .csv file.

    language  the language of the names in a .tsv file; None: it is not known

    A line of a .tsv file has `<URI>`, a tab, a name and, after another tab, perhaps a notation. A
    .csv file has a header with the columns `uri`, `label_LANGUAGE` for one language or more, and
    perhaps `notation`; other columns are ignored. Empty lines are ignored, an empty cell is no
    name. Raises BadData, which names the line.
    """
    subjects = []
    line_of_uri = dict[str, int]()
    for line, subject in (
        _tsv_subjects(file, language) if file.kind == ".tsv" else _csv_subjects(file)
    ):
        first_line = line_of_uri.setdefault(subject.uri, line)
        if first_line != line:
            raise file.fault(
                line, f"expected each URI once, found {subject.uri[:120]!r} of line {first_line}"
            )
        subjects.append(subject)
    if not subjects:
        raise file.fault(None, "expected subjects, found none")
    return SubjectList(subjects, list(line_of_uri.values()))


def _tsv_subjects(file: DataFile, language: str | None) -> Iterator[tuple[int, Subject]]:
    for number, line in text_lines(file):
        if not line.strip():
            continue
        uri, name, notation, *_ = [*map(tidy, line.split("\t", 2)), "", ""]
        uri = _uri(uri)
        if not uri:
            raise file.fault(number, f"expected <URI>, a tab and a name, found {line[:60]!r}")
        yield (
            number,
            Subject(uri, notation or None, {language or UNDETERMINED: name} if name else {}),
        )


def _csv_subjects(file: DataFile) -> Iterator[tuple[int, Subject]]:
    rows = delimited_rows(file, DELIMITERS[".csv"])
    number, header = next(rows, (1, []))
    columns = _columns(file, number, header)
    for number, cells in rows:
        if len(cells) != len(header):
            raise file.fault(
                number, f"expected {len(header)} cells, as the header has, found {len(cells)}"
            )
        texts = {
            column: text
            for column, cell in zip(columns, cells, strict=True)
            if (text := tidy(cell))
        }
        texts.pop("", None)
        uri = _uri(texts.pop(URI, ""))
        notation = texts.pop(NOTATION, None)
        if not uri:
            raise file.fault(number, "expected a URI, found an empty cell")
        yield (
            number,
            Subject(
                uri, notation, {column.removeprefix(NAME): text for column, text in texts.items()}
            ),
        )


def _columns(file: DataFile, line: int, header: list[str]) -> list[str]:
    """Return the content of each column: "uri", "notation", "name:LANGUAGE", or "" if ignored.

    Raises BadData.
    """
    columns = []
    for cell in header:
        name = cell.strip()
        column = name if name in (URI, NOTATION) else ""
        if name.startswith(_LABEL_COLUMN):
            language = name.removeprefix(_LABEL_COLUMN).lower()
            if not is_language(language):
                raise file.fault(
                    line,
                    f"expected label_ and a language, as label_fi, found a column {name[:60]!r}",
                )
            column = f"{NAME}{language}"
        if column and column in columns:
            raise file.fault(line, f"expected each column once, found {name!r} twice")
        columns.append(column)
    if URI not in columns or not any(column.startswith(NAME) for column in columns):
        raise file.fault(
            line,
            "expected a header with uri and label_LANGUAGE, as label_fi, found "
            f"{', '.join(header)[:120] or 'an empty file'}",
        )
    return columns


def _uri(text: str) -> str:
    """Return a URI without the angle brackets that may enclose it."""
    return text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text


def tidy(text: str) -> str:
    """Replace each run of white space in a text by one blank, and remove it at both ends."""
    return " ".join(text.split())


# The name of a format in rdflib, by a file's suffix.
RDF_FORMATS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".owl": "xml", ".nt": "nt"}

SUFFIXES = (".tsv", ".csv", *RDF_FORMATS)


def read_subjects(file: DataFile, language: str | None, *, first_name: bool = False) -> SubjectList:
    """Read the subjects of a vocabulary; the file's suffix (also with .gz) tells the format.

    language    the language of names without one, as those of a .tsv file; None: it is not known
    first_name  whether the first of two prefLabels of SKOS in a language is the name

    Raises BadData, which names the file and, in a table, the line, and BadParameter if RDF
    cannot be read here.
    """
    if file.kind in RDF_FORMATS:
        return SubjectList(
            load_extra("rdf").read_skos(
                file, RDF_FORMATS[file.kind], language, first_name=first_name
            ),
            lines=[],
        )
    if file.kind not in SUFFIXES:
        raise file.fault(
            None, f"expected a file named *{', *'.join(SUFFIXES)}, also with .gz, found another"
        )
    return read_subject_table(file, language)
