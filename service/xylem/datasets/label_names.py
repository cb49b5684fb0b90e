"""The name of a label: one rule for all formats, for rows in memory, and for models."""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from xylem.base import Finding, what_is
from xylem.datasets.findings import INVISIBLE, UNKNOWN_LABELS, folded_names
from xylem.datasets.stream import DataFile
from xylem_store import I32, NameTable, all_names, check_name, find_all

_ENDS = "".join(INVISIBLE)


def label_name(spelling: str) -> str:
    """Return the name of a label: NFC, without blanks and invisible characters at its ends.

    An empty name is no label. All formats, rows in memory and models are compared by these names.
    """
    name = spelling.strip()
    if name.isascii():
        return name
    bare = None
    while name != bare:
        bare = name
        name = name.strip(_ENDS).strip()
    return unicodedata.normalize("NFC", name)


NO_LABEL = -1  # the id of null and of a blank label


class SpellingIds(dict[Any, int]):
    """The provisional id of the label that each spelling names; it grows by what is looked up."""

    def __init__(self, ids: dict[str, int]) -> None:
        super().__init__()
        self._ids = ids

    def __missing__(self, label: Any) -> int:
        """Return the id of a new spelling. Raises TypeError for what is no label, and BadNames."""
        if isinstance(label, str):
            self[label] = i = self._id_of(label)
            return i
        # a number is no key: as keys, 1 and true are the same
        if not is_label_value(label):
            raise TypeError
        return NO_LABEL if label is None else self._id_of(str(label))

    def _id_of(self, spelling: str) -> int:
        name = label_name(spelling)
        if not name:
            return NO_LABEL
        if name not in self._ids:
            check_name(name)
            self._ids[name] = len(self._ids)
        return self._ids[name]


def is_label_value(value: object) -> bool:
    """Return whether a value of JSON is a label or null."""
    return value is None or isinstance(value, str) or type(value) is int


def subject_labels(file: DataFile, number: int, subjects: object) -> list[object]:
    """Return the URI of each subject, as Annif writes them; of one without a URI the label.

    Raises BadData, which names the line.
    """
    if not isinstance(subjects, list):
        raise file.fault(number, f"expected an array as `subjects`, found {what_is(subjects)}")
    for subject in subjects:
        if not isinstance(subject, dict) or not (subject.get("uri") or subject.get("label")):
            raise file.fault(
                number,
                f"expected objects with `uri` or `label` in `subjects`, found {what_is(subject)}",
            )
    return [subject.get("uri") or subject["label"] for subject in subjects]


def find_in_model(model: NameTable, names: Sequence[str]) -> I32:
    """Return the id of each name in a model, or -1.

    A name that the model does not have is compared with the `label_name`s of its labels, which were
    stored as they were written in versions of earlier releases.
    """
    ids = find_all(model, names)
    if (ids < 0).any():
        ids_by_name = {
            name: i
            for i, other in enumerate(all_names(model))
            if (name := label_name(other)) != other
        }
        for position in np.flatnonzero(ids < 0).tolist():
            ids[position] = ids_by_name.get(names[position], -1)
    return ids


# The share of labels from which it is a finding that a model does not know them.
UNKNOWN_SHARE = 0.5


def unknown_findings(unknown: Sequence[str], model: NameTable, n_labels: int) -> Iterator[Finding]:
    """Yield the finding that a model does not know the labels of a file, or writes them otherwise.

    Few new labels are usual.
    """
    if not unknown:
        return
    stored = all_names(model)
    by_folded = dict(zip(folded_names(stored), stored, strict=True))
    pair = next(
        (
            (name, by_folded[form])
            for form, name in zip(folded_names(unknown), unknown, strict=True)
            if form in by_folded and "://" not in form
        ),
        None,
    )
    if pair or len(unknown) > UNKNOWN_SHARE * n_labels:
        as_pair = f", as {pair[0]!r} where the model has {pair[1]!r}" if pair else ""
        yield UNKNOWN_LABELS.about(n=len(unknown), n_labels=n_labels, pair=as_pair)
