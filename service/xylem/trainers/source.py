"""The input of a training: labelled rows, in memory or read from a file as often as needed;
a seed; and the crew that runs its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from xylem.base import (
    BadData,
    BadParameter,
    Crew,
    LabelRows,
    OnProgress,
    R,
    SparseRows,
    Step,
    T,
    ValueHandle,
    no_progress,
)
from xylem.trainers.state import EVERY_PASS, Passes
from xylem_store import F64, I32, I64, TreeEnsemble

# How rows can be read.
#
# rows    all of them are in memory
# passes  from the first to the last, as often as needed
# once    each once, as it arrives
Reads = Literal["rows", "passes", "once"]


class TrainingSet(NamedTuple):
    """Rows and their labels.

    Rows without features, rows without labels, and labels that no row carries are allowed.
    """

    rows: SparseRows
    labels: LabelRows

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self.labels.n_rows

    @property
    def n_entries(self) -> int:
        """Return the memory that the rows take, in units of 8 bytes: see `entries_of`."""
        return entries_of(self.n_rows, len(self.rows.indices), len(self.labels.indices))

    @staticmethod
    def join(parts: Sequence[TrainingSet]) -> TrainingSet:
        """Return the rows of all parts, one at least, one after the other."""
        return TrainingSet(
            SparseRows.join([part.rows for part in parts]),
            LabelRows.join([part.labels for part in parts]),
        )

    def take(self, chosen: NDArray[Any]) -> TrainingSet:
        """Return the rows at these positions, in their order."""
        return TrainingSet(self.rows.take(chosen), self.labels.take(chosen))


# A handle of rows that are stored by a crew; `get` returns the rows.
RowsHandle = ValueHandle[TrainingSet]


class JoinedRows(NamedTuple):
    """A handle of rows that are stored in several parts."""

    parts: tuple[RowsHandle, ...]

    def get(self) -> TrainingSet:
        """Return the rows, first part first."""
        return TrainingSet.join([part.get() for part in self.parts])


def entries_of(n_rows: int, n_nonzeros: int, n_carried: int) -> int:
    """Return the memory that rows take, in units of 8 bytes.

    A non-zero takes one unit (its feature and its value), a row two. A label takes half a unit,
    but is counted as one.

    n_carried  labels of all rows, with repeats
    """
    return n_nonzeros + n_carried + 2 * n_rows


# Called with the model so far, and with rows that it has not learnt from yet.
#
# The rows come in the order in which the model will learn from them.
OnRows = Callable[[TreeEnsemble, TrainingSet], None]


class WeightSums(NamedTuple):
    """The counts of all rows, where a row of weight k counts as k rows.

    rows, nonzeros
    labelled    rows that carry a label
    label_rows  float64[K], without weights int64[K]  rows that carry each label
    """

    rows: float
    nonzeros: float
    labelled: float
    label_rows: F64 | I64

    def rounded(self) -> tuple[int, I64]:
        """Return the number of rows and the rows of each label as a version stores them.

        A label that a row carries has one row at least, and none has more than there are.
        """
        label_rows = np.maximum(np.rint(self.label_rows), self.label_rows > 0).astype(np.int64)
        return max(round(self.rows), int(label_rows.max(initial=0))), label_rows


class Census(NamedTuple):
    """The counts of all rows, whatever their weights.

    n_rows, n_features, n_nonzeros
    n_labelled      rows that carry a label
    label_rows      int64[K]  rows that carry each label
    label_nonzeros  int64[K]  non-zeros of these rows
    tail            as in SparseRows
    weights         sums of the weights of rows; None: all are 1
    """

    n_rows: int
    n_features: int
    n_nonzeros: int
    n_labelled: int
    label_rows: I64
    label_nonzeros: I64
    tail: int = 0
    weights: WeightSums | None = None

    def __add__(self, other: Census) -> Census:  # type: ignore[override]
        """Return the counts of the rows of both, of which one may have more labels."""
        weights = None
        if self.weights or other.weights:
            first = self.weighed
            second = other.weighed
            weights = WeightSums(
                rows=first.rows + second.rows,
                nonzeros=first.nonzeros + second.nonzeros,
                labelled=first.labelled + second.labelled,
                label_rows=_add_padded(first.label_rows, second.label_rows),
            )
        return Census(
            n_rows=self.n_rows + other.n_rows,
            n_features=max(self.n_features, other.n_features),
            n_nonzeros=self.n_nonzeros + other.n_nonzeros,
            n_labelled=self.n_labelled + other.n_labelled,
            label_rows=_add_padded(self.label_rows, other.label_rows),
            label_nonzeros=_add_padded(self.label_nonzeros, other.label_nonzeros),
            tail=max(self.tail, other.tail),
            weights=weights,
        )

    def with_ids(self, ids: I64 | I32) -> Census:
        """Return the counts of labels with other ids; ids[i] is the new one of label i."""

        def placed(sums: NDArray[Any]) -> Any:
            by_id = np.zeros(len(ids), sums.dtype)
            by_id[ids[: len(sums)]] = sums
            return by_id

        weights = self.weights
        return self._replace(
            label_rows=placed(self.label_rows),
            label_nonzeros=placed(self.label_nonzeros),
            weights=weights and weights._replace(label_rows=placed(weights.label_rows)),
        )

    @property
    def weighed(self) -> WeightSums:
        """Return the counts of the rows by their weights."""
        return self.weights or WeightSums(
            self.n_rows, self.n_nonzeros, self.n_labelled, self.label_rows
        )

    @property
    def n_entries(self) -> int:
        """Return the memory that all rows would take, in units of 8 bytes."""
        return entries_of(self.n_rows, self.n_nonzeros, int(self.label_rows.sum()))

    def check_labelled(self) -> None:
        """Raise BadData if no row carries a label."""
        if not self.n_labelled:
            raise BadData(f"expected rows with labels, found none in {self.n_rows} rows")


def _add_padded(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of two arrays, the shorter one continued with zeros."""
    total = np.zeros(max(len(first), len(second)), np.result_type(first, second))
    total[: len(first)] += first
    total[: len(second)] += second
    return total


