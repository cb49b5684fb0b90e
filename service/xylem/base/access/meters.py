"""KeyMeter: what a key sends to this process, held within the key's limits.

The limits are token buckets: a bucket fills at the rate of its limit, and holds what the rate gives
in a second, at least one token. A request takes its token when it begins. Rows are charged after
the answer, since nobody knows their number before: that bucket may go below zero, and no request
begins until it is above.
"""

import math
import time
from asyncio import sleep
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from xylem.base.errors import BadParameter, TooManyRequests

RATE_MIN = 0.001  # one request, or row, in 17 minutes
RATE_MAX = 1e9
IN_FLIGHT_MAX = 1_000_000

# How old the headers of an answer to a whole request may be: making them costs a microsecond.
LINES_SECONDS = 0.1

_ROUNDING = 1e-6  # seconds that a bucket may lack of a token: sums of times are not exact


class KeyLimits(NamedTuple):
    """The limits of a key in each process; None: no limit."""

    requests_per_second: float | None = None
    rows_per_second: float | None = None
    in_flight: int | None = None

    def check(self) -> None:
        """Raise BadParameter for a limit that is out of its range, or no number."""
        for name, value in self._asdict().items():
            value_min, value_max = (
                (1, IN_FLIGHT_MAX) if name == "in_flight" else (RATE_MIN, RATE_MAX)
            )
            # written so that NaN is refused, too
            if value is not None and not value_min <= value <= value_max:
                raise BadParameter(
                    f"{name}: expected {value_min:g} to {value_max:g}, found {value:g}"
                )

    def over(self, defaults: "KeyLimits") -> "KeyLimits":
        """Return these limits, with defaults where there are none."""
        return defaults._replace(
            **{name: limit for name, limit in self._asdict().items() if limit is not None}
        )


@dataclass(slots=True)
class Senders:
    """How many senders have requests in flight."""

    n: int = 0


