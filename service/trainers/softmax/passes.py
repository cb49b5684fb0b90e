"""The passes over the rows of a tree of softmax nodes: order, learning rates, when labels are dealt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.trainers.softmax.parameters import SoftmaxParameters, TreeLearning
from service.trainers.source import RowSource, TrainingSet
from service.trainers.windows import dealt
from service.trainers.work import Tools, derived_seed

PIECE_ROWS = 1 << 16
"""Rows that are trained on between two reports of progress, at most."""

_ORDER = 1
"""What the seeds of shuffles are derived from, besides the training's."""


class Piece(NamedTuple):
    """Some rows of `data` in their order, and the learning rates at begin and end.

    `n_before` steps went before, of all passes together.
    """

    data: TrainingSet
    order: NDArray[np.int32]
    first: float
    last: float
    n_before: int


def marks_of(learning: TreeLearning | None, total: int) -> list[int]:
    """Return after how many steps labels are dealt anew, ascending without repeats."""
    if learning is None or learning.updates == 0:
        return []
    evenly = np.arange(1, learning.updates + 1) * learning.share * total / learning.updates
    return sorted({max(1, int(mark)) for mark in evenly})


def pieces(
    source: RowSource,
    parameters: SoftmaxParameters,
    learning: TreeLearning | None,
    marks: list[int],
    tools: Tools,
) -> Iterator[Piece]:
    """Yield the rows with labels of all epochs, shuffled anew for each (`windows`), cut at the marks.

    The same pieces however the source cuts its rows.
    """
    p, n = parameters.descent(), source.census.n_labelled
    total = p.epochs * n
    constant = 0.0 if learning is None else learning.share * total

    def rate_at(step: int) -> float:
        if p.is_adaptive:
            return p.rate
        return p.rate * min(1.0, (total - step) / (total - constant))

    cuts = np.unique([*marks, int(constant), *range(0, total, PIECE_ROWS)])
    done = 0
    with dealt(source, tools.seed, tools.progress) as windows:
        for epoch in range(p.epochs):
            shuffled = np.random.Generator(np.random.PCG64(derived_seed(tools.seed, _ORDER, epoch)))
            for _, window in windows.visit(epoch):
                labelled = np.flatnonzero(np.diff(window.labels.indptr)).astype(np.int32)
                order, begin, end = shuffled.permutation(labelled), done, done + len(labelled)
                for cut in [*cuts[(cuts > begin) & (cuts < end)].tolist(), end]:
                    yield Piece(window, order[done - begin : cut - begin], rate_at(done), rate_at(cut), done)
                    done = cut
