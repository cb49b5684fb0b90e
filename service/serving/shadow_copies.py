"""A copy of an answered request: answered once more by a shadow, and the first labels of both answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.serving.answer import SearchDialect
from service.serving.dialect import Body, Reply
from service.serving.served import ServedVersion
from service.settings import Limits

TOPS = (1, 5)
"""How many of the first labels are compared."""

Labels = list[list[str]]
"""The names of the first labels of each row, max(TOPS) at most."""


class ShadowCopy(NamedTuple):
    """A request in a dialect, its answer, the version that gave it, and the shadow."""

    dialect: SearchDialect
    body: Body
    answer: Reply
    answered: ServedVersion
    shadow: ServedVersion

    @property
    def n_bytes(self) -> int:
        """Return how much memory it holds."""
        return len(self.body.message) + sum(map(len, self.answer.parts))

    def answer_again(self, limits: Limits, stop: NDArray[np.uint8]) -> Reply:
        """Return the shadow's answer; once `stop` is set, what is sure. Raises as an answer does."""
        query = self.dialect.read(self.body, limits)
        return self.dialect.answer_fully(query.compared(), self.shadow, stop)

    def first_labels(self, again: Reply) -> tuple[Labels, Labels]:
        """Return the labels that were answered, and those of the shadow's answer.

        None where the request asked for tensors that name no labels.
        """
        returned = self._first_of(self.answer, self.answered)
        return returned, self._first_of(again, self.shadow) if returned else []

    def _first_of(self, reply: Reply, served: ServedVersion) -> Labels:
        return self.dialect.first_labels(b"".join(reply.parts), reply.n_json, max(TOPS), served)


def compare(
    returned: Sequence[Sequence[str]], shadow: Sequence[Sequence[str]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many of the first labels were compared, for each of TOPS, and how many both have.

    Of a row at most so many as the longer of its two lists has: a label that only one gives is no agreement.
    """
    compared, agreed = [0] * len(TOPS), [0] * len(TOPS)
    for mine, other in zip_longest(returned, shadow, fillvalue=()):
        for i, top in enumerate(TOPS):
            compared[i] += min(top, max(len(mine), len(other)))
            agreed[i] += len(set(mine[:top]) & set(other[:top]))
    return tuple(compared), tuple(agreed)
