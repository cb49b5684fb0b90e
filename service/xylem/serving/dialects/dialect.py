"""The interface of dialects: each has its own bodies and answers; all are handled in one way."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from xylem.base import Limits, StageTimings
from xylem.engine import Featurizer, Predictions, PredictOptions
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import ChunkedRows
from xylem_store import U8

Q = TypeVar("Q")


class Reply(Struct, frozen=True):
    """An answer.

    parts     its bytes, in pieces
    n_rows    how many instances it answers
    is_tuned  whether it is at tuned thresholds
    n_json    how many of its bytes are JSON, before binary data; None: all
    """

    parts: tuple[bytes, ...]
    n_rows: int
    is_tuned: bool = False
    n_json: int | None = None


class Longer(NamedTuple):
    """A request that has been read and is to be answered in a thread.

    answer       is called with a flag, uint8[1]; when the flag is set, it returns what is certain
                 by then
    deadline_ms  milliseconds after which the flag is to be set; None: no deadline
    """

    answer: Callable[[U8], Reply]
    deadline_ms: int | None = None


class Body(Struct, frozen=True):
    """The body of a request: message[start:].

    header_or_query  the value of the dialect's header or, for a dialect without one, the query
                     string; None: there is none
    """

    message: bytes
    start: int = 0
    header_or_query: str | None = None

    @property
    def content(self) -> bytes:
        """Return the bytes of the body alone."""
        return self.message[self.start :]


class Dialect(ABC, Generic[Q]):
    """How the bodies of a family of requests are read, and their answers written.

    media    content types of the bodies, as in the Content-Type header
    header   a header that says more about the body; empty: the query string does
    """

    media: frozenset[bytes] = frozenset({b"application/json"})
    header: str = ""

    def answer(
        self, body: Body, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Return the answer to a body, or a Longer that answers it in a thread. Event loop only.

        timings   records the stages that no kernel counts

        Raises BadInput and BadRequest, which name the place in the body.
        """
        return self.answer_read(self.read(body, limits), served, limits, timings)

    @abstractmethod
    def read(self, body: Body, limits: Limits) -> Q:
        """Read a body. A long body is read in a thread.

        Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, which name the place.
        """

    def deadline_ms(self, query: Q) -> int | None:
        """Return the milliseconds that a request may take, if it says so. Default: it does not."""
        return None

    @abstractmethod
    def answer_read(
        self, query: Q, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Answer a request that has been read, as `answer` does. Event loop only."""


class Query(ABC):
    """A request for a search, after it has been read.

    options   its options
    n_rows    the number of its instances
    """

    options: Options
    n_rows: int

    @abstractmethod
    def n_items(self, featurizer: Featurizer) -> int:
        """Return its size in items: characters, features and names.

        A character counts as `featurizer.items_a_character` items.
        """

    @abstractmethod
    def to_rows(self, featurizer: Featurizer) -> ChunkedRows:
        """Return the rows of its instances. Raises BadInstance if the model does not take one."""

    @abstractmethod
    def reply(
        self,
        predictions: Predictions,
        chunked: ChunkedRows,
        options: PredictOptions,
        epoch: int,
        served: ServedVersion,
    ) -> Reply:
        """Return the answer.

        predictions  what the search returned for `chunked`
        epoch        the epoch of the thresholds, read before the search
        """

    @abstractmethod
    def compared(self) -> "Query":
        """Return the request as a shadow answers it: only what is needed to compare labels."""