class KeyMeter:
    """The requests and rows of one sender, and its limits. Event loop only.

    A bucket is one number: the time at which it will be full again (the generic cell rate
    algorithm, ITU-T I.371). So nothing has to fill it.

    is_limited   whether the sender has a limit
    open_at      the time from which its next request may begin
    n_in_flight  its requests in flight; those that are answered from their bytes never are
    lines        `headers` as bytes, at most LINES_SECONDS old, for answers to whole requests
    """

    __slots__ = (
        "_in_flight_max",
        "_limits",
        "_lines_until",
        "_policy",
        "_request_seconds",
        "_requests_full_at",
        "_requests_slack",
        "_row_seconds",
        "_rows_full_at",
        "_rows_slack",
        "_senders",
        "_ticks",
        "is_limited",
        "lines",
        "n_in_flight",
        "open_at",
    )

    def __init__(
        self,
        limits: KeyLimits = KeyLimits(),
        senders: Senders | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._senders = senders or Senders()
        self._ticks = ticks
        self.is_limited = any(limit is not None for limit in limits)
        self.open_at = -math.inf
        self.n_in_flight = 0
        requests = limits.requests_per_second or math.inf
        rows = limits.rows_per_second or math.inf
        self._request_seconds = 1 / requests
        self._row_seconds = 1 / rows
        # the longest times until the buckets are full with which a request may begin
        self._requests_slack = _window(requests) - self._request_seconds + _ROUNDING
        self._rows_slack = _window(rows) - _ROUNDING
        self._in_flight_max = math.inf if limits.in_flight is None else limits.in_flight
        self._requests_full_at = self._rows_full_at = 0.0
        policies = [
            f'"{name}";q={int(rate * _window(rate) + _ROUNDING)};w={math.ceil(_window(rate))}'
            for name, rate in (
                ("requests", limits.requests_per_second),
                ("rows", limits.rows_per_second),
            )
            if rate is not None
        ]
        if limits.in_flight is not None:
            policies.append(f'"in-flight";q={limits.in_flight};qu="concurrent-requests"')
        self._policy = ", ".join(policies)
        self.lines = b""
        self._lines_until = 0.0

    def charge(self, n_requests: int, n_rows: int) -> None:
        """Take the tokens of requests that begin, and of rows that have been answered."""
        if not self.is_limited:
            return
        now = self._ticks()
        # no calls of `max`: whole requests come here, too
        full_at = self._requests_full_at
        full_at = (now if now > full_at else full_at) + n_requests * self._request_seconds
        self._requests_full_at = full_at
        open_at = full_at - self._requests_slack
        full_at = self._rows_full_at
        full_at = (now if now > full_at else full_at) + n_rows * self._row_seconds
        self._rows_full_at = full_at
        full_at -= self._rows_slack
        self.open_at = open_at if open_at > full_at else full_at
        if now > self._lines_until:
            self._lines_until = now + LINES_SECONDS
            self.lines = "".join(
                [f"{name}: {line}\r\n" for name, line in self.headers().items()]
            ).encode()

    def enter(self) -> None:
        """Begin a request that is in flight until `leave`. Raises TooManyRequests."""
        if self._ticks() < self.open_at or self.n_in_flight >= self._in_flight_max:
            raise self.refusal()
        self.charge(1, 0)
        self._senders.n += self.n_in_flight == 0
        self.n_in_flight += 1

    def leave(self) -> None:
        """Count out a request that is answered."""
        self.n_in_flight -= 1
        self._senders.n -= self.n_in_flight == 0

    async def take_rows(self, n_rows: int) -> None:
        """Wait until rows of a stream may be answered, and charge them.

        A stream is slowed, not refused, and the number of its lines is known before the answer.
        """
        while (seconds := self._rows_full_at - self._ticks() - self._rows_slack) > 0:
            await sleep(seconds)
        self.charge(0, n_rows)

    def block_rows(self, rows_max: int) -> int:
        """Return the most rows to answer at a time: `rows_max`, or those of a second."""
        rows = self._limits.rows_per_second
        return rows_max if rows is None else max(1, min(rows_max, int(rows)))

    def exceeds_share(self, n_places: int) -> bool:
        """Return whether the sender has more than its share, if all senders share the places.

        A sender that is alone may have all.
        """
        n_senders = self._senders.n
        return n_senders > 1 and self.n_in_flight * n_senders > n_places

    def headers(self) -> dict[str, str]:
        """Return the headers that tell the limits, and what is left of them; none without limits.

        They are RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-10, lists of
        structured fields (RFC 9651).
        """
        if not self.is_limited:
            return {}
        now = self._ticks()
        limits = self._limits
        items = []
        for name, rate, full_at in (
            ("requests", limits.requests_per_second, self._requests_full_at),
            ("rows", limits.rows_per_second, self._rows_full_at),
        ):
            if rate is not None:
                seconds = max(0.0, full_at - now)
                n_left = max(0, int(rate * (_window(rate) + _ROUNDING - seconds)))
                items.append(f'"{name}";r={n_left};t={math.ceil(seconds)}')
        if limits.in_flight is not None:
            items.append(f'"in-flight";r={max(0, limits.in_flight - self.n_in_flight)}')
        return {"ratelimit": ", ".join(items), "ratelimit-policy": self._policy}

    def refusal(self) -> TooManyRequests:
        """Return the error of a request that may not begin now."""
        limits = self._limits
        now = self._ticks()
        requests_seconds = self._requests_full_at - now - self._requests_slack
        rows_seconds = self._rows_full_at - now - self._rows_slack
        if requests_seconds > 0:
            expected = f"at most {limits.requests_per_second:g} requests a second"
        elif rows_seconds > 0:
            expected = f"at most {limits.rows_per_second:g} rows a second"
        else:
            expected = f"at most {limits.in_flight} requests at a time"
        return TooManyRequests(
            f"expected {expected} with this key, found more",
            {
                "retry-after": str(max(1, math.ceil(max(requests_seconds, rows_seconds)))),
                **self.headers(),
            },
        )


def _window(rate: float) -> float:
    """Return the seconds in which an empty bucket fills: one, or those of one token."""
    return max(1.0, 1 / rate)
