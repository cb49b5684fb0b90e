"""Vocabularies of any format that is read, told by a file's suffix."""

from service.base.errors import BadData
from service.datasets.skos import RDF_FORMATS, read_skos
from service.datasets.stream import DataFile
from service.datasets.subject_tables import SubjectList, read_subject_csv, read_subject_tsv

SUFFIXES = (".tsv", ".csv", *RDF_FORMATS)


def read_subjects(file: DataFile, language: str | None) -> SubjectList:
    """Return the subjects of a vocabulary, told by its file's suffix (also .gz).

    language  of the names of a .tsv file; None: it is not known

    Raises BadData, naming the file and, of a table, the line, and BadParameter where rdflib is missing.
    """
    suffix = file.kind
    if suffix == ".tsv":
        return read_subject_tsv(file, language)
    if suffix == ".csv":
        return read_subject_csv(file)
    if suffix in RDF_FORMATS:
        return read_skos(file, RDF_FORMATS[suffix])
    raise BadData(f"{file.path}: expected a file named *{', *'.join(SUFFIXES)}, also with .gz, found another")