class RowSource(Protocol):
    """Rows with their labels: the same rows in the same order each time that they are read."""

    @property
    def reads(self) -> Reads:
        """Return how the rows can be read; rows in memory can be read in every way."""

    @property
    def census(self) -> Census:
        """Return the counts of all rows.

        If the rows are read once, the counts are final after the last row was read.
        """

    @property
    def final_ids(self) -> I32 | None:
        """Return the final id of each label, after the last row was read.

        This is for rows that are read once: their parts number the labels in the order in which
        they appear. None: the ids in the parts are final.
        """

    def parts(self) -> Iterator[TrainingSet]:
        """Yield all rows in parts, from the first row to the last.

        The source chooses the size of the parts.
        """


class MemorySource:
    """A source whose rows are those of a training set in memory."""

    reads: Reads = "rows"
    final_ids = None

    def __init__(self, data: TrainingSet) -> None:
        self.data = data

    @cached_property
    def census(self) -> Census:
        """Return the counts of all rows."""
        return count(self.data)

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the set as it is."""
        yield self.data


def all_rows(source: RowSource) -> TrainingSet:
    """Return the rows of a source in memory."""
    return TrainingSet.join(list(source.parts()))


def count(data: TrainingSet) -> Census:
    """Return the counts of a training set."""
    rows, labels = data
    sizes = np.diff(rows.indptr)
    n_carried = np.diff(labels.indptr)

    weights = None
    if labels.weights is not None:
        of_rows = labels.weights.rows.astype(np.float64)
        weights = WeightSums(
            rows=float(of_rows.sum()),
            nonzeros=float(of_rows @ sizes),
            labelled=float(of_rows[n_carried > 0].sum()),
            label_rows=np.bincount(labels.indices, labels.weights.labels, labels.n_labels),
        )
    return Census(
        n_rows=rows.n_rows,
        n_features=rows.n_features,
        n_nonzeros=len(rows.indices),
        n_labelled=int(np.count_nonzero(n_carried)),
        label_rows=np.bincount(labels.indices, minlength=labels.n_labels).astype(np.int64),
        label_nonzeros=np.bincount(
            labels.indices, np.repeat(sizes, n_carried), labels.n_labels
        ).astype(np.int64),
        tail=rows.tail,
        weights=weights,
    )


def check_training_set(data: TrainingSet) -> None:
    """Raise BadData for a training set that no trainer can use.

    The numbers of rows and of rows of labels must be equal, at least one row must carry a label,
    and all values must be finite.
    """
    n_rows = data.rows.n_rows
    if n_rows != data.labels.n_rows:
        raise BadData(f"expected labels for {n_rows} rows, found them for {data.labels.n_rows}")
    if not len(data.labels.indices):
        raise BadData(f"expected rows with labels, found none in {n_rows} rows")
    wrong = np.flatnonzero(~np.isfinite(data.rows.values))
    if len(wrong):
        row = int(np.searchsorted(data.rows.indptr, wrong[0], "right")) - 1
        raise BadData(f"row {row}: expected finite values, found {data.rows.values[wrong[0]]}")


def parts_with_progress(
    source: RowSource, progress: OnProgress, stage: str
) -> Iterator[TrainingSet]:
    """Yield the parts of a source, and report after each how many rows were read."""
    n_rows = 0
    total = source.census.n_rows
    progress(stage, 0, total)
    for part in source.parts():
        yield part
        n_rows += part.n_rows
        progress(stage, n_rows, total)


def derived_seed(*words: int) -> int:
    """Return a seed of 63 bits that depends on all the words.

    words  the user's seed, then numbers that name the purpose of the new seed
    """
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


def derived_random(*words: int) -> np.random.Generator:
    """Return random numbers that depend on all the words, as `derived_seed` takes them."""
    return np.random.Generator(np.random.PCG64(derived_seed(*words)))


# The most whole rows of a source.
ROWS_MAX = 1 << 31

# Words of derived seeds: for the fractions of the weights of rows, and of labels.
_ROWS = 9
_LABELS = 10


class WholeRows:
    """A source that has each row of another one as often as its weight says; weights are gone.

    A row of weight 2.5 is there twice or three times, each with probability 1/2. A label of weight
    w < 1 is left out of a row with probability 1 - w; a larger weight counts as 1. What is drawn
    depends on the seed alone, and is the same each time that the rows are read.

    Raises BadParameter if there would be too many rows; of rows that are read once, as they are
    read.
    """

    def __init__(self, source: RowSource, seed: int) -> None:
        self._source = source
        self._seed = seed
        self.reads: Reads = source.reads
        if source.reads != "once":
            _check_sum(source.census.weighed.rows)

    @property
    def final_ids(self) -> I32 | None:
        """Return those of the source."""
        return self._source.final_ids

    @property
    def census(self) -> Census:
        """Return the counts of all rows; of rows that are read once, those of the source."""
        return self._source.census if self.reads == "once" else self._counted

    @cached_property
    def _counted(self) -> Census:
        return reduce(add, map(count, self.parts()))

    def parts(self) -> Iterator[TrainingSet]:
        """Yield the whole rows of the parts of the source."""
        of_rows, of_labels = (
            np.random.default_rng(derived_seed(self._seed, word)) for word in (_ROWS, _LABELS)
        )
        n_rows = 0.0
        for part in self._source.parts():
            weights = part.labels.weights
            if weights is None:
                yield part
                continue
            n_rows += float(weights.rows.sum(dtype=np.float64))
            _check_sum(n_rows)
            copies = part.take(weights.copies(of_rows))
            labels = copies.labels
            shares = labels.all_weights().labels / labels.weights_at(labels.indptr)
            yield copies._replace(
                labels=labels.select(of_labels.random(len(shares)) < shares)._replace(weights=None)
            )


def _check_sum(n_rows: float) -> None:
    if n_rows > ROWS_MAX:
        raise BadParameter(
            f"weights: expected a sum of at most {ROWS_MAX:,} for a trainer that learns whole "
            f"rows, found {n_rows:,.0f}"
        )


@dataclass(frozen=True)
class Tools:
    """The seed, the crew and the callbacks of a training, or of a part of one.

    seed      the same data, parameters and seed give the same bits, whatever the number of threads
    crew      runs the steps of the training
    progress  is called with the units that are done
    on_rows   is called with rows of the first pass before they are learnt, by a trainer whose
              TrainerSpec says `shows`
    passes    the passes over the rows to make, for a trainer that can continue from a state
    """

    seed: int = 0
    crew: Crew = field(default_factory=lambda: Crew(1))
    progress: OnProgress = no_progress
    on_rows: OnRows | None = None
    passes: Passes = EVERY_PASS

    def seeded(self, *words: int) -> Tools:
        """Return a copy with another seed, derived from this one, for a part of the work."""
        return replace(self, seed=derived_seed(self.seed, *words))

    def collect(
        self,
        stage: str,
        step: Step[T, R],
        items: Sequence[T],
        keep: Callable[[R], Any] = lambda result: result,
    ) -> list[Any]:
        """Run a step on each item and return the results in the order of the items.

        keep  makes of each result what is returned in its place

        Reports after each how many items are done.
        """
        results: dict[T, Any] = {}

        def done(item: T, result: R) -> None:
            results[item] = keep(result)
            self.progress(stage, len(results), len(items))

        self.crew.steps(step, items, done)
        return [results[item] for item in items]

    def of_tree(self, tree: int, n_trees: int) -> Tools:
        """Return the tools for one of several trees.

        They have a seed of their own, and report each stage with the number of the tree.
        """
        part = self.seeded(tree)
        if n_trees == 1:
            return part
        tree_name = f"tree {tree + 1} of {n_trees}"
        return replace(
            part,
            progress=lambda stage, done, total: self.progress(f"{stage}, {tree_name}", done, total),
        )
