"""Make versions wrong on purpose, with changes of arrays and counts as by a hostile writer."""

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from xylem_store.manifest import Manifest

Arrays = dict[str, np.ndarray]


def mutated(
    rng: random.Random, manifest: Manifest, arrays: Mapping[str, Any]
) -> tuple[Manifest, Arrays]:
    """Return a version with one to three changes; by chance it may still be valid."""
    changed = dict(arrays)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.06:
            manifest = _other_counts(rng, manifest)
            continue
        name = rng.choice([n for n, array in changed.items() if array.size])
        array = changed[name].copy()
        if rng.random() < 0.08:
            array = _other_length(rng, array)
        else:
            _change_element(rng, array.reshape(-1))
        changed[name] = array
    return manifest, changed


def _other_counts(rng: random.Random, manifest: Manifest) -> Manifest:
    name = rng.choice(["n_trees", "n_nodes", "n_chunks", "n_labels", "n_features"])
    value = getattr(manifest, name)
    value = rng.choice(
        [value + 1, max(value - 1, 0 if name == "n_chunks" else 1), 2 * value, 2**31 - 2]
    )
    return dataclasses.replace(manifest, **{name: value})


def _other_length(rng: random.Random, array: np.ndarray) -> np.ndarray:
    if rng.random() < 0.5:
        return array[: rng.randrange(len(array))]
    return np.concatenate([array, array[-rng.randint(1, len(array)) :]])


def _change_element(rng: random.Random, flat: np.ndarray) -> None:
    i, other = rng.randrange(len(flat)), rng.randrange(len(flat))
    if rng.random() < 0.2:
        flat[i], flat[other] = flat[other], flat[i]
    elif rng.random() < 0.3:
        raw = flat[i : i + 1].view(np.uint8)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif flat.dtype.kind == "f":
        flat[i] = rng.choice([np.nan, np.inf, -np.inf, -1e-9, 0.0, 1.0, 1.5, -3e38])
    else:
        info = np.iinfo(flat.dtype)
        with np.errstate(over="ignore"):
            near = [flat[i] + flat.dtype.type(1), flat[i] - flat.dtype.type(1), flat[other]]
        flat[i] = rng.choice([info.min, info.max, 0, 1, rng.randrange(100), *near])
