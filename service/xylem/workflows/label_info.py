"""A vocabulary's file -> the label info of a model: read, checked, and put beside the versions."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from xylem.base import BadData, BadParameter
from xylem.datasets import DataFile, read_subjects
from xylem.workflows.train import TrainReport
from xylem_store import (
    NAME,
    URI,
    BadNames,
    LabelInfo,
    Store,
    build_label_info,
    find_names,
    is_language,
)


class Attached(NamedTuple):
    """A model's label info: its subjects and languages, and how many
    of the labels of `latest` it knows.

    by        what labels are looked for by: uri, notation or a language
    language  of names where a request does not say one
    """

    model: str
    subjects: int
    by: str
    languages: list[str]
    language: str
    labels: int
    known_labels: int


def read_label_info(path: Path, key_kind: str = URI, language: str | None = None) -> LabelInfo:
    """Return the table of a file, told by its suffix (also .gz).

    key_kind  what a model's labels are: "uri", "notation", or a language, in which they are the
              names
    language  of names where a request does not say one; of a .tsv file, that of its names

    Raises BadData, naming the file and, of a table, the line, and BadParameter.
    """
    if language is not None and not is_language(language):
        raise BadParameter(
            f"language: expected a language, as en or pt-br, found {language[:40]!r}"
        )
    file = DataFile(path)
    vocabulary = read_subjects(file, language)
    column = key_kind if key_kind in ("uri", "notation") else f"{NAME}{key_kind}"
    try:
        return build_label_info(vocabulary.subjects, column, language)
    except ValueError as error:
        if not isinstance(error, BadNames) or error.index is None:
            raise file.fault(None, str(error)) from None
        line = vocabulary.lines[error.index] if vocabulary.lines else None
        subject_prefix = f"<{vocabulary.subjects[error.index].uri[:120]}>: "
        raise file.fault(line, f"{subject_prefix}{error.fault}") from None


def attach_label_info(store: Store, model: str, info: LabelInfo) -> Attached:
    """Make this the label info of a model, and say how many labels of its latest version it knows.

    Raises BadData where it knows none of them: most likely, labels are looked for by the wrong
    column.
    """
    attached = attached_info(store, model, info)
    if not attached.known_labels:
        raise BadData(
            f"{model}: expected labels that the {attached.subjects} subjects have as "
            f"{attached.by}, found none of "
            f"{attached.labels}: say what they are with --by, uri, notation or a language"
        )
    store.put_label_info(model, info)
    return attached


def with_label_info(store: Store, report: TrainReport, info: LabelInfo) -> TrainReport:
    """Attach label info to a model that was trained; return its report,
    with a warning if it knows no label.

    The version is published by then, so that is no error.
    """
    try:
        attach_label_info(store, report.model, info)
    except BadData as error:
        return report._replace(warnings=[*(report.warnings or ()), f"no label info: {error}"])
    return report


def attached_info(store: Store, model: str, info: LabelInfo) -> Attached:
    """Return what a vocabulary knows of the labels of a model's latest version."""
    labels = store.open(model).labels
    head = info.head
    key_kind = head.columns[0].removeprefix(NAME)
    languages = list(head.languages)
    n_known = int(np.count_nonzero(find_names(info.keys, labels.utf8, labels.offsets) >= 0))
    return Attached(
        model=model,
        subjects=head.n_subjects,
        by=key_kind,
        languages=languages,
        language=head.language,
        labels=labels.n_names,
        known_labels=n_known,
    )
