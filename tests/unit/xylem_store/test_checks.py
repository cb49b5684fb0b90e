"""One version made wrong for every fault that the checks can name;
arrays that a version may have or not.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import (
    calibrated_draft,
    random_calibration,
    random_rerank,
    small_draft,
    softmax_draft,
)

from xylem_store import reading as reading_module
from xylem_store.arrays import file_name, group_of
from xylem_store.build import CHILDREN_MAX, build_ensemble
from xylem_store.checks import FAULTS, check_version
from xylem_store.ensemble import LANES, Chunk, Tree, Weights
from xylem_store.errors import Corrupt
from xylem_store.extras import KNOTS_MAX, NO_CALIBRATION, assemble_calibration
from xylem_store.manifest import CALIBRATION
from xylem_store.names import build_names
from xylem_store.origin import JSON_BYTES_MAX, REPORT, json_array, read_report
from xylem_store.store import Store
from xylem_store.version import Draft, Model, manifest_of

LABEL_TREE = small_draft(n_labels=9, n_features=70, n_trees=2, arity=9, share=0.2)
DECISION_TREE = small_draft(3, kind="decision-tree", n_labels=6, n_features=64)
INF = 0x7F800000
ROW_PTR = LABEL_TREE.ensemble.row_ptr[: LABEL_TREE.ensemble.row_start[1]]
ROW = int(ROW_PTR[np.flatnonzero(np.diff(ROW_PTR) >= 2)[0]])
"""The place of the first sparse word of a row of at least two, in the first chunk."""
N_NODES = len(LABEL_TREE.ensemble.parent)
LEAF = int(np.flatnonzero(LABEL_TREE.ensemble.node_chunk < 0)[0])
LABEL_FAULTS: list[tuple[int | str, str, Any, Any]] = [
    ("the number of trees, 2, first", "child_ptr", 0, 1),
    ("the number of trees, 2, first", "child_ptr", -1, N_NODES + 1),
    ("each child after its parent", "child_ptr", 1, 1),
    ("each child after its parent", "child_ptr", 1, 2**31 - 1),
    ("-1 at a root", "parent", 0, 1),
    ("-1 at a root", "parent", 2, 1),
    (4, "node_label", LEAF, -1),
    (4, "node_label", LEAF, 9),
    (5, "node_label", 0, 0),
    (6, "label_leaf", (0, 0), -1),
    ("-1 at a leaf", "node_chunk", 0, 1),
    ("-1 at a leaf", "node_chunk", -1, 0),
    ("zero at a root", "node_bias", 0, 0.5),
    ("ascending offsets from 0", "block_ptr", 0, 1),
    ("ascending offsets from 0", "block_ptr", -1, 10**9),
    ("ascending offsets from 0", "block_ptr", 1, -1),
    ("ascending offsets from 0", "row_start", 1, 10**18),
    ("ascending offsets from 0", "sparse_ptr", 1, -(10**18)),
    ("ascending offsets from 0", "dense_ptr", -1, 0),
    (17, "dense_ptr", 1, lambda ptr: ptr[1] - 1),
    (18, "directory", (0, 0, 1), 1),
    (19, "directory", (0, 0, 0), 0xFF),
    (20, "directory", (0, 0, 0), 0),
    (21, "blocks", (0, 0), 0),
    (22, "blocks", (2, 0), 0xFFFFFFFF),
    (23, "blocks", (0, 1), lambda blocks: ~blocks[0, 0]),
    (24, "blocks", (0, 2), 1),
    (25, "blocks", (0, 3), 1),
    (26, "row_start", 1, lambda start: start[1] - 1),
    (27, "dense_ptr", 1, lambda ptr: ptr[1] - 16),
    (28, "row_ptr", 0, 1),
    (28, "row_ptr", 1, -5),
    (28, "row_ptr", 1, 2**31 - 1),
    (29, "sparse", [ROW, ROW + 1], lambda words: words[[ROW + 1, ROW]]),
    (29, "sparse", 0, 0xFFFFFFFF),
    (30, "sparse", 0, lambda words: words[0] & 0xFFFFFFFF | INF << 32),
    (31, "dense", 0, np.uint32(0x7F800001).view(np.float32)),
    (32, "dense", 15, 1.0),
    (32, "dense", -1, 1.0),
]
DECISION_FAULTS: list[tuple[int | str, str, Any, Any]] = [
    (5, "node_label", -1, 0),
    ("ascending offsets from 0", "leaf_ptr", -1, 0),
    ("no labels at an inner node", "leaf_ptr", slice(1, None), lambda ptr: np.maximum(ptr[1:], 1)),
    ("leaf_label below 6, ascending", "leaf_label", 0, 6),
    ("leaf_label below 6, ascending", "leaf_label", 0, -1),
    ("values from 0 to 1", "leaf_value", 0, 1.5),
    ("values from 0 to 1", "leaf_value", 0, -0.1),
]


def refusal(draft: Draft, arrays: dict[str, Any], **counts: Any) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        check_version(dataclasses.replace(manifest_of(draft), **counts), arrays)
    return caught.value


@pytest.mark.parametrize(
    ("draft", "fault", "name", "index", "value"),
    [(LABEL_TREE, *case) for case in LABEL_FAULTS]
    + [(DECISION_TREE, *case) for case in DECISION_FAULTS],
    ids=lambda value: None if callable(value) or isinstance(value, Draft) else str(value),
)
def test_each_fault_is_named(
    draft: Draft, fault: int | str, name: str, index: Any, value: Any
) -> None:
    changed = getattr(draft.ensemble, name).copy()
    changed[index] = value(changed) if callable(value) else value
    error = refusal(draft, {**draft.arrays(), f"ensemble/{name}": changed})
    where, expected = FAULTS[fault] if isinstance(fault, int) else (name, fault)
    assert expected in error.expected
    assert error.where.startswith(f"ensemble.{where}.npy[")


def test_every_fault_is_tested() -> None:
    tested = {fault for fault, *_ in LABEL_FAULTS + DECISION_FAULTS if isinstance(fault, int)}
    below, too_large = {7, 15, 37}, {16}  # which would take 2^31 words
    assert tested | below | too_large == FAULTS.keys()


def test_a_label_without_leaf_named_by_label_leaf() -> None:
    draft = small_draft(n_labels=2, n_features=5, n_trees=1)
    arrays = small_draft(n_labels=3, n_features=5, n_trees=1).arrays() | group_of(
        "ensemble", draft.ensemble
    )
    arrays["ensemble/label_leaf"] = np.array([[1, 2, 1]], np.int32)
    arrays["ensemble/node_label"] = np.array([-1, 0, 1], np.int32)
    error = refusal(draft, arrays, n_labels=3)
    assert (error.expected, error.where) == (FAULTS[7][1], "ensemble.label_leaf.npy[2]")


def test_more_chunks_than_inner_nodes() -> None:
    draft = small_draft(n_labels=2, n_features=5, n_trees=1)
    arrays = draft.arrays()
    for name in ("block_ptr", "row_start", "sparse_ptr", "dense_ptr"):
        array = arrays[f"ensemble/{name}"]
        arrays[f"ensemble/{name}"] = np.append(array, array[-1])
    arrays["ensemble/directory"] = np.repeat(arrays["ensemble/directory"], 2, axis=0)
    assert refusal(draft, arrays, n_chunks=2).expected == "2 inner nodes, one a chunk"


def test_a_root_without_children() -> None:
    tree = Tree(np.array([1, 1], np.int32), np.array([0], np.int32), [None])
    draft = small_draft(n_labels=1)
    arrays = {**draft.arrays(), **group_of("ensemble", build_ensemble([tree], 1, draft.n_features))}
    assert refusal(draft, arrays, n_trees=1, n_nodes=1, n_chunks=0).expected == FAULTS[37][1]


def test_a_negative_scale_of_int8_weights() -> None:
    draft = small_draft(weights="int8")
    scales = draft.ensemble.node_scale.copy()
    scales[3] = -0.5
    error = refusal(draft, {**draft.arrays(), "ensemble/node_scale": scales})
    assert (error.expected, error.where) == (
        "a finite number, 0 or more",
        "ensemble.node_scale.npy[3]",
    )


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@pytest.mark.parametrize("over", [0, 1])
def test_children_at_the_limit_of_words(weights: Weights, over: int) -> None:
    n_children = CHILDREN_MAX[weights] + over
    child_ptr = np.append([1], np.full(n_children + 1, n_children + 1)).astype(np.int32)
    none = Chunk.from_weights(
        *np.zeros((2, 0), np.int32), np.zeros(0, np.float32), np.zeros(n_children, np.float32)
    )
    tree = Tree(child_ptr, np.arange(-1, n_children, dtype=np.int32), [none, *[None] * n_children])
    narrow = small_draft(n_labels=2, n_features=1, n_trees=1, weights=weights)
    ensemble = build_ensemble([tree], n_children, 1)._replace(
        sparse=narrow.ensemble.sparse[:0],
        dense=narrow.ensemble.dense[-LANES:],
        node_scale=np.zeros(n_children + 1 if weights == "int8" else 0, np.float32),
    )
    labels = build_names(map(str, range(n_children)))
    draft = dataclasses.replace(narrow, ensemble=ensemble, labels=labels, extra={})
    if not over:
        manifest_of(draft)
        return
    with pytest.raises(Corrupt, match="no more children than a sparse word has positions"):
        manifest_of(draft)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("ensemble/parent", None, "expected an array ensemble/parent, found none"),
        ("ensemble/parent", np.zeros(3, np.int32), r"expected int32\[\d+\], found int32\[3\]"),
        ("ensemble/parent", np.zeros(3, np.int64), "found int64"),
        ("ensemble/parent", np.zeros(3, np.uint32), "found uint32"),
        ("ensemble/parent", np.zeros((N_NODES, 1), np.int32), r"found int32\[\d+, 1\]"),
        ("ensemble/parent", np.array(0, np.int32), r"found int32\[\]"),
        (
            "ensemble/parent",
            np.repeat(LABEL_TREE.ensemble.parent, 2)[::2],
            "parent",
        ),  # not contiguous
        ("labels/offsets", np.array([0, 1]), r"expected int64\[10\]"),
        ("labels/utf8", np.frombuffer(b"\xff" * 40, np.uint8), "table of names"),
        (
            "labels/counts",
            np.array([1, 2, -3, *range(6)]),
            r"labels\.counts\.npy\[2\]: expected a count",
        ),
        ("labels/counts", np.array([1]), r"expected int64\[9\]"),
        ("features/names/utf8", np.zeros(3, np.uint8), "expected an array features/names/offsets"),
        (
            "features/idf",
            np.array([1.0, np.nan]),
            r"features\.idf\.npy\[1\]: expected a finite number",
        ),
    ],
)
def test_arrays_that_do_not_fit(name: str, array: Any, message: str) -> None:
    arrays = {**LABEL_TREE.arrays(), name: array}
    if array is None:
        del arrays[name]
    with pytest.raises(Corrupt, match=message):
        check_version(manifest_of(LABEL_TREE), arrays)


def test_checks_write_nothing_and_take_read_only_arrays() -> None:
    arrays = {name: array.copy() for name, array in LABEL_TREE.arrays().items()}
    arrays["ensemble/slots"] = np.zeros(0)
    for array in arrays.values():
        array.flags.writeable = False
    check_version(manifest_of(LABEL_TREE), arrays)


def test_a_store_remembers_so_many_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_module, "VERIFIED_MAX", 2)
    read: list[int] = []

    def counted(model: Model, maps: object, *, resting: bool) -> None:
        read.append(model.manifest.version)

    monkeypatch.setattr(reading_module, "verify_version", counted)
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    for _ in range(3):
        store.publish("m", small_draft(n_labels=3, n_features=40, n_trees=1))
    for version in (1, 2, 1, 3, 1, 2):
        store.open("m", version)
    assert read == [1, 2, 3, 1, 2]


RERANKED = small_draft(
    3, kind="decision-tree", n_labels=6, n_features=64, link="argmax", extra=random_rerank(1, 6, 64)
)
CALIBRATED = calibrated_draft(3, n_labels=6)
DRAFTS = {"tail": RERANKED, "calibration": CALIBRATED}


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
        ("calibration/y", 3, CALIBRATED.extra["calibration/y"][2], "more than"),  # a flat piece
        ("calibration/y", 5, 1.5, "at most 1"),
        ("calibration/x", 5, 1.5, "1, found"),
        ("calibration/x", 5, 0.999, "1, found"),
        ("calibration/x", 3, np.nan, "a finite number"),
        ("calibration/y", 3, np.nan, "a finite number"),
        ("calibration/y", 5, np.inf, "a finite number"),
    ],
)
def test_each_fault_of_an_optional_array_is_named(
    name: str, index: int, value: Any, expected: str
) -> None:
    draft = DRAFTS[name.partition("/")[0]]
    changed = draft.extra[name].copy()
    changed[index] = value
    with pytest.raises(Corrupt, match=rf"{file_name(name)}\[{index}\]: expected {expected}"):
        check_version(manifest_of(draft), {**draft.arrays(), name: changed})


@pytest.mark.parametrize("name", [*RERANKED.extra, "calibration/x", "calibration/y"])
def test_all_or_none_of_the_right_shape(name: str) -> None:
    group = name.partition("/")[0]
    draft = DRAFTS[group]
    arrays = draft.arrays()
    whole = arrays.pop(name)
    with pytest.raises(Corrupt, match=f"expected an array {name}, found none"):
        check_version(manifest_of(draft), arrays)
    for other in (whole[:-1], whole.astype(np.float64), whole[None]):
        with pytest.raises(Corrupt, match=rf"{group}\."):
            check_version(manifest_of(draft), {**arrays, name: other})


def test_good_arrays_pass() -> None:
    plain = small_draft(3, n_labels=6)
    check_version(manifest_of(CALIBRATED), CALIBRATED.arrays())
    assert assemble_calibration(manifest_of(plain), plain.arrays()) is NO_CALIBRATION


@pytest.mark.parametrize(
    ("n_knots", "is_taken"), [(1, False), (2, True), (KNOTS_MAX, True), (257, False)]
)
def test_the_number_of_knots_is_bounded(n_knots: int, is_taken: bool) -> None:
    ramp = np.linspace(0, 1, n_knots, dtype=np.float32)
    changed = {**CALIBRATED.arrays(), "calibration/x": ramp, "calibration/y": ramp}
    if is_taken:
        check_version(manifest_of(CALIBRATED), changed)
    else:
        with pytest.raises(Corrupt, match=f"expected 2 to {KNOTS_MAX} knots, found {n_knots}"):
            check_version(manifest_of(CALIBRATED), changed)


def test_mean_rows_and_calibration_are_for_some_kinds_only() -> None:
    label_tree, exact = small_draft(n_labels=6, n_features=64), softmax_draft(8, dim=33)
    for draft, extra, fault in (
        (label_tree, random_rerank(1, 6, 64), "expected no array of tail in a label-tree"),
        (
            exact,
            group_of(CALIBRATION, random_calibration(0)),
            "no array of calibration with link softmax",
        ),
    ):
        with pytest.raises(Corrupt, match=fault):
            check_version(manifest_of(draft), {**draft.arrays(), **extra})


REPORT_TEXT_MAX = JSON_BYTES_MAX - len('{"x":""}')
TOLD = {"balance": [0.5, 0.25], "ö": {"epochs": 3, "done": True, "why": None}}


def test_reports_are_read_as_they_were_published(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("m", small_draft(extra={REPORT: json_array(REPORT, TOLD)}))
    assert read_report(store.open("m").arrays) == TOLD
    store.publish("m", small_draft())
    assert read_report(store.open("m").arrays) == {}
    longest = {"x": "y" * REPORT_TEXT_MAX}
    assert read_report({REPORT: json_array(REPORT, longest)}) == longest


@pytest.mark.parametrize("value", [float("nan"), object(), "y" * (REPORT_TEXT_MAX + 1)])
def test_what_no_report_is(value: object) -> None:
    with pytest.raises(Corrupt, match="report"):
        json_array(REPORT, {"x": value})


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"\xff", b'{"a":1,"a":1}', b'{"a":NaN}', b'{"a":1e999}', b"[" * 100_000],
)
def test_damaged_reports_are_refused(tmp_path: Path, data: bytes) -> None:
    extra = {REPORT: np.frombuffer(data, np.uint8)}
    with pytest.raises(Corrupt, match=r"report\.json\.npy: expected"):
        Store(tmp_path).publish("m", small_draft(extra=extra))
    with pytest.raises(Corrupt, match=r"expected uint8\[\*\], found int8\[3\]"):
        read_report({REPORT: np.zeros(3, np.int8)})
