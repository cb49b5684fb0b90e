"""Rows with weights as whole rows, for trainers that learn one row after the other, or count."""

from collections.abc import Iterator
from functools import cached_property, reduce
from operator import add

import numpy as np

from xylem.base import BadParameter
from xylem.trainers.source import Census, Reads, RowSource, TrainingSet, count, derived_seed
from xylem_store import I32

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
    """

    def __init__(self, source: RowSource, seed: int) -> None:
        """Take a source of rows with weights.

        Raises BadParameter if there would be too many rows; of rows that are read once, as they
        are read.
        """
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
