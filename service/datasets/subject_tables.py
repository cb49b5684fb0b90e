"""Vocabularies as tables, as Annif reads them: `.tsv` of URI, name and notation, `.csv` with a header."""

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


def read_subject_tsv(file: DataFile, language: str | None) -> SubjectList:
    """Read `<URI>`, a tab, a name and, after another tab, a notation on each line; there is no header.

    language  of the names; None: it is not known

    A subject without a name has none. Empty lines are passed over. Raises BadData, naming the line.
    """
    found = SubjectList([], [])
    for number, line in text_lines(file):
        if not line.strip():
            continue
        uri, name, notation, *_ = [*map(tidy, line.split("\t", 2)), "", ""]
        uri = _uri(uri)
        if not uri:
            raise file.fault(number, f"expected <URI>, a tab and a name, found {line[:60]!r}")
        names = {language or UNDETERMINED: name} if name else {}
        _add(found, number, Subject(uri, notation or None, names))
    return _checked(file, found)


def read_subject_csv(file: DataFile) -> SubjectList:
    """Read a table whose header has `uri` and `label_LANGUAGE` of some languages, perhaps `notation`.

    Other columns are passed over. Empty cells are no names. Raises BadData, naming the line.
    """
    found = SubjectList([], [])
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
        _add(found, number, Subject(uri, notation, names))
    return _checked(file, found)


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


def _add(found: SubjectList, line: int, subject: Subject) -> None:
    found.subjects.append(subject)
    found.lines.append(line)


def _checked(file: DataFile, found: SubjectList) -> SubjectList:
    """Return the subjects. Raises BadData where there are none, or a URI stands twice."""
    if not found.subjects:
        raise file.fault(None, "expected subjects, found none")
    first: dict[str, int] = {}
    for subject, line in zip(found.subjects, found.lines, strict=True):
        before = first.setdefault(subject.uri, line)
        if before != line:
            raise file.fault(line, f"expected each URI once, found {subject.uri[:120]!r} of line {before}")
    return found


def _uri(text: str) -> str:
    """Return a URI without its angle brackets."""
    return text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text


def tidy(text: str) -> str:
    """Return a text with one blank for each run of white space, and none around it."""
    return " ".join(text.split())
