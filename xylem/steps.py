"""A call as steps: what is sent, read, waited for and tried again, without input or output of its own.

A generator yields steps and is told what became of each; a driver, synchronous or not, does them. So each
rule stands once for both clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from xylem.errors import BadAnswer, ClientError, ConnectionFailed, problem_of
from xylem.retries import RETRIED, Attempts, Retries, retry_after

T = TypeVar("T")

ANSWER_BYTES_MAX = 256 << 20
"""Of an answer that is held in memory."""

JSON = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    path        with its query, quoted
    body        bytes, or a file whose content is sent
    repeatable  sending it twice does what sending it once does
    """

    method: str
    path: str
    body: bytes | Path | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and what its answer becomes."""

    request: Request
    parse: Callable[[bytes], T]


class Head(NamedTuple):
    """The beginning of an answer; names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]


class Failure(NamedTuple):
    """Why there is no answer, or no more of it; `was_sent`: the server may have seen the request."""

    detail: str
    was_sent: bool = True


class Open(NamedTuple):
    """Send a request. Told: Head or Failure."""

    request: Request


class Next(NamedTuple):
    """Read on. Told: bytes, empty at the end, or Failure."""


class Close(NamedTuple):
    """Let go of the answer. Told: None."""


class Sleep(NamedTuple):
    """Wait. Told: None."""

    seconds: float


class Emit(NamedTuple):
    """Hand a value to the caller. Told: None."""

    value: Any


Told: TypeAlias = Head | Failure | bytes | None
Steps: TypeAlias = Generator[Open | Next | Close | Sleep | Emit, Told, T]


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def exchange(request: Request, seconds_max: float) -> Steps[Reply | Failure]:
    """Send a request and read its answer, which may take so long after its head."""
    head = yield Open(request)
    if isinstance(head, Failure):
        return head
    assert isinstance(head, Head)
    rest = yield from rest_of(seconds_max)
    return rest if isinstance(rest, Failure) else Reply(head.status, head.headers, rest)


def rest_of(seconds_max: float) -> Steps[bytes | Failure]:
    """Read the body of the answer that is open, and close it. Raises BadAnswer."""
    parts: list[bytes] = []
    n_bytes, deadline = 0, time.monotonic() + seconds_max
    while True:
        part = yield Next()
        if isinstance(part, Failure) or not part:
            break
        assert isinstance(part, bytes)
        parts.append(part)
        n_bytes += len(part)
        if n_bytes > ANSWER_BYTES_MAX:
            raise BadAnswer(f"expected an answer of at most {ANSWER_BYTES_MAX} bytes, found more")
        if time.monotonic() > deadline:
            part = Failure(f"expected the whole answer within {seconds_max:g} seconds, found part of it")
            break
    yield Close()
    return part if isinstance(part, Failure) else b"".join(parts)


def answered(request: Request, retries: Retries, seconds_max: float) -> Steps[Reply]:
    """Send a request, again where that is safe and may help; return the answer, if it is one of success.

    Raises ProblemError, ConnectionFailed, BadAnswer.
    """
    attempts = Attempts(retries)
    while True:
        found = yield from exchange(request, seconds_max)
        if isinstance(found, Reply) and 200 <= found.status < 300:
            return found
        wait = wait_after(found, request, attempts)
        if wait is None:
            raise error_of(found)
        yield Sleep(wait)


def wait_after(found: Reply | Failure, request: Request, attempts: Attempts) -> float | None:
    """Return how long to wait before a request is sent again; None: it is not."""
    if isinstance(found, Failure):
        may_repeat = request.repeatable or not found.was_sent
        return attempts.next_wait() if may_repeat else None
    if request.repeatable and found.status in RETRIED:
        return attempts.next_wait(retry_after(found.headers))
    return None


def error_of(found: Reply | Failure) -> ClientError:
    """Return the error that an answer other than success, or none, is."""
    if isinstance(found, Failure):
        return ConnectionFailed(found.detail)
    if 300 <= found.status < 400:
        return BadAnswer(f"expected an answer, found a redirect ({found.status}), which is not followed")
    return problem_of(found.status, found.body, found.headers.get("x-request-id"))


def result_of(call: Call[T], retries: Retries, seconds_max: float) -> Steps[T]:
    """Make a call; return what its answer says."""
    reply = yield from answered(call.request, retries, seconds_max)
    return call.parse(reply.body)
