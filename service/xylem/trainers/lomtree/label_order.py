"""A check of the order of rows: whether the last ones have other labels than the first."""

from dataclasses import dataclass, field

import numpy as np

from xylem.base import LabelRows
from xylem_store import I32

_SAMPLE_MAX = 1 << 16  # most rows whose labels are stored; if there are more, every n-th row
_SHARE = 10  # the first and the last of this many parts of the rows are compared
_EXCESS = 0.25  # there is a warning if `LabelOrder.difference` is larger than this


@dataclass
class LabelOrder:
    """Compares the labels of the first tenth of the rows with those of the last tenth.

    Memory: 4 bytes for each of at most 65,536 rows. The result does not depend on how the rows are
    cut into parts.

    labels  int32[..]  first label of each row whose number is a multiple of `step`
    n_rows  number of rows with labels so far
    """

    labels: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    step: int = 1
    n_rows: int = 0

    def add(self, labels: LabelRows) -> None:
        """Add the next rows, each with its first label; rows without labels are skipped."""
        labelled_rows = np.flatnonzero(np.diff(labels.indptr))
        rows = np.arange(self.n_rows, self.n_rows + len(labelled_rows))
        first = labels.indices[labels.indptr[labelled_rows]]
        self.n_rows += len(labelled_rows)
        self.labels = np.concatenate([self.labels, first[rows % self.step == 0]])
        while len(self.labels) > _SAMPLE_MAX:
            self.labels = self.labels[::2]
            self.step = 2 * self.step

    def difference(self) -> float:
        """Return the excess of the difference between the first and the last tenth, from 0 to 1.

        It is their difference, minus the difference between two mixtures of both tenths. A
        difference is the total variation distance: half the sum over the labels of the absolute
        difference of their shares.
        """
        n = len(self.labels) // _SHARE
        if n < 2:
            return 0.0
        first = self.labels[:n]
        last = self.labels[-n:]
        both = np.concatenate([first, last])
        return max(0.0, _variation(first, last) - _variation(both[::2], both[1::2]))

    def warnings(self) -> list[str]:
        """Return a warning if the labels of the two tenths differ much, else an empty list."""
        difference = self.difference()
        if difference <= _EXCESS:
            return []
        return [
            "rows are learnt in their order, and those of the last tenth have other labels "
            "than those of the "
            f"first ({difference:.0%} more than by chance): shuffled rows may be learnt better"
        ]


def _variation(first: I32, second: I32) -> float:
    n = 1 + int(max(first.max(), second.max()))
    shares = [np.bincount(part, minlength=n) / len(part) for part in (first, second)]
    return float(np.abs(shares[0] - shares[1]).sum()) / 2
