"""One version made wrong for every fault that the checks can name."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store import reading as reading_module
from model_store.build import CHILDREN_MAX, build_ensemble
from model_store.checks import FAULTS, check_version
from model_store.ensemble import LANES, Tree, Weights
from model_store.errors import Corrupt
from model_store.names import build_names
from model_store.store import Store
from model_store.version import Draft, manifest_of
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

LABEL_TREE = small_draft(n_labels=9, n_features=70, n_trees=2, arity=9, share=0.2)
DECISION_TREE = small_draft(3, kind="decision-tree", n_labels=6, n_features=64)
INF = 0x7F800000


def sparse_row_of(draft: Draft, length: int) -> int:
    """Return the place of the first sparse word of a row of at least so many, in the first chunk."""
    ensemble = draft.ensemble
    row_ptr = ensemble.row_ptr[: ensemble.row_start[1]]
    return int(row_ptr[np.flatnonzero(np.diff(row_ptr) >= length)[0]])


ROW = sparse_row_of(LABEL_TREE, 2)
N_NODES = len(LABEL_TREE.ensemble.parent)
LEAF = int(np.flatnonzero(LABEL_TREE.ensemble.node_chunk < 0)[0])

Change = Callable[[Any], None]


def put(index: Any, value: Any) -> Change:
    def change(array: Any) -> None:
        array[index] = value

    return change


def swap(i: int, j: int) -> Change:
    def change(array: Any) -> None:
        array[[i, j]] = array[[j, i]]

    return change


def add(index: Any, value: int) -> Change:
    def change(array: Any) -> None:
        array[index] += value

    return change


def infinite_word(array: Any) -> None:
    array[0] = (int(array[0]) & 0xFFFFFFFF) | INF << 32


LABEL_FAULTS: list[tuple[int | str, str, Change]] = [
    ("the number of trees, 2, first", "child_ptr", put(0, 1)),
    ("the number of trees, 2, first", "child_ptr", put(-1, N_NODES + 1)),
    ("each child after its parent", "child_ptr", put(1, 1)),
    ("each child after its parent", "child_ptr", put(1, 2**31 - 1)),
    ("-1 at a root", "parent", put(0, 1)),
    ("-1 at a root", "parent", put(2, 1)),
    (4, "node_label", put(LEAF, -1)),
    (4, "node_label", put(LEAF, 9)),
    (5, "node_label", put(0, 0)),
    (6, "label_leaf", put((0, 0), -1)),
    ("-1 at a leaf", "node_chunk", put(0, 1)),
    ("-1 at a leaf", "node_chunk", put(-1, 0)),
    ("zero at a root", "node_bias", put(0, 0.5)),
    ("ascending offsets from 0", "block_ptr", put(0, 1)),
    ("ascending offsets from 0", "block_ptr", put(-1, 10**9)),
    ("ascending offsets from 0", "block_ptr", put(1, -1)),
    ("ascending offsets from 0", "row_start", put(1, 10**18)),
    ("ascending offsets from 0", "sparse_ptr", put(1, -(10**18))),
    ("ascending offsets from 0", "dense_ptr", put(-1, 0)),
    (17, "dense_ptr", add(1, -1)),
    (18, "directory", put((0, 0, 1), 1)),
    (19, "directory", put((0, 0, 0), 0xFF)),
    (20, "directory", put((0, 0, 0), 0)),
    (21, "blocks", put((0, 0), 0)),
    (22, "blocks", put((2, 0), 0xFFFFFFFF)),
    (23, "blocks", lambda blocks: blocks.__setitem__((0, 1), ~blocks[0, 0])),
    (24, "blocks", put((0, 2), 1)),
    (25, "blocks", put((0, 3), 1)),
    (26, "row_start", add(1, -1)),
    (27, "dense_ptr", add(1, -16)),
    (28, "row_ptr", put(0, 1)),
    (28, "row_ptr", put(1, -5)),
    (28, "row_ptr", put(1, 2**31 - 1)),
    (29, "sparse", swap(ROW, ROW + 1)),
    (29, "sparse", put(0, 0xFFFFFFFF)),
    (30, "sparse", infinite_word),
    (31, "dense", lambda dense: dense.view(np.uint32).__setitem__(0, 0x7F800001)),
    (32, "dense", put(15, 1.0)),
    (32, "dense", put(-1, 1.0)),
]
DECISION_FAULTS: list[tuple[int | str, str, Change]] = [
    (5, "node_label", put(-1, 0)),
    ("ascending offsets from 0", "leaf_ptr", put(-1, 0)),
    ("no labels at an inner node", "leaf_ptr", lambda ptr: np.maximum(ptr[1:], 1, out=ptr[1:])),
    ("leaf_label below 6, ascending", "leaf_label", put(0, 6)),
    ("leaf_label below 6, ascending", "leaf_label", put(0, -1)),
    ("values from 0 to 1", "leaf_value", put(0, 1.5)),
    ("values from 0 to 1", "leaf_value", put(0, -0.1)),
]


def refusal(draft: Draft, arrays: dict[str, Any], **counts: Any) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        check_version(dataclasses.replace(manifest_of(draft), **counts), arrays)
    return caught.value


@pytest.mark.parametrize(
    ("draft", "fault", "name", "change"),
    [(LABEL_TREE, *case) for case in LABEL_FAULTS] + [(DECISION_TREE, *case) for case in DECISION_FAULTS],
    ids=[f"{case[0]}-{case[1]}" for case in LABEL_FAULTS]
    + [f"decision-{case[0]}-{case[1]}" for case in DECISION_FAULTS],
)
def test_each_fault_is_named(draft: Draft, fault: int | str, name: str, change: Change) -> None:
    arrays = draft.arrays()
    arrays[f"ensemble/{name}"] = arrays[f"ensemble/{name}"].copy()
    change(arrays[f"ensemble/{name}"])
    error = refusal(draft, arrays)
    where, expected = FAULTS[fault] if isinstance(fault, int) else (name, fault)
    assert expected in error.expected
    assert error.where.startswith(f"ensemble.{where}.npy[")


def test_every_fault_is_tested() -> None:
    tested = {case[0] for case in LABEL_FAULTS + DECISION_FAULTS if isinstance(case[0], int)}
    elsewhere = {7, 15, 37}
    too_large = {16}  # would take 2^31 words
    assert tested | elsewhere | too_large == FAULTS.keys()


def test_a_label_without_leaf_named_by_label_leaf() -> None:
    draft = small_draft(n_labels=2, n_features=5, n_trees=1)
    ensemble = draft.ensemble._replace(label_leaf=np.array([[1, 2, 1]], np.int32))
    arrays = {**small_draft(n_labels=3, n_features=5, n_trees=1).arrays()}
    arrays.update({f"ensemble/{name}": array for name, array in ensemble._asdict().items()})
    arrays["ensemble/node_label"] = np.array([-1, 0, 1], np.int32)
    error = refusal(draft, arrays, n_labels=3)
    assert error.expected == FAULTS[7][1]
    assert error.where == "ensemble.label_leaf.npy[2]"


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
    arrays = draft.arrays()
    bare = build_ensemble([tree], 1, draft.n_features)
    arrays.update({f"ensemble/{name}": array for name, array in bare._asdict().items()})
    error = refusal(draft, arrays, n_trees=1, n_nodes=1, n_chunks=0)
    assert error.expected == FAULTS[37][1]


def test_a_negative_scale_of_int8_weights() -> None:
    draft = small_draft(weights="int8")
    arrays = draft.arrays()
    arrays["ensemble/node_scale"] = arrays["ensemble/node_scale"].copy()
    arrays["ensemble/node_scale"][3] = -0.5
    error = refusal(draft, arrays)
    assert (error.expected, error.where) == ("a finite number, 0 or more", "ensemble.node_scale.npy[3]")


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@pytest.mark.parametrize("over", [0, 1])
def test_children_at_the_limit_of_words(weights: Weights, over: int) -> None:
    n_children = CHILDREN_MAX[weights] + over
    small = small_draft(n_labels=2, n_features=1, n_trees=1, weights=weights)
    e = small.ensemble
    nodes = np.arange(n_children + 1, dtype=np.int32)
    ensemble = e._replace(
        child_ptr=np.concatenate([[1], np.full(n_children + 1, n_children + 1)]).astype(np.int32),
        parent=np.where(nodes == 0, -1, 0).astype(np.int32),
        node_label=nodes - 1,
        label_leaf=nodes[1:].reshape(1, -1),
        node_chunk=np.where(nodes == 0, 0, -1).astype(np.int32),
        node_bias=np.zeros(n_children + 1, np.float32),
        node_scale=np.zeros(n_children + 1 if weights == "int8" else 0, np.float32),
        directory=np.zeros((1, 1, 2), np.uint32),
        block_ptr=np.zeros(2, np.int64),
        blocks=np.zeros((0, 4), np.uint32),
        row_start=np.array([0, 1]),
        row_ptr=np.zeros(1, np.int32),
        sparse_ptr=np.zeros(2, np.int64),
        sparse=e.sparse[:0],
        dense_ptr=np.zeros(2, np.int64),
        dense=e.dense[-LANES:],
    )
    draft = dataclasses.replace(
        small, ensemble=ensemble, labels=build_names(map(str, range(n_children))), extra={}
    )
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
        ("ensemble/slots", np.zeros(0), None),
        ("labels/offsets", np.array([0, 1]), r"expected int64\[10\]"),
        ("labels/utf8", np.frombuffer(b"\xff" * 40, np.uint8), "table of names"),
        (
            "labels/counts",
            np.array([1, 2, -3, 4, 5, 6, 7, 8, 9]),
            r"labels\.counts\.npy\[2\]: expected a count",
        ),
        ("labels/counts", np.array([1]), r"expected int64\[9\]"),
        ("features/names/utf8", np.zeros(3, np.uint8), "expected an array features/names/offsets"),
        ("features/idf", np.array([1.0, np.nan]), r"features\.idf\.npy\[1\]: expected a finite number"),
    ],
)
def test_arrays_that_do_not_fit(name: str, array: Any, message: str | None) -> None:
    arrays = LABEL_TREE.arrays()
    if array is None:
        del arrays[name]
    else:
        arrays[name] = array
    if message is None:
        check_version(manifest_of(LABEL_TREE), arrays)  # an array more is no fault
        return
    with pytest.raises(Corrupt, match=message):
        check_version(manifest_of(LABEL_TREE), arrays)


def test_checks_write_nothing_and_take_read_only_arrays() -> None:
    arrays = {name: array.copy() for name, array in LABEL_TREE.arrays().items()}
    for array in arrays.values():
        array.flags.writeable = False
    check_version(manifest_of(LABEL_TREE), arrays)


def test_a_store_that_lives_long_remembers_so_many_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_module, "VERIFIED_MAX", 2)
    read: list[int] = []

    def counted(model: object, maps: object, *, resting: bool) -> None:
        read.append(model.manifest.version)  # type: ignore[attr-defined]

    monkeypatch.setattr(reading_module, "verify_version", counted)
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    draft = small_draft(n_labels=3, n_features=40, n_trees=1)
    for _ in range(3):
        store.publish("m", draft)
    for version in (1, 2, 1, 3, 1, 2):
        store.open("m", version)
    assert read == [1, 2, 3, 1, 2]
