"""Admit requests, and read their bodies within limits of number, size, speed and media type."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from xylem.api.door.problems import BodyTimeout, UnsupportedMediaType
from xylem.api.door.slow_clients import SlowClients
from xylem.base import Limits, Overloaded

# Paths that machines request every few seconds to see whether the service runs and is ready.
PROBES = frozenset({"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"})

# Paths that are answered however many requests are in flight.
ALWAYS = PROBES | {"/metrics"}

ADMIN_PATHS = "/v1/admin/"

JSON = frozenset({b"application/json"})

NDJSON = frozenset({b"application/x-ndjson", b"application/ndjson", b"application/jsonl"})

# Media type under which lines may be sent too: most generated clients do not support NDJSON.
OCTETS = frozenset({b"application/octet-stream"})

# parameters of a media type that say UTF-8, in lower case; utf8 is a common misspelling
_UTF8 = frozenset({b"", b"charset=utf-8", b"charset=utf8"})

# The ASGI extension by which our server tells that it has received a request's whole body.
BODY_IS_RECEIVED = "xylem.body"


class Admission:
    """Counts the requests in flight, and refuses those beyond the limit. Event loop only.

    streams   matches the paths whose bodies have no limit of bytes unless they are JSON, because
              they are never held whole
    uploads   matches the paths whose bodies have no limit of bytes here even if they are JSON
    draining  returns whether the server is about to stop: connections are then closed after their
              answer
    n_free    how many more requests may be in flight; below 0 if admins use their extra places
    bodies    the clients whose bodies are being received, and the bytes of bodies that are held
              until their requests end
    answers   the clients that have not read their answers yet
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
        """Return the limit of bytes of a request's body; None if it is a stream or an upload."""
        path = scope["path"]
        is_stream = self._streams.fullmatch(path) and not is_json(scope)
        return None if is_stream or self._uploads.fullmatch(path) else self.limits.body_bytes_max

    def enter(self, scope: Scope) -> Overloaded | None:
        """Admit a request, which is in flight until `leave`; or return the error that refuses it.

        If no place is free, the request takes the place of the slowest one whose body is still
        being received. Admins have twice as many places as other clients, so that they can help
        when others take all places.
        """
        path = scope["path"]
        n_free = (
            self.n_free + self.limits.requests_max if path.startswith(ADMIN_PATHS) else self.n_free
        )
        if n_free <= 0 and path not in ALWAYS and not self.bodies.give_up_slowest():
            return Overloaded(
                f"expected at most {self.limits.requests_max} requests at a time, found more"
            )
        self.n_free -= 1
        return None

    def leave(self) -> None:
        """Count out a request that was admitted by `enter`."""
        self.n_free += 1


def is_json(scope: Scope) -> bool:
    """Return whether the Content-Type of a request is JSON, and not a stream of lines."""
    value = dict(scope["headers"]).get(b"content-type", b"")
    return value in JSON or value.lower().partition(b";")[0].strip() in JSON


def check_media(scope: Scope, allowed: frozenset[bytes]) -> None:
    """Raise UnsupportedMediaType unless the body is one of the `allowed` media types, in UTF-8."""
    content_type = dict(scope["headers"]).get(b"content-type", b"")
    if content_type not in allowed:
        media, _, parameters = content_type.lower().partition(b";")
        if (
            media.strip() not in allowed
            or parameters.replace(b" ", b"").replace(b'"', b"") not in _UTF8
        ):
            raise UnsupportedMediaType(
                f"Content-Type: expected {b' or '.join(sorted(allowed)).decode()}, in UTF-8, "
                f"found {ascii(content_type.decode('latin-1'))[:100]}"
            )


async def read_body(request: Request, media: frozenset[bytes] = JSON) -> bytes:
    """Return the whole body of a request whose media type is JSON, or one of `media`.

    Raises UnsupportedMediaType and ClientDisconnect; and the errors of the request scope while it
    receives: BodyTooLarge, BodyTimeout, BrokenEncoding and Overloaded.
    """
    check_media(request.scope, media)
    # one bytearray: a list of parts of one byte each would take fifty times as much memory
    body = bytearray()
    has_more = True
    while has_more:  # `request.body()` does the same at five times the cost
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        has_more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        if not has_more and not body:
            return part
        body += part
    return bytes(body)


# Parts of a body are joined up to about this size: each piece costs a call in a thread.
PIECE_BYTES = 1 << 20


async def pieces(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the body of a request in pieces.

    Raises BodyTimeout if the body comes too slowly, ClientDisconnect, and the errors of the request
    scope while it receives.
    """
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
        raise BodyTimeout(
            f"expected at least {limits.batch_bytes_min} bytes of the body in "
            f"{limits.body_seconds_max:g} seconds, found fewer"
        ) from None
    if parts:
        yield b"".join(parts)


async def paced(receive: Receive, limits: Limits) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield the parts of a body as they come, each with whether more parts follow.

    Raises TimeoutError, with the number of bytes that came, if fewer than `batch_bytes_min` bytes
    come in `body_seconds_max` seconds; time in which the server does not wait for the client is not
    counted. Raises ClientDisconnect, and what `receive` raises.
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
