"""Who falls to a canary: the right share of keys, the same in every process, none back as it grows."""

from __future__ import annotations

import math
import random

import pytest

from model_store.alias import PARTS, Alias, Beside
from service.serving.split import Chooser, live_split

N_KEYS = 20_000
CHANCE = 1e-9
"""That a share lies outside its bounds if keys were drawn anew; they are not."""


def keys(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    numbered = [b"user-%d" % i for i in range(N_KEYS // 2)]
    return numbered + [rng.randbytes(rng.randint(1, 40)).hex().encode() for _ in range(N_KEYS // 2)]


def log_tail(n: int, p: float, k: int) -> float:
    """The logarithm of the chance of k of n or one farther from n p, at most: Chernoff's bound."""
    q = k / n
    if q in (0.0, 1.0):
        return n * math.log(1 - p if q == 0 else p)
    return -n * (q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)))


@pytest.mark.parametrize("part", [1, 50, 500, 1000, 5000, 9000, 9999])
def test_the_share_is_the_weight(part: int) -> None:
    for seed, version in ((1, 2), (2, 77)):
        chooser = Chooser("canary", "debtags", version, part)
        found = sum(map(chooser.takes, keys(seed)))
        assert log_tail(N_KEYS, part / PARTS, found) > math.log(CHANCE), found


def test_a_weight_that_grows_moves_no_key_back() -> None:
    taken: set[bytes] = set()
    for part in (1, 10, 500, 2000, 2001, 5000, 9999, PARTS):
        now = {key for key in keys(3) if Chooser("canary", "m", 4, part).takes(key)}
        assert taken <= now
        taken = now
    assert len(taken) == len(set(keys(3)))
    assert not any(map(Chooser("canary", "m", 4, 0).takes, keys(3)))


def test_the_points_are_those_of_every_process_and_release() -> None:
    """A replica of another release must choose alike: these never change."""
    chooser = Chooser("canary", "debtags", 4, 1000)
    found = [i for i in range(100) if chooser.takes(b"user-%d" % i)]
    assert found == [17, 26, 30, 47, 48, 50, 55, 66, 77, 86, 88, 92, 99]


def test_each_canary_has_other_users() -> None:
    whose = (("canary", "m", 4), ("canary", "m", 5), ("shadow", "m", 4), ("canary", "n", 4))
    sets = [{key for key in keys(5) if Chooser(*one, 1000).takes(key)} for one in whose]
    for i, one in enumerate(sets):
        for other in sets[:i]:
            assert 0.04 * len(one) < len(one & other) < 0.25 * len(one)


def test_what_is_not_open_answers_nothing() -> None:
    alias = Alias(1, (), Beside(2, 9999), Beside(3, PARTS))
    both = live_split("m", alias, "two", "three")
    chosen = [both.choose("one", b"%d" % i) for i in range(100)]
    assert {served for served, _ in chosen} <= {"one", "two"}
    assert {shadow for _, shadow in chosen} == {"three"}
    one = live_split("m", alias._replace(canary=None), None, "three")
    assert one.choose("one", b"any") == ("one", "three")
