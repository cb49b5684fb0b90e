"""Check label info against a model's labels, and store it beside the model's versions."""

from typing import NamedTuple

import numpy as np

from xylem.base import BadData
from xylem.workflows.training_work import TrainReport
from xylem_store import NAME, LabelInfo, Store, find_names


class Attached(NamedTuple):
    """A model's label info, and how many labels of the model's latest version it knows.

    subjects      number of subjects
    by            the column that labels are looked up in: uri, notation or a language
    languages     of the names
    language      of the names for a request that names no language
    labels        number of labels of `latest`
    known_labels  number of these that are subjects
    """

    model: str
    subjects: int
    by: str
    languages: list[str]
    language: str
    labels: int
    known_labels: int


def attach_label_info(store: Store, model: str, info: LabelInfo) -> Attached:
    """Store label info with a model; return how many labels of its latest version it knows.

    Raises BadData if it knows none of them: most likely, labels are looked up in the wrong column.
    """
    attached = attached_info(store, model, info)
    if not attached.known_labels:
        raise BadData(
            f"{model}: expected labels that the {attached.subjects} subjects have as "
            f"{attached.by}, found none of {attached.labels}: say what they are with --by, uri, "
            "notation or a language"
        )
    store.put_label_info(model, info)
    return attached


def with_label_info(store: Store, report: TrainReport, info: LabelInfo) -> TrainReport:
    """Attach label info to a model that was trained; return its report.

    The report has a warning if the info knows no label. This is no error, because the version is
    published already.
    """
    try:
        attach_label_info(store, report.model, info)
    except BadData as error:
        return report._replace(warnings=[*(report.warnings or ()), f"no label info: {error}"])
    return report


def attached_info(store: Store, model: str, info: LabelInfo) -> Attached:
    """Return how a vocabulary fits the labels of a model's latest version."""
    labels = store.open(model).labels
    head = info.head
    return Attached(
        model=model,
        subjects=head.n_subjects,
        by=head.columns[0].removeprefix(NAME),
        languages=list(head.languages),
        language=head.language,
        labels=labels.n_names,
        known_labels=int(np.count_nonzero(find_names(info.keys, labels.utf8, labels.offsets) >= 0)),
    )
