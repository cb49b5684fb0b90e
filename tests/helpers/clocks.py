"""A clock for coroutines that wait only for each other and for time: it leaps, no test waits."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LeapingClock:
    """A clock that stands still while there is work, and then leaps to the next event.

    So the tests do not depend on the speed of the machine. It can replace the module `time` in a
    module that uses only `monotonic`.
    """

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Return the sum of all leaps so far, in seconds."""
        return self._now

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in an event loop that uses this clock."""
        with asyncio.Runner(loop_factory=self._loop) as runner:
            return runner.run(main())

    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(_Selector(self))
        loop.time = self.monotonic
        return loop


class _Selector(selectors.DefaultSelector):
    """A selector that does not wait, but lets the clock leap by the timeout."""

    def __init__(self, clock: LeapingClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(None if timeout is None else 0)
        if not events and timeout:
            self._clock._now += timeout
        return events
