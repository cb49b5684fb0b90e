"""Find the labels that a list means: labels, names of the label info, and branches of concepts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from xylem.base import UnknownLabel, did_you_mean
from xylem_store import (
    I32,
    I64,
    NAME,
    U8,
    URI,
    BadNames,
    LabelInfo,
    NameTable,
    find_all,
    find_names,
)

# The most branches of a list: each is walked by itself.
BRANCHES_MAX = 100

_SIMILAR_MAX = 200  # names that a misspelt one is compared with, of labels and of each language
_SIMILAR_BYTES = 2  # a name with one mistake begins or ends with as many bytes of the right one
_LISTED_MAX = 5  # subjects that an error lists


@dataclass(frozen=True, slots=True)
class Branch:
    """An item of a list of labels: a concept and all concepts below it, at any depth.

    under  a label of the version, or a URI or a name of the label info
    """

    under: str


def label_ids(
    labels: NameTable,
    items: Sequence[str | Branch],
    place: Callable[[int], str],
    info: LabelInfo | None = None,
    allowed: U8 | None = None,
) -> tuple[I32, I64]:
    """Return the ids of the labels that items mean: ids[ptr[i] : ptr[i + 1]] are those of item i.

    labels   those of the version
    items    an item that is a label means this label. Another text means the label with this URI in
             the label info, or else with this preferred name, in any language
    place    returns the place of an item in a request
    allowed  uint8[K], 0 for labels that are left out of branches; None: no label is

    A branch may have no label. Raises UnknownLabel, with the place of the item. Cost: that of
    `find_all` if all items are labels; else some passes over the label info.
    """
    texts = [item if isinstance(item, str) else item.under for item in items]
    ids = find_all(labels, texts)
    branches = [i for i, item in enumerate(items) if isinstance(item, Branch)]
    if not branches and (not len(ids) or ids.min() >= 0):
        return ids, np.arange(len(ids) + 1)
    if len(branches) > BRANCHES_MAX:
        fault = f"expected at most {BRANCHES_MAX} branches in a list, found {len(branches)}"
        raise UnknownLabel(fault).with_path(place(branches[BRANCHES_MAX]))
    subjects_of: dict[str, set[int]] = {}
    subject_of_label = np.full(labels.n_names, -1, np.int32)
    if info is not None:
        subject_of_label = find_names(info.keys, labels.utf8, labels.offsets)
        unknown = list(dict.fromkeys(texts[i] for i in np.flatnonzero(ids < 0)))
        try:
            subjects_of = info.find_subjects(unknown)
        except BadNames as error:  # a text that is no name of any table
            i = texts.index(unknown[error.index or 0])
            raise UnknownLabel(str(error)).with_path(place(i)) from None
    label_of_subject = dict(zip(subject_of_label.tolist(), range(labels.n_names), strict=True))
    parts: list[Sequence[int] | I64] = []
    for i, (item, text, label) in enumerate(zip(items, texts, ids.tolist(), strict=True)):
        is_branch = isinstance(item, Branch)
        if label >= 0 and not is_branch:
            parts.append([label])
            continue
        subjects = subjects_of.get(text, ()) if label < 0 else subject_of_label[[label]].tolist()
        fitting = sorted(
            subject
            for subject in subjects
            if subject >= 0 and (is_branch or subject in label_of_subject)
        )
        if len(fitting) != 1 or info is None:
            raise _unknown(item, fitting, labels, info).with_path(place(i))
        if is_branch:
            is_under = np.append(info.under(fitting), False)[subject_of_label]
            parts.append(np.flatnonzero(is_under if allowed is None else is_under & allowed))
        else:
            parts.append([label_of_subject[fitting[0]]])
    return np.concatenate(parts).astype(np.int32), np.cumsum([0, *map(len, parts)])


def _unknown(
    item: str | Branch, subjects: Sequence[int], labels: NameTable, info: LabelInfo | None
) -> UnknownLabel:
    """Return the error for an item that means several subjects, or none."""
    expected = "a concept of the label info" if isinstance(item, Branch) else "a label of the model"
    text = item if isinstance(item, str) else item.under
    tables = [(labels.offsets, labels.utf8)]
    if info is not None:
        uris = [f"{info.text(URI, subject):.80}" for subject in subjects[:_LISTED_MAX]]
        if uris:
            several = f"{text!r:.80}, a name of {len(subjects)}: {', '.join(uris)}"
            return UnknownLabel(f"expected {expected}, found {several}")
        tables += [(info.texts(NAME + tag), info.utf8) for tag in info.head.languages]
    candidates = [name for table in tables for name in _similar(*table, text)]
    return UnknownLabel(
        f"expected {expected}, found {text!r:.80}{did_you_mean(text, candidates, is_quoted=True)}"
    )


def _similar(offsets: I64, utf8: U8, text: str) -> list[str]:
    """Return texts of a table that may be meant by a misspelt one, at most _SIMILAR_MAX.

    They begin or end with the same bytes, and are nearly as long. A pass over the offsets.
    """
    expected = np.frombuffer(text.encode(errors="replace"), np.uint8)
    excess = np.abs(np.diff(offsets) - len(expected))
    rows = np.flatnonzero((excess <= _SIMILAR_BYTES) & (np.diff(offsets) >= _SIMILAR_BYTES))
    if len(expected) < _SIMILAR_BYTES:
        return []
    step = np.arange(_SIMILAR_BYTES)
    begins = utf8[offsets[rows, None] + step] == expected[:_SIMILAR_BYTES]
    ends = utf8[offsets[rows + 1, None] - 1 - step] == expected[: -_SIMILAR_BYTES - 1 : -1]
    rows = rows[begins.all(1) | ends.all(1)]
    nearest = rows[np.argsort(excess[rows], kind="stable")][:_SIMILAR_MAX].tolist()
    return [utf8[offsets[row] : offsets[row + 1]].tobytes().decode() for row in nearest]
