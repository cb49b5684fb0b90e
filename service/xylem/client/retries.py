"""How often, and after which pauses, a call is tried again."""

import random
from dataclasses import dataclass, field

from xylem.errors import ClientError, ConnectionFailed, ProblemError

# Statuses to try again after; 200 is a fault that ended a stream after its head.
RETRIED = frozenset({200, 429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retries:
    """The rules by which a call that may safely be repeated is tried again.

    Each wait is drawn between half of a bound and all of it; the bound doubles each time
    (exponential backoff with jitter). A Retry-After of the server is waited for in full, up to
    `retry_after_seconds_max`.

    times                    retries after the first try; 0: none
    first_seconds            bound of the first wait
    seconds_max              bound of each wait without Retry-After
    retry_after_seconds_max  bound of a wait for Retry-After
    total_seconds_max        bound of all waits of a call together; a wait beyond it is not begun
    seed                     of the jitter; None: random
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

    def draw(self, n_retries: int) -> float:
        """Return the wait after `n_retries` retries, without Retry-After."""
        bound = min(self.first_seconds * 2.0 ** min(n_retries, 32), self.seconds_max)
        return bound * self._random.uniform(0.5, 1.0)


class Attempts:
    """The retries of one call: their number, and the time waited so far."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._tried = 0
        self._waited = 0.0

    def next_wait(self, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next retry; None if there is no further retry.

        retry_after  the seconds of the server's Retry-After, if it sent one
        """
        limits = self._retries
        if self._tried >= limits.times:
            return None
        wait = limits.draw(self._tried)
        if retry_after is not None:
            wait = min(retry_after, limits.retry_after_seconds_max) + min(
                wait, limits.first_seconds
            )
        if self._waited + wait > limits.total_seconds_max:
            return None
        self._tried += 1
        self._waited += wait
        return wait

    def restart(self) -> None:
        """Count from the beginning, because the call has made progress."""
        self._tried = 0
        self._waited = 0.0


def wait_after(error: ClientError, attempts: Attempts, *, repeatable: bool) -> float:
    """Return the seconds to wait before a failed request is sent again.

    Raises its error if it must not be sent again.
    """
    seconds = None
    if isinstance(error, ConnectionFailed) and (repeatable or not error.was_sent):
        seconds = attempts.next_wait()
    if isinstance(error, ProblemError) and repeatable and error.status in RETRIED:
        seconds = attempts.next_wait(error.retry_after)
    if seconds is None:
        raise error
    return seconds
