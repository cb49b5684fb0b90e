"""Tail arrays of a version: what is refused, and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model_store.checks import check_version
from model_store.errors import Corrupt
from model_store.version import manifest_of
from tests.small_models import random_rerank, small_draft

DRAFT = small_draft(
    3, kind="decision-tree", n_labels=6, n_features=64, link="argmax", extra=random_rerank(1, 6, 64)
)


def test_good_arrays_pass() -> None:
    manifest_of(DRAFT)


@pytest.mark.parametrize(
    ("name", "index", "value", "expected"),
    [
        ("ptr", 0, 1, "ascending offsets from 0"),
        ("ptr", 1, -1, "ascending offsets from 0"),
        ("ptr", 2, 10**12, "ascending offsets from 0"),
        ("ptr", 6, 1, "ascending offsets from 0"),
        ("features", 0, -1, "features below n_features, ascending"),
        ("features", 1, 64, "features below n_features, ascending"),
        ("features", 1, 0, "features below n_features, ascending"),
        ("values", 2, np.nan, "a finite number"),
        ("norm2", 3, -0.5, "a square, 0 or more"),
        ("norm2", 3, np.inf, "a finite number"),
        ("parameters", 0, 1.5, "alpha from 0 to 1"),
        ("parameters", 0, -0.5, "alpha from 0 to 1"),
        ("parameters", 1, -1, "alpha from 0 to 1, then gamma"),
    ],
)
def test_each_fault_is_named(name: str, index: int, value: Any, expected: str) -> None:
    arrays = DRAFT.arrays()
    changed = arrays[f"tail/{name}"].copy()
    changed[index] = value
    with pytest.raises(Corrupt, match=rf"tail\.{name}\.npy\[{index}\]: expected {expected}"):
        check_version(manifest_of(DRAFT), {**arrays, f"tail/{name}": changed})


@pytest.mark.parametrize("name", ["ptr", "features", "values", "norm2", "parameters"])
def test_all_or_none_of_the_right_shape(name: str) -> None:
    arrays = DRAFT.arrays()
    whole = arrays.pop(f"tail/{name}")
    with pytest.raises(Corrupt, match=f"expected an array tail/{name}, found none"):
        check_version(manifest_of(DRAFT), arrays)
    for other in (whole[:-1], whole.astype(np.float64), whole[None]):
        with pytest.raises(Corrupt, match=r"tail\."):
            check_version(manifest_of(DRAFT), {**arrays, f"tail/{name}": other})


def test_a_label_tree_has_none() -> None:
    with pytest.raises(Corrupt, match="expected no array of tail in a label-tree"):
        manifest_of(small_draft(n_labels=6, n_features=64, extra=random_rerank(1, 6, 64)))
