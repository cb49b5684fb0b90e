"""What makes calls: where to, by which key, how patiently. One for callers that block, one for asyncio."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from xylem.drivers import AsyncDriver, Driver
from xylem.retries import Retries
from xylem.steps import Call, Steps, T, result_of
from xylem.target import Target

TIMEOUT_SECONDS = 60.0


class _Settings:
    """What both have."""

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
        self._timeout = timeout
        self._retries = Retries(times=retries) if isinstance(retries, int) else retries or Retries()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"


class Caller(_Settings):
    """Makes calls in the thread that asks; several threads may."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._driver = Driver(self._target, self._timeout)

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._driver.close()

    def _call(self, call: Call[T]) -> T:
        return self._driver.run(result_of(call, self._retries, self._timeout))

    def _run(self, steps: Steps[T]) -> T:
        return self._driver.run(steps)

    def _iterate(self, steps: Steps[None]) -> Iterator[Any]:
        return self._driver.iterate(steps)


class AsyncCaller(_Settings):
    """Makes calls in the event loop that asks, which is one and the same."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._driver = AsyncDriver(self._target, self._timeout)

    async def __aenter__(self) -> Self:
        """Return this client."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._driver.close()

    async def _call(self, call: Call[T]) -> T:
        return await self._driver.run(result_of(call, self._retries, self._timeout))

    async def _run(self, steps: Steps[T]) -> T:
        return await self._driver.run(steps)

    def _iterate(self, steps: Steps[None]) -> AsyncIterator[Any]:
        return self._driver.iterate(steps)
