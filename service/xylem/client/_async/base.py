"""The base of the client: connections by httpcore, the key, retries; answers, events, downloads."""

import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpcore

from xylem.client.calls import JsonObject, Request, Target, read_object, request_of
from xylem.client.events import EventParser, ServerEvent
from xylem.client.refusals import refusal_of
from xylem.client.results import read_as
from xylem.client.retries import Attempts, Retries, wait_after
from xylem.client.runtime import AsyncSemaphore, T, async_file_parts, async_sleep
from xylem.errors import BadAnswer, ClientError, ConnectionFailed

ANSWER_BYTES_MAX = 256 << 20  # the most bytes of an answer in memory

_CALLS_MAX = 64
_KEPT_SECONDS = 5.0
_FAULTS = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)
_NOT_SENT = (httpcore.ConnectError, httpcore.ConnectTimeout)


def _failure(error: Exception) -> ConnectionFailed:
    """Return the error for an error of a connection, whose message never has headers."""
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ConnectionFailed(
        f"expected an answer, found {detail}", was_sent=not isinstance(error, _NOT_SENT)
    )


class AsyncWire:
    """Connections to one server, each for one request at a time; the last one used is used first.

    A pool of httpcore, or of httpx, looks at all its connections for each request: with 64 of them
    that took more processor time than all else (docs/adr/0017-one-connection-a-call.md).
    """

    def __init__(self, target: Target, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        self._origin = httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port)
        self._headers = [(name.encode(), value.encode()) for name, value in target.headers.items()]
        self._extensions = {"timeout": {"connect": timeout, "read": timeout, "write": timeout}}
        self._turns = AsyncSemaphore(_CALLS_MAX)
        self._idle: deque[tuple[httpcore.AsyncHTTPConnection, float]] = deque()
        self._is_closed = False

    async def exchange(self, request: Request) -> bytes:
        """Send a request; return the body of its answer.

        Once the head has come, the whole body may take as long as a single wait. At most 64
        requests are under way, others wait for their turn. Raises ClientError.
        """
        async with self._turns:
            answer = await self.open(request)
            return await answer.read(self._timeout)

    async def open(self, request: Request) -> "AsyncAnswer":
        """Send a request; return its answer, whose body is not read yet. The caller closes it.

        Raises ClientError, also for a status other than success; RuntimeError after `close`.
        """
        if self._is_closed:
            raise RuntimeError("expected a client that is open, found one that was closed")
        headers = [
            *self._headers,
            *((name.encode(), value.encode()) for name, value in request.headers),
        ]
        content: Any = request.body
        if isinstance(content, Path):
            headers.append((b"content-length", b"%d" % content.stat().st_size))
            content = async_file_parts(content)
        elif content is not None:
            headers.append((b"content-length", b"%d" % len(content)))
        url = httpcore.URL(
            scheme=self._origin.scheme,
            host=self._origin.host,
            port=self._origin.port,
            target=f"{self._target.prefix}{request.path}".encode("ascii"),
        )
        connection = await self._acquire()
        try:
            response = await connection.handle_async_request(
                httpcore.Request(
                    request.method,
                    url,
                    headers=headers,
                    content=content,
                    extensions=self._extensions,
                )
            )
        except _FAULTS as error:
            raise _failure(error) from None
        answer = AsyncAnswer(self, connection, response)
        if 200 <= answer.status < 300:
            return answer
        raise refusal_of(answer.status, answer.headers, await answer.read(self._timeout))

    async def release(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """Keep a connection for the next request, if possible; close those idle for too long."""
        now = time.monotonic()
        if connection.is_idle() and not self._is_closed:
            self._idle.append((connection, now))
        else:
            await connection.aclose()
        while self._idle and now - self._idle[0][1] > _KEPT_SECONDS:
            await self._idle.popleft()[0].aclose()

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop()[0].aclose()

    async def _acquire(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.has_expired():  # the server has not closed it
                return connection
            await connection.aclose()
        return httpcore.AsyncHTTPConnection(
            self._origin, ssl_context=self._target.tls, keepalive_expiry=_KEPT_SECONDS
        )


class AsyncAnswer:
    """The status and headers of an answer, names in lower case, and a body to read once."""

    def __init__(
        self, wire: AsyncWire, connection: httpcore.AsyncHTTPConnection, response: httpcore.Response
    ) -> None:
        self.status = response.status
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        self._wire = wire
        self._connection = connection
        self._response = response
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body in parts. Raises ConnectionFailed."""
        try:
            async for part in self._response.aiter_stream():
                yield part
        except _FAULTS as error:
            raise _failure(error) from None

    async def read(self, seconds_max: float) -> bytes:
        """Return the body, and close the answer. Raises ConnectionFailed and BadAnswer."""
        parts: list[bytes] = []
        n_bytes = 0
        deadline = time.monotonic() + seconds_max
        try:
            async for part in self._response.aiter_stream():
                parts.append(part)
                n_bytes += len(part)
                if n_bytes > ANSWER_BYTES_MAX:
                    raise BadAnswer(
                        f"expected an answer of at most {ANSWER_BYTES_MAX} bytes, found more"
                    )
                if time.monotonic() > deadline:
                    raise ConnectionFailed(
                        f"expected the whole answer within {seconds_max:g} seconds, "
                        "found part of it"
                    )
            return b"".join(parts)
        except _FAULTS as error:
            raise _failure(error) from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Release the connection; it is used again if the whole body was read."""
        if not self._is_closed:
            self._is_closed = True
            await self._response.aclose()
            await self._wire.release(self._connection)


TIMEOUT_SECONDS = 60.0


class AsyncBase:
    """Sends requests, repeatedly if that is safe and may help."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        retries: int | Retries | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout: expected seconds above 0, found {timeout}")
        self._target = Target(url, key, tls)
        self._retries = Retries(times=retries) if isinstance(retries, int) else retries or Retries()
        self._wire = AsyncWire(self._target, timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    async def _send(self, request: Request) -> bytes:
        """Send a request, repeatedly if it may be; return the body of its answer.

        Raises ClientError.
        """
        attempts = Attempts(self._retries)
        while True:
            try:
                return await self._wire.exchange(request)
            except ClientError as error:
                await async_sleep(wait_after(error, attempts, repeatable=request.repeatable))

    async def _read(self, kind: type[T], request: Request) -> T:
        return read_as(kind, await self._send(request))

    async def call(self, method: str, path: str, **fields: Any) -> JsonObject:
        """Return the JSON object that answers a request of any path, such as /v1/admin/keys.

        fields  the query, or for PUT and POST the body; those that are None are left out

        Raises ClientError.
        """
        return read_object(await self._send(request_of(method, path, fields)))

    async def _events(self, path: str) -> AsyncGenerator[ServerEvent]:
        """Yield the events of a path until the server ends them.

        After a failure it goes on behind the last event.
        """
        parser = EventParser()
        attempts = Attempts(self._retries)
        while True:
            headers = [("accept", "text/event-stream")]
            if parser.last_id:
                headers.append(("last-event-id", parser.last_id))
            request = Request("GET", path, headers=tuple(headers), repeatable=True)
            try:
                async with await self._wire.open(request) as answer:
                    async for part in answer.parts():
                        for event in parser.feed(part):
                            attempts.restart()
                            yield event
                return
            except ClientError as error:
                await async_sleep(wait_after(error, attempts, repeatable=request.repeatable))
            parser.restart()

    async def _download(self, path: str, to: Path) -> int:
        """Write the content of a path to a file; return its bytes.

        After a failure the download begins again. It is written to `to`.part, which is renamed when
        it is complete. Raises ClientError.
        """
        part = to.with_name(f"{to.name}.part")
        attempts = Attempts(self._retries)
        request = Request("GET", path, repeatable=True)
        while True:
            try:
                async with await self._wire.open(request) as answer:
                    with part.open("wb") as out:
                        async for piece in answer.parts():
                            out.write(piece)
                return part.replace(to).stat().st_size
            except ClientError as error:
                await async_sleep(wait_after(error, attempts, repeatable=request.repeatable))
