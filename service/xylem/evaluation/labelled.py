"""Labelled rows in the form a version needs: rows of its features, and true labels by its ids."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from xylem.base import DataReport, Dataset, LabelRows, SparseRows, offsets
from xylem.engine import Featurizer
from xylem.evaluation.ranking import Truth
from xylem_store import COMBINED, I32, LABEL_COUNTS, U8, U64, Bools, DataInfo, Model


def learnt_labels(model: Model) -> Bools:
    """Return which labels a version has learnt, bool[K].

    A version has others if its names file or the header of its data listed them but no row had
    them: label trees have no leaf for these. A combined version finds every concept by its names.
    All labels count as learnt if nothing is known about them.
    """
    counts = model.arrays.get(LABEL_COUNTS)
    is_learnt = np.ones(model.labels.n_names, np.bool_)
    if model.manifest.kind == "label-tree":
        is_learnt = model.ensemble.label_leaf[0] >= 0
    elif counts is not None and model.manifest.kind != COMBINED:
        is_learnt = counts > 0
    return is_learnt


class Labelled(NamedTuple):
    """Rows with their true labels.

    labels         true labels of each row that the model knows
    unknown        int32[n], number of further labels of each row, which the model does not know
    source         the file; None for windows of words
    unknown_names  names of the labels that the model does not know, each once
    report         what the reader has understood of the rows, if it was counted
    """

    rows: SparseRows
    labels: LabelRows
    unknown: I32
    source: DataInfo | None = None
    unknown_names: Sequence[str] = ()
    report: DataReport | None = None

    @property
    def truth(self) -> Truth:
        """Return the true labels of the rows."""
        return Truth(self.labels, self.unknown, len(self.unknown_names))

    @property
    def n_true(self) -> int:
        """Return how many labels are true in all rows, also those that the model does not know."""
        return len(self.labels.indices) + int(self.unknown.sum())

    def repeated(self) -> Self:
        """Return each row as often as its weight says; a fraction is drawn, always alike."""
        weights = self.labels.weights
        if weights is None:
            return self
        rows = weights.copies(np.random.default_rng(0))
        return self._replace(
            rows=self.rows.take(rows),
            labels=self.labels.take(rows)._replace(weights=None),
            unknown=self.unknown[rows],
        )

    def rows_learnt(self, model: Model) -> tuple[int, int]:
        """Return two numbers of rows: those with a label that a version has learnt, and the others.

        Rows without any label are in neither number.
        """
        n_learnt = np.diff(offsets(learnt_labels(model)[self.labels.indices])[self.labels.indptr])
        n_labels = np.diff(self.labels.indptr) + self.unknown
        return int((n_learnt > 0).sum()), int(((n_labels > 0) & (n_learnt == 0)).sum())

    def never_answered(self, model: Model, allowed: U8 | None = None) -> I32:
        """Return the labels of the rows that answers never have, ascending.

        These are labels that the version has not learnt, and those that `allowed` (uint8[K]) has 0
        for.
        """
        is_answered = learnt_labels(model)
        if allowed is not None:
            is_answered &= allowed > 0
        labels = np.unique(self.labels.indices)
        return labels[~is_answered[labels]]

    def remarks(self, model: Model) -> Iterator[str]:
        """Yield sentences on why a version's figures on these rows mean less than they seem to."""
        version_name = model.manifest.full_name
        _, n_others = self.rows_learnt(model)
        if n_others:
            example = f", as {self.unknown_names[0]!r:.80}" if self.unknown_names else ""
            yield (
                f"{n_others} of {self.n_rows} validation rows have only labels that {version_name} "
                "has not learnt"
                f"{example}: each counts as missed"
            )
        if self.source is not None and self.source.sha256 in {
            manifest.data.sha256 for manifest in (model.manifest, *model.manifest.members)
        }:
            yield (
                f"{version_name} was trained on the validation rows: its figures are better there "
                "than elsewhere"
            )

    @property
    def n_rows(self) -> int:
        """Return the number of rows that are measured: rows of a file, or windows of words."""
        return self.labels.n_rows


def labelled_dataset(dataset: Dataset, featurizer: Featurizer) -> Labelled:
    """Return the labelled rows of a data set. Raises BadInput."""
    return Labelled(
        featurizer.transform_dataset(dataset),
        dataset.labels,
        dataset.unknown_labels,
        source=DataInfo(dataset.source, dataset.n_rows, dataset.sha256),
        unknown_names=dataset.unknown_names,
        report=dataset.report,
    )


def digests_of(rows: SparseRows) -> U64:
    """Return uint64[n]: equal rows have equal numbers, others hardly ever; rows without features 0.

    The pairs of a row are mixed, each by itself, and added. Cost: 7 nanoseconds a pair.
    """
    digests = np.zeros(rows.n_rows, np.uint64)
    for first in range(0, rows.n_rows, _PART_ROWS):
        part = rows.cut(first, first + _PART_ROWS)
        mixed = part.indices.astype(np.uint64) * _FACTORS[0]
        mixed ^= part.values.view(np.uint32).astype(np.uint64) * _FACTORS[1]
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _FACTORS[2]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        digests[first : first + _PART_ROWS] = np.diff(sums[part.indptr])
    return digests


_PART_ROWS = 1 << 12

# Odd numbers by which bits are mixed: those of xxHash and of MurmurHash.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xFF51AFD7ED558CCD], np.uint64)
