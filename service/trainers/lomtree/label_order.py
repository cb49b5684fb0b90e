"""Whether the rows of a stream change as it goes: their labels, at its beginning and at its end."""

import numpy as np

from model_store.compiled.handles import I32
from service.base.rows import LabelRows

_SAMPLE_MAX = 1 << 16
"""So many rows are remembered at most: every n-th, where there are more."""

_SHARE = 10
"""The first and the last of so many parts are compared."""

_EXCESS = 0.25
"""A warning says when they differ by so much more than two parts by chance."""


class LabelOrder:
    """Compares the labels of the first tenth of the rows with those of the last.

    Memory: 4 bytes for each of 65,536 rows at most. The same rows give the same answer however they are cut.
    """

    def __init__(self) -> None:
        self._labels = np.empty(0, np.int32)
        self._step = 1
        self._n_rows = 0

    def add(self, labels: LabelRows) -> None:
        """Take the next rows; of each counts its first label, and rows without any are passed over."""
        carrying = np.flatnonzero(np.diff(labels.indptr))
        rows = np.arange(self._n_rows, self._n_rows + len(carrying))
        first = labels.indices[labels.indptr[carrying]]
        self._n_rows += len(carrying)
        self._labels = np.concatenate([self._labels, first[rows % self._step == 0]])
        while len(self._labels) > _SAMPLE_MAX:
            self._labels, self._step = self._labels[::2], 2 * self._step

    def state(self) -> tuple[list[int], I32]:
        """Return (step and rows so far, labels remembered)."""
        return [self._step, self._n_rows], self._labels

    def restore(self, counts: list[int], labels: I32) -> None:
        """Go on from a state."""
        (self._step, self._n_rows), self._labels = map(int, counts), labels.copy()

    def difference(self) -> float:
        """Return how much more the first and last tenth differ than two halves of both: 0 to 1.

        The difference is half the sum over the labels of the difference of their shares (total variation).
        """
        n = len(self._labels) // _SHARE
        if n < 2:
            return 0.0
        first, last = self._labels[:n], self._labels[-n:]
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
