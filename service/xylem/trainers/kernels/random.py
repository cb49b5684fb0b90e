"""Random numbers in kernels: their sequence depends on the seed alone, not on thread or machine."""

from typing import Any

import numpy as np

from xylem.engine import place
from xylem_store import I32, U64, inlined


@inlined
def next_random(state: U64) -> Any:
    """Return the next 64 random bits and advance the state.

    Source: splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators",
    figure 17).

    state  uint64[1]  any value is a seed
    """
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def random_below(state: U64, n: int) -> Any:
    """Return a random integer in [0, n), 0 < n < 2^31; its bias is below n / 2^32."""
    return np.int64(((next_random(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@inlined
def shuffle(items: I32, n: int, state: U64) -> None:
    """Put the first n items into random order (Fisher and Yates)."""
    for i in range(n - 1, 0, -1):
        j = random_below(state, i + 1)
        element = items[place(i)]
        items[place(i)] = items[place(j)]
        items[place(j)] = element
