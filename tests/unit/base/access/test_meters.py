"""Limits of a key: what its buckets admit, what they tell, and shares of places."""

import math
from typing import Any

import pytest

from xylem.base.access import meters
from xylem.base.access.meters import (
    IN_FLIGHT_MAX,
    LINES_SECONDS,
    RATE_MAX,
    RATE_MIN,
    KeyLimits,
    KeyMeter,
    Senders,
)
from xylem.base.errors import BadParameter, TooManyRequests


class Clock:
    """A steady clock that stands still until it is set, far from 0 as that of a machine."""

    now = 1e6

    def __call__(self) -> float:
        return self.now


def meter_of(clock: Clock, senders: Senders | None = None, **limits: Any) -> KeyMeter:
    return KeyMeter(KeyLimits(**limits), senders, clock)


def admitted(meter: KeyMeter, n: int) -> int:
    """How many of n requests are admitted."""
    n_admitted = 0
    for _ in range(n):
        try:
            meter.enter()
            meter.leave()
            n_admitted += 1
        except TooManyRequests:
            pass
    return n_admitted


@pytest.mark.parametrize("rate", [0.01, 0.3, 1, 2.5, 3, 7, 50, 333, 10_000])
def test_a_bucket_holds_a_second_and_fills_at_its_rate(rate: float) -> None:
    clock = Clock()
    meter = meter_of(clock, requests_per_second=rate)
    n_most = max(1, int(rate))
    assert admitted(meter, n_most + 5) == n_most
    n_admitted = 0
    for _ in range(400):
        clock.now += 0.125 / rate
        n_admitted += admitted(meter, 3)
    assert n_admitted == pytest.approx(400 * 0.125, abs=1.1)
    clock.now += 1000 / rate + 1
    assert admitted(meter, n_most + 5) == n_most


def test_rows_are_charged_afterwards_and_may_go_below_zero() -> None:
    clock = Clock()
    meter = meter_of(clock, rows_per_second=100)
    meter.charge(0, 99)
    assert admitted(meter, 10) == 10
    meter.charge(0, 501)  # six seconds' rows: 500 below zero
    for seconds, n in ((0, 0), (4.9, 0), (0.2, 5)):
        clock.now += seconds
        assert admitted(meter, 5) == n
    clock.now += 100
    meter.charge(0, 0)
    assert admitted(meter, 1) == 1


def test_requests_in_flight_are_bounded() -> None:
    meter = meter_of(Clock(), in_flight=2)
    for _ in range(2):
        meter.enter()
    with pytest.raises(TooManyRequests, match="at most 2 requests at a time with this key") as full:
        meter.enter()
    assert full.value.headers == {
        "retry-after": "1",
        "ratelimit": '"in-flight";r=0',
        "ratelimit-policy": '"in-flight";q=2;qu="concurrent-requests"',
    }
    meter.leave()
    assert admitted(meter, 1) == 1


def test_a_refusal_says_when_and_the_headers_what_is_left() -> None:
    clock = Clock()
    meter = meter_of(clock, requests_per_second=50, rows_per_second=2000.5, in_flight=16)
    assert meter.headers() == {
        "ratelimit": '"requests";r=50;t=0, "rows";r=2000;t=0, "in-flight";r=16',
        "ratelimit-policy": '"requests";q=50;w=1, "rows";q=2000;w=1, '
        '"in-flight";q=16;qu="concurrent-requests"',
    }
    assert admitted(meter, 20) == 20
    assert meter.headers()["ratelimit"].startswith('"requests";r=30;t=1, ')
    meter.charge(0, 10_000)
    assert '"rows";r=0;t=5' in meter.headers()["ratelimit"]
    with pytest.raises(TooManyRequests, match=r"at most 2000\.5 rows a second") as refused:
        meter.enter()
    assert refused.value.headers["retry-after"] == "4"
    slow = meter_of(clock, requests_per_second=0.01)
    slow.enter()
    with pytest.raises(TooManyRequests, match=r"at most 0\.01 requests a second") as refused:
        slow.enter()
    assert refused.value.headers["retry-after"] == "100"
    assert slow.headers()["ratelimit-policy"] == '"requests";q=1;w=100'


def test_the_lines_of_whole_requests_are_made_now_and_then() -> None:
    clock = Clock()
    meter = meter_of(clock, requests_per_second=50)
    meter.enter()
    first = meter.lines
    assert first.startswith(b'ratelimit: "requests";r=49;t=1\r\nratelimit-policy: ')
    admitted(meter, 9)
    assert meter.lines == first
    clock.now += 1.5 * LINES_SECONDS
    meter.enter()
    assert b"r=46" in meter.lines
    assert meter_of(clock).lines == b""


def test_without_limits_nothing_is_refused_or_told() -> None:
    meter = KeyMeter()
    meter.charge(0, 1 << 60)
    assert admitted(meter, 1000) == 1000
    assert (meter.is_limited, meter.headers(), meter.block_rows(9)) == (False, {}, 9)


async def test_a_stream_waits_for_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(meters, "sleep", sleep)
    meter = meter_of(clock, rows_per_second=50)
    assert (meter.block_rows(2048), meter.block_rows(8)) == (50, 8)
    for n_rows in (49, 51, 100, 1):
        await meter.take_rows(n_rows)
    assert waits == pytest.approx([1, 2], abs=0.01)
    with pytest.raises(TooManyRequests):
        meter.enter()


def test_senders_share_the_places() -> None:
    senders = Senders()
    one, other = (meter_of(Clock(), senders) for _ in range(2))
    for _ in range(10):
        one.enter()
    assert not one.exceeds_share(10)
    other.enter()
    assert (one.exceeds_share(10), other.exceeds_share(10)) == (True, False)
    other.leave()
    assert not one.exceeds_share(10)
    for _ in range(10):
        one.leave()
    assert senders.n == 0


def test_defaults_stand_where_a_key_has_no_limit() -> None:
    defaults = KeyLimits(10, 20, 30)
    assert KeyLimits(rows_per_second=5).over(defaults) == (10, 5, 30)
    assert KeyLimits().over(KeyLimits()) == (None, None, None)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, 1e99])
@pytest.mark.parametrize("name", KeyLimits._fields)
def test_limits_are_above_zero_and_finite(name: str, value: float) -> None:
    with pytest.raises(BadParameter, match=f"^{name}: expected .* to .*, found "):
        KeyLimits(**{name: value}).check()


def test_the_bounds_of_limits_are_allowed() -> None:
    KeyLimits(RATE_MIN, RATE_MAX, IN_FLIGHT_MAX).check()
    KeyLimits(RATE_MAX, RATE_MIN, 1).check()
