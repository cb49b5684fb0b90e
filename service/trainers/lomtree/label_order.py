"""Whether the rows of a stream change as it goes: their labels, at its beginning and at its end."""

from dataclasses import dataclass, field

import numpy as np

from model_store.compiled.handles import I32
from service.base.rows import LabelRows

_SAMPLE_MAX = 1 << 16  # so many rows are remembered at most: every n-th, where there are more
_SHARE = 10  # the first and the last of so many parts are compared
_EXCESS = 0.25  # a warning says when they differ by so much more than two parts by chance


@dataclass
class LabelOrder:
    """Compares the labels of the first tenth of the rows with those of the last.

    Memory: 4 bytes for each of 65,536 rows at most. The same rows give the same answer however they are cut.

    labels  int32[..]  of every row whose number `step` divides
    """

    labels: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    step: int = 1
    n_rows: int = 0

    def add(self, labels: LabelRows) -> None:
        """Take the next rows; of each counts its first label, and rows without any are passed over."""
        carrying = np.flatnonzero(np.diff(labels.indptr))
        rows = np.arange(self.n_rows, self.n_rows + len(carrying))
        first = labels.indices[labels.indptr[carrying]]
        self.n_rows += len(carrying)
        self.labels = np.concatenate([self.labels, first[rows % self.step == 0]])
        while len(self.labels) > _SAMPLE_MAX:
            self.labels, self.step = self.labels[::2], 2 * self.step

    def difference(self) -> float:
        """Return how much more the first and last tenth differ than two halves of both: 0 to 1.

        The difference is half the sum over the labels of the difference of their shares (total variation).
        """
        n = len(self.labels) // _SHARE
        if n < 2:
            return 0.0
        first, last = self.labels[:n], self.labels[-n:]
        both = np.concatenate([first, last])
        return max(0.0, _variation(first, last) - _variation(both[::2], both[1::2]))

    def warnings(self) -> list[str]:
        """Return a warning where they differ much."""
        found = self.difference()
        if found <= _EXCESS:
            return []
        return [
            "rows are learnt in their order, and those of the last tenth have other labels than those of the "
            f"first ({found:.0%} more than by chance): shuffled rows may be learnt better"
        ]


def _variation(one: I32, other: I32) -> float:
    n = 1 + int(max(one.max(), other.max()))
    shares = [np.bincount(part, minlength=n) / len(part) for part in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum()) / 2
