"""Vocabularies as tables, as Annif reads them: `.tsv` of URI, name and notation, `.csv` with a header."""

from collections.abc import Iterator
from typing import NamedTuple

from model_store.label_info import NAME, NOTATION, UNDETERMINED, URI, Subject, is_language
from service.datasets.delimited import DELIMITERS, delimited_rows, text_lines
from service.datasets.stream import DataFile

_LABEL = "label_"
"""What the names of columns begin with that have names, in a language."""


class SubjectList(NamedTuple):
    """The subjects of a file, in its order, and the line on which each stands; none where it has no lines."""

    subjects: list[Subject]
    lines: list[int]


def read_subject_table(file: DataFile, language: str | None) -> SubjectList:
    """Return the subjects of a .tsv or .csv file.

    language  of the names of a .tsv file; None: it is not known

    A line of a .tsv file has `<URI>`, a tab, a name and, after another tab, a notation. A .csv file has a
    header with `uri` and `label_LANGUAGE` of some languages, perhaps `notation`; other columns are passed
    over. Empty lines are passed over, empty cells are no names. Raises BadData, naming the line.
    """
    subjects, first = [], dict[str, int]()
    for line, subject in _tsv_subjects(file, language) if file.kind == ".tsv" else _csv_subjects(file):
        before = first.setdefault(subject.uri, line)
        if before != line:
            raise file.fault(line, f"expected each URI once, found {subject.uri[:120]!r} of line {before}")
        subjects.append(subject)
    if not subjects:
        raise file.fault(None, "expected subjects, found none")
    return SubjectList(subjects, list(first.values()))


def _tsv_subjects(file: DataFile, language: str | None) -> Iterator[tuple[int, Subject]]:
    for number, line in text_lines(file):
        if not line.strip():
            continue
        uri, name, notation, *_ = [*map(tidy, line.split("\t", 2)), "", ""]
        uri = _uri(uri)
        if not uri:
            raise file.fault(number, f"expected <URI>, a tab and a name, found {line[:60]!r}")
        names = {language or UNDETERMINED: name} if name else {}
        yield number, Subject(uri, notation or None, names)


def _csv_subjects(file: DataFile) -> Iterator[tuple[int, Subject]]:
    rows = delimited_rows(file, DELIMITERS[".csv"])
    number, header = next(rows, (1, []))
    columns = _columns(file, number, header)
    for number, cells in rows:
        if len(cells) != len(header):
            raise file.fault(number, f"expected {len(header)} cells, as the header has, found {len(cells)}")
        has = {column: text for column, cell in zip(columns, cells, strict=True) if (text := tidy(cell))}
        has.pop("", None)
        uri, notation = _uri(has.pop(URI, "")), has.pop(NOTATION, None)
        if not uri:
            raise file.fault(number, "expected a URI, found an empty cell")
        names = {column.removeprefix(NAME): text for column, text in has.items()}
        yield number, Subject(uri, notation, names)


def _columns(file: DataFile, line: int, header: list[str]) -> list[str]:
    """Return what each column has: "uri", "notation", "name:LANGUAGE", or "" for nothing of ours."""
    columns = []
    for cell in header:
        name = cell.strip()
        column = name if name in (URI, NOTATION) else ""
        if name.startswith(_LABEL):
            language = name.removeprefix(_LABEL).lower()
            if not is_language(language):
                expected = "expected label_ and a language, as label_fi"
                raise file.fault(line, f"{expected}, found a column {name[:60]!r}")
            column = f"{NAME}{language}"
        if column and column in columns:
            raise file.fault(line, f"expected each column once, found {name!r} twice")
        columns.append(column)
    if URI not in columns or not any(column.startswith(NAME) for column in columns):
        found = ", ".join(header)[:120] or "an empty file"
        raise file.fault(line, f"expected a header with uri and label_LANGUAGE, as label_fi, found {found}")
    return columns


def _uri(text: str) -> str:
    return text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text


def tidy(text: str) -> str:
    """Return a text with one blank for each run of white space, and none around it."""
    return " ".join(text.split())
