"""What does the steps of a call, over httpx: one driver that blocks, one for asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

from xylem.steps import Close, Emit, Failure, Head, Next, Open, Request, Sleep, Steps, Told
from xylem.target import Target

T = TypeVar("T")

_CHUNK_BYTES = 1 << 16
_CONNECTIONS_MAX = 64
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Step = Open | Next | Close | Sleep | Emit


def _settings(target: Target, timeout: float) -> dict[str, Any]:
    """Return how both clients of httpx are made: nothing of the environment, no redirects, no encodings."""
    return {
        "base_url": f"{target.origin}{target.prefix}",
        "headers": {**target.authorization, "accept-encoding": "identity", "user-agent": "xylem-client"},
        "timeout": timeout,
        "follow_redirects": False,
        "trust_env": False,
        "verify": target.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # one that trusts nobody
        "limits": httpx.Limits(max_connections=_CONNECTIONS_MAX),
    }


def _failure(error: Exception) -> Failure:
    """Return what an error of the transport says; none of those has headers in its message."""
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(f"expected an answer, found {detail}", not isinstance(error, _NOT_SENT))


def _head(response: httpx.Response) -> Head:
    return Head(response.status_code, {name.lower(): value for name, value in response.headers.items()})


def _headers(request: Request) -> dict[str, str]:
    headers = dict(request.headers)
    if isinstance(request.body, Path):
        headers["content-length"] = str(request.body.stat().st_size)
    return headers


def _file_parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(_CHUNK_BYTES):
            yield part


async def _file_parts_async(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while part := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield part


class Driver:
    """Does steps in the thread that calls; several threads may call."""

    def __init__(self, target: Target, timeout: float) -> None:
        self._http = httpx.Client(**_settings(target, timeout))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, steps: Steps[T]) -> T:
        """Do all steps; return what they return."""
        wire = _Wire(self._http)
        told: Told = None
        try:
            while True:
                told = wire.do(steps.send(told))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            wire.close()

    def iterate(self, steps: Steps[None]) -> Iterator[Any]:
        """Do all steps; yield what they emit."""
        wire = _Wire(self._http)
        told: Told = None
        try:
            while True:
                try:
                    step = steps.send(told)
                except StopIteration:
                    return
                told = None
                if isinstance(step, Emit):
                    yield step.value
                else:
                    told = wire.do(step)
        finally:
            wire.close()


class _Wire:
    """The answer that is open, if one is."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._response: httpx.Response | None = None
        self._parts: Iterator[bytes] = iter(())

    def do(self, step: Step) -> Told:
        """Do a step; return what became of it."""
        if isinstance(step, Sleep):
            time.sleep(step.seconds)
        elif isinstance(step, Close):
            self.close()
        elif isinstance(step, Open):
            return self._open(step.request)
        elif isinstance(step, Next):
            try:
                return next(self._parts, b"")
            except (httpx.HTTPError, httpx.StreamError) as error:
                return _failure(error)
        return None

    def _open(self, request: Request) -> Head | Failure:
        self.close()
        body = _file_parts(request.body) if isinstance(request.body, Path) else request.body
        try:
            made = self._http.build_request(
                request.method, request.path, content=body, headers=_headers(request)
            )
            self._response = self._http.send(made, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure(error)
        self._parts = self._response.iter_raw()
        return _head(self._response)

    def close(self) -> None:
        """Let go of the answer."""
        if self._response is not None:
            self._response.close()
            self._response = None


class AsyncDriver:
    """Does steps in the event loop that calls; belongs to one loop."""

    def __init__(self, target: Target, timeout: float) -> None:
        self._http = httpx.AsyncClient(**_settings(target, timeout))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, steps: Steps[T]) -> T:
        """Do all steps; return what they return."""
        wire = _AsyncWire(self._http)
        told: Told = None
        try:
            while True:
                try:
                    step = steps.send(told)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                told = await wire.do(step)
        finally:
            await wire.close()

    async def iterate(self, steps: Steps[None]) -> AsyncIterator[Any]:
        """Do all steps; yield what they emit."""
        wire = _AsyncWire(self._http)
        told: Told = None
        try:
            while True:
                try:
                    step = steps.send(told)
                except StopIteration:
                    return
                told = None
                if isinstance(step, Emit):
                    yield step.value
                else:
                    told = await wire.do(step)
        finally:
            await wire.close()


class _AsyncWire:
    """The answer that is open, if one is."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._response: httpx.Response | None = None
        self._parts: AsyncIterator[bytes] | None = None

    async def do(self, step: Step) -> Told:
        """Do a step; return what became of it."""
        if isinstance(step, Sleep):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Close):
            await self.close()
        elif isinstance(step, Open):
            return await self._open(step.request)
        elif isinstance(step, Next) and self._parts is not None:
            try:
                return await anext(self._parts, b"")
            except (httpx.HTTPError, httpx.StreamError) as error:
                return _failure(error)
        return None

    async def _open(self, request: Request) -> Head | Failure:
        await self.close()
        body = _file_parts_async(request.body) if isinstance(request.body, Path) else request.body
        try:
            made = self._http.build_request(
                request.method, request.path, content=body, headers=_headers(request)
            )
            self._response = await self._http.send(made, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _failure(error)
        self._parts = self._response.aiter_raw()
        return _head(self._response)

    async def close(self) -> None:
        """Let go of the answer."""
        if self._response is not None:
            await self._response.aclose()
            self._response = None
