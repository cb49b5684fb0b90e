"""When a call is tried again, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from xylem.errors import ClientError, ConnectionFailed, ProblemError

RETRIED = frozenset({200, 429, 502, 503, 504})
"""Statuses that say: not now. 200: a fault that ended a stream after its head."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How a call that may safely be repeated is tried again.

    Waits are drawn from between half of, and all of, a bound that doubles each time (exponential backoff
    with jitter). A Retry-After of the server is waited for in full, up to `retry_after_seconds_max`.

    times                    retries after the first try; 0: none
    first_seconds            bound of the first wait
    seconds_max              bound of each wait without Retry-After
    retry_after_seconds_max  of a Retry-After, no more is waited
    total_seconds_max        of all waits of a call; a wait that would pass it is not begun
    seed                     of the jitter; None: drawn
    """

    times: int = 4
    first_seconds: float = 0.2
    seconds_max: float = 10.0
    retry_after_seconds_max: float = 60.0
    total_seconds_max: float = 120.0
    seed: int | None = None
    _random: random.Random = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"retries: expected at least 0, found {self.times}")
        object.__setattr__(self, "_random", random.Random(self.seed))

    def draw(self, tried: int) -> float:
        """Return the wait after `tried` retries, without Retry-After."""
        bound = min(self.first_seconds * 2.0 ** min(tried, 32), self.seconds_max)
        return bound * self._random.uniform(0.5, 1.0)


class Attempts:
    """The retries of one call: how many there were, and how long was waited."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._tried = 0
        self._waited = 0.0

    def next_wait(self, asked: float | None = None) -> float | None:
        """Return the seconds to wait before the next retry; None: there is none.

        asked  by the server's Retry-After
        """
        most = self._retries
        if self._tried >= most.times:
            return None
        wait = most.draw(self._tried)
        if asked is not None:
            wait = min(asked, most.retry_after_seconds_max) + min(wait, most.first_seconds)
        if self._waited + wait > most.total_seconds_max:
            return None
        self._tried += 1
        self._waited += wait
        return wait

    def restart(self) -> None:
        """Count from the beginning: there was progress."""
        self._tried, self._waited = 0, 0.0


def wait_after(error: ClientError, attempts: Attempts, *, repeatable: bool) -> float | None:
    """Return how long to wait before a request that failed is sent again; None: it is not."""
    if isinstance(error, ConnectionFailed):
        return attempts.next_wait() if repeatable or not error.was_sent else None
    if isinstance(error, ProblemError) and repeatable and error.status in RETRIED:
        return attempts.next_wait(error.retry_after)
    return None
