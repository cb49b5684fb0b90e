"""The generator against its published numbers, and what is built on it."""

from __future__ import annotations

import numpy as np
import pytest

from model_store.compiled.decorators import kernel
from service.kernels.training.random import next_random, random_below, shuffle
from tests.oracles.problems import splitmix64


@kernel
def _draw(state, n):
    found = np.empty(n, np.uint64)
    for i in range(n):
        found[i] = next_random(state)
    return found


@kernel
def _draw_below(state, n, below):
    found = np.empty(n, np.int64)
    for i in range(n):
        found[i] = random_below(state, below)
    return found


@kernel
def _shuffled(state, n, first):
    items = np.arange(n).astype(np.int32)
    shuffle(items, first, state)
    return items


def _state(seed):
    return np.array([seed], np.uint64)


def test_numbers_are_those_of_splitmix64():
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert _draw(_state(1234567), 5).tolist() == published == splitmix64(1234567, 5)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_any_seed_will_do(seed):
    assert _draw(_state(seed), 100).tolist() == splitmix64(seed, 100)


@pytest.mark.parametrize("below", [1, 2, 7, 2**31 - 1])
def test_random_below_stays_below(below):
    found = _draw_below(_state(5), 2000, below)
    assert found.min() >= 0
    assert found.max() < below
    assert found.tolist() == [(z >> 32) * below >> 32 for z in splitmix64(5, 2000)]


def test_shuffle_permutes_the_first_items_only():
    items = _shuffled(_state(3), 50, 30)
    assert sorted(items[:30]) == list(range(30))
    assert items[:30].tolist() != list(range(30))
    assert items[30:].tolist() == list(range(30, 50))
    assert _shuffled(_state(3), 50, 30).tolist() == items.tolist()
    assert _shuffled(_state(4), 50, 30).tolist() != items.tolist()


def test_shuffle_is_fair():
    counts = np.zeros((4, 4))
    for seed in range(4000):
        counts[np.arange(4), _shuffled(_state(seed), 4, 4)] += 1
    assert np.abs(counts / 4000 - 0.25).max() < 0.04
