"""Calibration arrays of a version: what is refused, and where; and that older releases refuse them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store import manifest as manifests
from model_store.calibration import KNOTS_MAX, NO_CALIBRATION, assemble_calibration, calibration_arrays
from model_store.checks import check_version
from model_store.errors import Corrupt, UnsupportedSchema
from model_store.store import Store
from model_store.version import manifest_of
from tests.small_models import calibrated_draft, random_calibration, small_draft, softmax_draft

DRAFT = calibrated_draft(3, n_labels=6)


def test_good_arrays_pass_and_are_of_schema_4() -> None:
    manifest = manifest_of(DRAFT)
    check_version(manifest, DRAFT.arrays())
    assert manifest.schema_version == 4
    assert manifest_of(small_draft(3, n_labels=6)).schema_version == 1


@pytest.mark.parametrize(
    ("name", "index", "value", "expected"),
    [
        ("x", 0, 0.01, "0, found"),
        ("y", 0, 0.01, "0, found"),
        ("y", 0, -0.1, "0, found"),
        ("x", 2, 0.0, "more than"),
        ("y", 2, 0.0, "more than"),
        ("y", 5, 1.5, "at most 1"),
        ("x", 5, 1.5, "1, found"),
        ("x", 5, 0.999, "1, found"),
        ("x", 3, np.nan, "a finite number"),
        ("y", 3, np.nan, "a finite number"),
        ("y", 5, np.inf, "a finite number"),
    ],
)
def test_each_fault_is_named(name: str, index: int, value: Any, expected: str) -> None:
    arrays = DRAFT.arrays()
    changed = arrays[f"calibration/{name}"].copy()
    changed[index] = value
    with pytest.raises(Corrupt, match=rf"calibration\.{name}\.npy\[{index}\]: expected {expected}"):
        check_version(manifest_of(DRAFT), {**arrays, f"calibration/{name}": changed})


def test_a_flat_piece_is_refused() -> None:
    arrays = DRAFT.arrays()
    changed = arrays["calibration/y"].copy()
    changed[3] = changed[2]
    with pytest.raises(Corrupt, match=r"calibration\.y\.npy\[3\]: expected more than"):
        check_version(manifest_of(DRAFT), {**arrays, "calibration/y": changed})


@pytest.mark.parametrize("name", ["x", "y"])
def test_both_or_none_of_the_right_shape(name: str) -> None:
    arrays = DRAFT.arrays()
    whole = arrays.pop(f"calibration/{name}")
    with pytest.raises(Corrupt, match=f"expected an array calibration/{name}, found none"):
        check_version(manifest_of(DRAFT), arrays)
    for other in (whole[:-1], whole.astype(np.float64), whole[None]):
        with pytest.raises(Corrupt, match=r"calibration\."):
            check_version(manifest_of(DRAFT), {**arrays, f"calibration/{name}": other})


@pytest.mark.parametrize(("n_knots", "is_taken"), [(1, False), (2, True), (KNOTS_MAX, True), (257, False)])
def test_the_number_of_knots_is_bounded(n_knots: int, is_taken: bool) -> None:
    ramp = np.linspace(0, 1, n_knots, dtype=np.float32)
    changed = {**DRAFT.arrays(), "calibration/x": ramp, "calibration/y": ramp}
    if is_taken:
        check_version(manifest_of(DRAFT), changed)
    else:
        with pytest.raises(Corrupt, match=f"expected 2 to {KNOTS_MAX} knots, found {n_knots}"):
            check_version(manifest_of(DRAFT), changed)


def test_exact_probabilities_have_none() -> None:
    extra = calibration_arrays(random_calibration(0))
    draft = softmax_draft(8, dim=33)
    with pytest.raises(Corrupt, match="expected no array of calibration with link softmax"):
        check_version(manifest_of(draft), {**draft.arrays(), **extra})


def test_a_version_without_arrays_is_not_calibrated() -> None:
    draft = small_draft(3)
    assert assemble_calibration(manifest_of(draft), draft.arrays()) is NO_CALIBRATION


def test_a_release_before_schema_4_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.publish("m", DRAFT)
    monkeypatch.setattr(manifests, "SCHEMA_VERSION", 3)
    with pytest.raises(UnsupportedSchema, match="expected 1 to 3, found 4"):
        store.manifest("m", 1)
