"""What a dialect is: requests whose bodies and answers are their own, and whose way
is everybody's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from xylem.base import Limits, StageTimings
from xylem.engine import NO_FORM, FastAnswer, Featurizer, Predictions, PredictOptions
from xylem.serving.rows import ChunkedRows
from xylem.serving.schemas.predict import Options
from xylem.serving.served import ServedVersion

Q = TypeVar("Q")


class Reply(Struct, frozen=True):
    """An answer in parts, for how many instances, and whether it is at tuned thresholds.

    n_json  how many of its bytes are JSON; None: all
    """

    parts: tuple[bytes, ...]
    n_rows: int
    is_tuned: bool = False
    n_json: int | None = None


class Longer(NamedTuple):
    """A request that has been read and is for a thread, whose
    deadline may come in so many milliseconds.

    answer  is called with a flag, uint8[1]; once that is set, it returns what is sure
    """

    answer: Callable[[NDArray[np.uint8]], Reply]
    deadline_ms: int | None = None


class Body(Struct, frozen=True):
    """The body of a request: message[start:].

    header_or_query  what the dialect's header, or the query string, says of it; None: nothing
    """

    message: bytes
    start: int = 0
    header_or_query: str | None = None

    @property
    def content(self) -> bytes:
        """Return the bytes of the body alone."""
        return self.message[self.start :]


class Dialect(ABC, Generic[Q]):
    """What the bodies of a family of requests are, and their answers.

    media        what the bodies may be, as Content-Type says
    header       a header that says more of the body; empty: the query string does
    """

    media: frozenset[bytes] = frozenset({b"application/json"})
    header: str = ""

    def answer(
        self, body: Body, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Return the answer to a body, or what answers it in a thread. Event loop only.

        timings   where it is noted when the stages end that no kernel counts

        Raises BadInput and BadRequest, naming the place.
        """
        return self.answer_read(self.read(body, limits), served, limits, timings)

    @abstractmethod
    def read(self, body: Body, limits: Limits) -> Q:
        """Return the request that a body is: where the body is long, in a thread.

        Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, naming the place.
        """

    @abstractmethod
    def answer_read(
        self, query: Q, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Return the answer to a request that has been read, as `answer` does. Event loop only."""


class Query(ABC):
    """A request to search that has been read.

    options   what it asks for
    n_rows    its instances
    identity  what the answer repeats
    """

    options: Options
    n_rows: int
    identity: str | None = None

    @abstractmethod
    def n_items(self, featurizer: Featurizer) -> int:
        """Return its characters, as often as the featurizer counts them, features and names."""

    @abstractmethod
    def to_rows(self, featurizer: Featurizer) -> ChunkedRows:
        """Return the rows of its instances. Raises BadInstance for what the model does not take."""

    def form(self) -> NDArray[np.int64]:
        """Return what an answer of tensors has; [0]: it is one of predictions."""
        return NO_FORM

    @abstractmethod
    def write(
        self,
        predictions: Predictions,
        chunked: ChunkedRows,
        options: PredictOptions,
        epoch: int,
        served: ServedVersion,
    ) -> FastAnswer:
        """Return the answer of labels that were found; the epoch is that of the
        thresholds before.
        """

    @abstractmethod
    def compared(self) -> Query:
        """Return the request as a shadow is asked, whose labels are compared, and nothing else."""
