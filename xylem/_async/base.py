"""What makes calls: where to, by which key, how patiently."""

from __future__ import annotations

import ssl
from typing import Any, Self, TypeVar

from xylem._async.wire import AsyncWire
from xylem.calls import JsonObject, Request, read_object, request_of
from xylem.errors import ClientError
from xylem.results import read_as
from xylem.retries import Attempts, Retries, wait_after
from xylem.runtime import async_sleep
from xylem.target import Target

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0


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
