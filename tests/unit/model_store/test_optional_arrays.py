"""Arrays that a version may have or not, of re-ranking and of calibration: what is refused, and where."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.arrays import file_name, group_of
from model_store.checks import check_version
from model_store.errors import Corrupt
from model_store.extras import KNOTS_MAX, NO_CALIBRATION, assemble_calibration
from model_store.manifest import CALIBRATION
from model_store.origin import JSON_BYTES_MAX, REPORT, json_array, read_report
from model_store.store import Store
from model_store.version import Draft, manifest_of
from tests.small_models import calibrated_draft, random_calibration, random_rerank, small_draft, softmax_draft

RERANKED = small_draft(
    3, kind="decision-tree", n_labels=6, n_features=64, link="argmax", extra=random_rerank(1, 6, 64)
)
CALIBRATED = calibrated_draft(3, n_labels=6)
DRAFTS = {"tail": RERANKED, "calibration": CALIBRATED}
ARRAYS = [f"tail/{part}" for part in ("ptr", "features", "values", "norm2", "parameters")]
ARRAYS += ["calibration/x", "calibration/y"]


def draft_of(name: str) -> Draft:
    return DRAFTS[name.partition("/")[0]]


@pytest.mark.parametrize(
    ("name", "index", "value", "expected"),
    [
        ("tail/ptr", 0, 1, "ascending offsets from 0"),
        ("tail/ptr", 1, -1, "ascending offsets from 0"),
        ("tail/ptr", 2, 10**12, "ascending offsets from 0"),
        ("tail/ptr", 6, 1, "ascending offsets from 0"),
        ("tail/features", 0, -1, "features below 64, ascending"),
        ("tail/features", 1, 64, "features below 64, ascending"),
        ("tail/features", 1, 0, "features below 64, ascending"),
        ("tail/values", 2, np.nan, "a finite number"),
        ("tail/norm2", 3, -0.5, "a square, 0 or more"),
        ("tail/norm2", 3, np.inf, "a finite number"),
        ("tail/parameters", 0, 1.5, "alpha from 0 to 1"),
        ("tail/parameters", 0, -0.5, "alpha from 0 to 1"),
        ("tail/parameters", 1, -1, "alpha from 0 to 1, then gamma"),
        ("calibration/x", 0, 0.01, "0, found"),
        ("calibration/y", 0, 0.01, "0, found"),
        ("calibration/y", 0, -0.1, "0, found"),
        ("calibration/x", 2, 0.0, "more than"),
        ("calibration/y", 2, 0.0, "more than"),
        ("calibration/y", 5, 1.5, "at most 1"),
        ("calibration/x", 5, 1.5, "1, found"),
        ("calibration/x", 5, 0.999, "1, found"),
        ("calibration/x", 3, np.nan, "a finite number"),
        ("calibration/y", 3, np.nan, "a finite number"),
        ("calibration/y", 5, np.inf, "a finite number"),
    ],
)
def test_each_fault_is_named(name: str, index: int, value: Any, expected: str) -> None:
    draft = draft_of(name)
    arrays = draft.arrays()
    changed = arrays[name].copy()
    changed[index] = value
    with pytest.raises(Corrupt, match=rf"{file_name(name)}\[{index}\]: expected {expected}"):
        check_version(manifest_of(draft), {**arrays, name: changed})


@pytest.mark.parametrize("name", ARRAYS)
def test_all_or_none_of_the_right_shape(name: str) -> None:
    draft = draft_of(name)
    arrays = draft.arrays()
    whole = arrays.pop(name)
    with pytest.raises(Corrupt, match=f"expected an array {name}, found none"):
        check_version(manifest_of(draft), arrays)
    for other in (whole[:-1], whole.astype(np.float64), whole[None]):
        with pytest.raises(Corrupt, match=rf"{name.partition('/')[0]}\."):
            check_version(manifest_of(draft), {**arrays, name: other})


def test_a_label_tree_has_none() -> None:
    with pytest.raises(Corrupt, match="expected no array of tail in a label-tree"):
        manifest_of(small_draft(n_labels=6, n_features=64, extra=random_rerank(1, 6, 64)))


def test_good_arrays_pass_and_are_of_schema_4() -> None:
    manifest = manifest_of(CALIBRATED)
    check_version(manifest, CALIBRATED.arrays())
    assert manifest.schema_version == 4
    assert manifest_of(small_draft(3, n_labels=6)).schema_version == 1


def test_a_flat_piece_is_refused() -> None:
    arrays = CALIBRATED.arrays()
    changed = arrays["calibration/y"].copy()
    changed[3] = changed[2]
    with pytest.raises(Corrupt, match=r"calibration\.y\.npy\[3\]: expected more than"):
        check_version(manifest_of(CALIBRATED), {**arrays, "calibration/y": changed})


@pytest.mark.parametrize(("n_knots", "is_taken"), [(1, False), (2, True), (KNOTS_MAX, True), (257, False)])
def test_the_number_of_knots_is_bounded(n_knots: int, is_taken: bool) -> None:
    ramp = np.linspace(0, 1, n_knots, dtype=np.float32)
    changed = {**CALIBRATED.arrays(), "calibration/x": ramp, "calibration/y": ramp}
    if is_taken:
        check_version(manifest_of(CALIBRATED), changed)
    else:
        with pytest.raises(Corrupt, match=f"expected 2 to {KNOTS_MAX} knots, found {n_knots}"):
            check_version(manifest_of(CALIBRATED), changed)


def test_exact_probabilities_have_none() -> None:
    extra = group_of(CALIBRATION, random_calibration(0))
    draft = softmax_draft(8, dim=33)
    with pytest.raises(Corrupt, match="expected no array of calibration with link softmax"):
        check_version(manifest_of(draft), {**draft.arrays(), **extra})


def test_a_version_without_arrays_is_not_calibrated() -> None:
    draft = small_draft(3)
    assert assemble_calibration(manifest_of(draft), draft.arrays()) is NO_CALIBRATION


TOLD = {"balance": [0.5, 0.25], "ö": {"epochs": 3, "done": True, "why": None}}


def test_round_trip_through_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("m", small_draft(extra={REPORT: json_array(REPORT, TOLD)}))
    assert read_report(store.open("m").arrays) == TOLD
    store.publish("m", small_draft())
    assert read_report(store.open("m").arrays) == {}


@pytest.mark.parametrize("report", [{"x": float("nan")}, {"x": object()}, {"x": "y" * JSON_BYTES_MAX}])
def test_what_no_report_is(report: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="report"):
        json_array(REPORT, report)


def test_the_longest_report() -> None:
    longest = {"x": "y" * (JSON_BYTES_MAX - len('{"x":""}'))}
    assert read_report({REPORT: json_array(REPORT, longest)}) == longest


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff", b'{"a":1,"a":1}', b'{"a":NaN}', b'{"a":1e999}', b"[" * 100_000]
)
def test_damaged_reports_are_refused(tmp_path: Path, data: bytes) -> None:
    extra = {REPORT: np.frombuffer(data, np.uint8)}
    with pytest.raises(Corrupt, match=r"report\.json\.npy: expected"):
        Store(tmp_path).publish("m", small_draft(extra=extra))


def test_a_report_of_another_type_is_refused() -> None:
    with pytest.raises(Corrupt, match=r"expected uint8\[\*\], found int8\[3\]"):
        read_report({REPORT: np.zeros(3, np.int8)})
