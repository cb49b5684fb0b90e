"""Figures of branches of concepts, and predictions that are nearly right, by the label info."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from xylem.base import LabelRows
from xylem.engine import Branch, label_ids
from xylem.evaluation import KS, PredictedRows
from xylem_store import NAME, URI, Bools, LabelInfo, NameTable, find_names

# What stands for the concepts without a broader one, among the concepts of branches.
TOP_CONCEPTS = "*"

# At most this many of these, those with the most concepts directly below them.
TOP_CONCEPTS_MAX = 50

# How a concept may be near a true one: above it, below it, or below the same one.
NEAR_MISSES = ("broader", "narrower", "sibling")


def branch_groups(
    labels: NameTable, info: LabelInfo, concepts: Sequence[str]
) -> list[tuple[str, Bools]]:
    """Return the name of each branch that has labels, and whether each label is in it, bool[K].

    concepts  labels, URIs or names; TOP_CONCEPTS stands for many. Raises UnknownLabel
    """
    names = dict(zip(concepts, concepts, strict=True))
    if names.pop(TOP_CONCEPTS, None):
        n_narrower = np.bincount(info.broader, minlength=info.head.n_subjects)
        tops = np.flatnonzero((np.diff(info.broader_ptr) == 0) & (n_narrower > 0))
        order = np.argsort(-n_narrower[tops], kind="stable")[:TOP_CONCEPTS_MAX]
        for top in tops[order].tolist():
            uri = info.text(URI, top) or ""
            names[uri] = info.text(NAME + info.head.language, top) or uri
    ids, ptr = label_ids(labels, list(map(Branch, names)), lambda _: "under", info)
    return [
        (name, np.isin(np.arange(labels.n_names), ids[first:last]))
        for name, (first, last) in zip(names.values(), pairwise(ptr.tolist()), strict=True)
        if first < last
    ]


def near_misses(
    ranked: PredictedRows, truth: LabelRows, labels: NameTable, info: LabelInfo
) -> dict[str, float]:
    """Return for each of NEAR_MISSES and each k of KS a share of the first k labels, in percent.

    It is the share of labels that are not true, but whose concept is so near a true one, divided as
    P@k is: by k for each row. A label counts once, as the first of NEAR_MISSES that it is. Rows
    count alike, whatever their weights. A step is one `broader`.
    """
    subjects = find_names(info.keys, labels.utf8, labels.offsets)
    above = cache(lambda subject: frozenset(info.above(subject) if subject >= 0 else ()))
    counts = dict.fromkeys((f"{kind}@{k}" for kind in NEAR_MISSES for k in KS), 0)
    for (first, last), (start, end) in zip(
        pairwise(ranked.ptr.tolist()), pairwise(truth.indptr.tolist()), strict=True
    ):
        true = set(subjects[truth.indices[start:end]].tolist()) - {-1}
        above_true = frozenset().union(*map(above, true))
        for rank, subject in enumerate(subjects[ranked.labels[first:last]].tolist()):
            if subject in true:
                continue
            are_near = (subject in above_true, above(subject) & true, above(subject) & above_true)
            kind = next(
                (kind for kind, is_near in zip(NEAR_MISSES, are_near, strict=True) if is_near), None
            )
            for k in KS if kind else ():
                counts[f"{kind}@{k}"] += rank < k
    return {
        key: 100.0 * n / int(key.rpartition("@")[2]) / truth.n_rows for key, n in counts.items()
    }
