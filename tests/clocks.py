"""A clock for coroutines that wait for nothing but each other and
time: it leaps instead of waiting.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LeapingClock:
    """Stands still while there is work, so that no machine is too
    slow, and leaps to what comes next.

    It can take the place of the module `time` where a module asks only for `monotonic`.
    """

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Return the seconds leapt so far."""
        return self._now

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in an event loop that goes by this clock."""
        with asyncio.Runner(loop_factory=self._loop) as runner:
            return runner.run(main())

    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(_Selector(self))
        loop.time = self.monotonic
        return loop


class _Selector(selectors.DefaultSelector):
    """Lets the clock leap by what it should have waited."""

    def __init__(self, clock: LeapingClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(None if timeout is None else 0)
        if not found and timeout:
            self._clock._now += timeout
        return found
