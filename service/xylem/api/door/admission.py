"""What may come in: how many requests at a time, how many bytes each, how slowly, and
of what kind.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from xylem.api.door.problems import BodyTimeout, UnsupportedMediaType
from xylem.api.door.slow_clients import SlowClients
from xylem.base import Limits, Overloaded

PROBES = frozenset({"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"})
"""Routes that machines ask every few seconds whether the service runs, and is ready."""

ALWAYS = PROBES | {"/metrics"}
"""Routes that answer however many requests are in flight."""

ADMIN_PATHS = "/v1/admin/"

JSON = frozenset({b"application/json"})

NDJSON = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl"})

OCTETS = frozenset({b"application/octet-stream"})
"""As which lines may be sent too: most generated clients know of no NDJSON."""

BODY_IS_HERE = "xylem.body"
"""The ASGI extension by which our server says that a request's whole body has been received."""


class Admission:
    """Counts the requests in flight, and says when one is too many. Event loop only.

    streams   matches the paths whose bodies have no limit of bytes, because they are never held
              whole
    uploads   matches those of which that is so even where they are JSON
    draining  whether the server is about to stop: connections are then closed after their answer
    n_free    how many more requests may be in flight; below 0 there are those of admins
    bodies    clients whose bodies are waited for, and what is held of bodies, until their requests
              end
    answers   clients that have not read what was written for them
    """

    def __init__(
        self,
        limits: Limits,
        streams: re.Pattern[str],
        uploads: re.Pattern[str],
        draining: Callable[[], bool],
        n_workers: int = 1,
    ) -> None:
        self.limits = limits
        self.draining = draining
        self._streams = streams
        self._uploads = uploads
        self.n_free = limits.requests_max
        self.bodies = SlowClients(limits.bodies_bytes_max // n_workers, "bodies_bytes_max")
        self.answers = SlowClients(limits.answers_bytes_max // n_workers, "answers_bytes_max")

    def bytes_max(self, scope: Scope) -> int | None:
        """Return the most bytes that the body may have; None: it is a stream."""
        path = scope["path"]
        is_stream = self._streams.fullmatch(path) and not is_json(scope)
        return None if is_stream or self._uploads.fullmatch(path) else self.limits.body_bytes_max

    def enter(self, scope: Scope) -> Overloaded | None:
        """Return why a request may not be answered; None: it may, and is in flight until `leave`.

        Where no place is free, it takes that of the slowest request whose body is waited for.
        Admins have as many places more as there are: they can help when others leave none.
        """
        path = scope["path"]
        requests_max = self.limits.requests_max
        n_free = self.n_free + requests_max if path.startswith(ADMIN_PATHS) else self.n_free
        if n_free <= 0 and path not in ALWAYS and not self.bodies.give_up_slowest():
            return Overloaded(f"expected at most {requests_max} requests at a time, found more")
        self.n_free -= 1
        return None

    def leave(self) -> None:
        """Count out a request that had entered."""
        self.n_free += 1


def is_json(scope: Scope) -> bool:
    """Return whether a request says that its body is JSON, and no stream of lines."""
    value = dict(scope["headers"]).get(b"content-type", b"")
    return value in JSON or value.lower().partition(b";")[0].strip() in JSON


def check_media(scope: Scope, allowed: frozenset[bytes]) -> None:
    """Raise UnsupportedMediaType unless the body is one of `allowed`."""
    content_type = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
    if content_type not in allowed:
        media, _, parameters = content_type.lower().partition(b";")
        charset = parameters.replace(b" ", b"").replace(b'"', b"")
        if media.strip() not in allowed or charset not in (b"", b"charset=utf-8"):
            expected = b" or ".join(sorted(allowed)).decode()
            received = ascii(content_type.decode("latin-1"))[:100]
            raise UnsupportedMediaType(
                f"Content-Type: expected {expected}, in UTF-8, found {received}"
            )


async def read_body(request: Request, media: frozenset[bytes] = JSON) -> bytes:
    """Return the whole body of a request that says it is JSON, or one of `media`.

    Raises UnsupportedMediaType and ClientDisconnect; by the request scope BodyTooLarge,
    BodyTimeout, BrokenEncoding and Overloaded.
    """
    check_media(request.scope, media)
    # of parts that a client may send byte by byte: objects would take fifty times as much
    body = bytearray()
    has_more = True
    while has_more:  # `request.body()` does it at five times the cost
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        has_more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        if not has_more and not body:
            return part
        body += part
    return bytes(body)


PIECE_BYTES = 1 << 20
"""Pieces are joined up to about this size: what is done with each costs a thread."""


async def pieces(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the body of a request. Raises BodyTimeout where it comes too slowly, and as `paced`."""
    parts: list[bytes] = []
    n_bytes = 0
    try:
        async for part, _ in paced(request.receive, limits):
            parts.append(part)
            n_bytes += len(part)
            if n_bytes >= PIECE_BYTES:
                yield b"".join(parts)
                parts = []
                n_bytes = 0
    except TimeoutError:
        bytes_min = limits.batch_bytes_min
        seconds = limits.body_seconds_max
        expected = f"expected at least {bytes_min} bytes of the body in {seconds:g} seconds"
        raise BodyTimeout(f"{expected}, found fewer") from None
    if parts:
        yield b"".join(parts)


async def paced(receive: Receive, limits: Limits) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield the parts of a body as they come, each with whether others follow.

    Raises TimeoutError, with how many bytes came, where `body_seconds_max` bring less than
    `batch_bytes_min`: time in which nobody waits for the client does not count. Raises
    ClientDisconnect, and as `receive`.
    """
    has_more = True
    n_bytes = 0
    seconds = 0.0
    while has_more:
        started = time.monotonic()
        try:
            async with asyncio.timeout(limits.body_seconds_max - seconds):
                message = await receive()
        except TimeoutError:
            raise TimeoutError(n_bytes) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        has_more = message.get("more_body", False)
        n_bytes = n_bytes + len(part)
        seconds = seconds + time.monotonic() - started
        if n_bytes >= limits.batch_bytes_min:
            n_bytes = 0
            seconds = 0.0
        yield part, has_more
