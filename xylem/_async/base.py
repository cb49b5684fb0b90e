"""What makes calls: where to, by which key, how patiently; answers whole, as events, or into files."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from xylem._async.wire import AsyncAnswer, AsyncWire
from xylem.calls import JsonObject, Request, Target, read_object, request_of
from xylem.errors import BadAnswer, ClientError, ConnectionFailed
from xylem.events import EventParser, ServerEvent
from xylem.results import read_as
from xylem.retries import Attempts, Retries, wait_after
from xylem.runtime import async_sleep

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0

_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18}|\*)")
_RETRY_MS_MAX = 10_000


class AsyncBase:
    """Sends requests, again where that is safe and may help."""

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
        """Return this client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    async def _send(self, request: Request) -> bytes:
        """Return the body of the answer to a request, which may be sent again. Raises ClientError."""
        attempts = Attempts(self._retries)
        while True:
            try:
                return await self._wire.exchange(request)
            except ClientError as error:
                await self._wait(error, request, attempts)

    async def _wait(
        self, error: ClientError, request: Request, attempts: Attempts, at_least: float = 0.0
    ) -> None:
        """Wait until a request that failed may be sent again; raise its error where it may not be."""
        seconds = wait_after(error, attempts, repeatable=request.repeatable)
        if seconds is None:
            raise error
        await async_sleep(max(seconds, at_least))

    async def _read(self, kind: type[T], request: Request) -> T:
        """Return what the answer to a request says. Raises ClientError."""
        return read_as(kind, await self._send(request))

    async def _object(self, method: str, path: str, **fields: Any) -> JsonObject:
        """Return the object that answers a request with such fields, but for those that are None."""
        return read_object(await self._send(request_of(method, path, fields)))

    async def _events(self, path: str) -> AsyncGenerator[ServerEvent]:
        """Yield the events of a path until the server ends them; after a failure go on after the last."""
        parser, attempts = EventParser(), Attempts(self._retries)
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
                await self._wait(error, request, attempts, min(parser.retry_ms or 0, _RETRY_MS_MAX) / 1000)
            parser.restart()

    async def _download(self, path: str, to: Path, *, is_fixed: bool) -> int:
        """Write what a path has to a file; return its bytes.

        It is written to `to`.part, and renamed once it is whole. What breaks off goes on by Range, after a
        failure of the call too if what the path has never changes (`is_fixed`).
        """
        part = to.with_name(f"{to.name}.part")
        attempts, etag = Attempts(self._retries), ""
        with part.open("ab" if is_fixed else "wb") as out:
            while True:
                if not (is_fixed or etag):
                    out.truncate(0)
                size = out.seek(0, os.SEEK_END)
                headers = [("range", f"bytes={size}-")] if size else []
                if size and etag:
                    headers.append(("if-range", etag))
                request = Request("GET", path, headers=tuple(headers), repeatable=True)
                try:
                    async with await self._wire.open(request, also=416 if size else 200) as answer:
                        etag = answer.headers.get("etag", "")
                        await _write(answer, size, out, attempts)
                    break
                except ClientError as error:
                    await self._wait(error, request, attempts)
            out.flush()
            os.fsync(out.fileno())
            n_bytes = out.tell()
        part.replace(to)
        return n_bytes


async def _write(answer: AsyncAnswer, size: int, out: BinaryIO, attempts: Attempts) -> None:
    """Append the body of an answer; what it begins with must be byte `size`, or the first."""
    start, total = _bounds(answer.headers)
    if answer.status == 416:
        if total != size:
            raise BadAnswer(f"expected a file of {size} bytes or more, found one of {total}")
        return
    if answer.status == 206 and start != size:
        raise BadAnswer(f"expected a part of the file from byte {size}, found one from {start}")
    if answer.status == 200:
        out.truncate(0)
        out.seek(0)
        length = answer.headers.get("content-length", "")
        total = int(length) if length.isascii() and length.isdigit() else None
    async for part in answer.parts():
        out.write(part)
        attempts.restart()
    if total is not None and out.tell() != total:
        raise ConnectionFailed(f"expected {total} bytes, found {out.tell()}")


def _bounds(headers: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the first byte that Content-Range names, and the size of the whole; None: not known."""
    found = _RANGE.fullmatch(headers.get("content-range", ""))
    first, total = found.groups() if found else (None, None)
    return (int(first) if first else None), (int(total) if total and total != "*" else None)
