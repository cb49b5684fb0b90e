"""One refusal of the importers at a time: foreign, future and
inconsistent files, and what we do not have.
"""

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.helpers import foreign_models as foreign
from tests.helpers.foreign_models import npy

from xylem.base.errors import BadModel
from xylem.extras.importers.files import ModelFile, ModelFiles
from xylem.extras.importers.omikuji import read_cbor
from xylem.extras.importers.pickled import Stub, read_pickle
from xylem.extras.importers.registry import IMPORTERS

Change = Callable[[Path], object]


def edit_json(**changes: Any) -> Change:
    def change(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def matrix(found: Any, compressed: bool = False) -> Change:
    return lambda file: sp.save_npz(file, found, compressed=compressed)


def npz_member(name: str, data: bytes) -> Change:
    """Replace a member of an archive."""

    def change(file: Path) -> None:
        with zipfile.ZipFile(file) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            for member, content in {**members, name: data}.items():
                archive.writestr(member, content)

    return change


def cbor(change: Callable[[dict[str, Any]], object]) -> Change:
    """Change the nested dicts of a tree."""

    def write(file: Path) -> None:
        tree = foreign.omikuji_tree()
        change(tree["Branch"])
        file.write_bytes(foreign.to_cbor(tree))

    return write


def data(content: bytes) -> Change:
    return lambda file: file.write_bytes(content)


def patch(offset: int, *numbers: int) -> Change:
    """Replace numbers of 32 bits."""

    def change(file: Path) -> None:
        whole = bytearray(file.read_bytes())
        struct.pack_into(f"<{len(numbers)}i", whole, offset, *numbers)
        file.write_bytes(whole)

    return change


def libmultilabel(**changes: Any) -> Change:
    return lambda file: file.write_bytes(foreign.libmultilabel_pickle(**changes))


def weights(entry: float) -> Any:
    found = foreign.LABELS.astype(np.float64)
    found.data[0] = entry
    return found


LEVEL = "ranker/1.model/param.json"
W, C = "ranker/1.model/W.npz", "ranker/1.model/C.npz"
TWICE = sp.csc_matrix((np.ones(2), [3, 3], [0, 2, 2, 2, 2, 2]), (8, 5))
ABOVE = np.eye(2)[foreign.PARENTS]
HUGE = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i8', 'fortran_order': False, 'shape': (1<<60,), }"
DAMAGED = "a matrix saved by scipy.sparse.save_npz"
WRONG_SHAPE = npy(np.zeros(5, np.int32)).replace(b"(5,)", b"(9,)")

PICKLE, TREE = ("libmultilabel", "linear_pipeline.pickle"), ("omikuji", "tree0.cbor")

REFUSALS: list[tuple[str, str, Change, str]] = [
    (
        "pecos",
        "param.json",
        edit_json(__meta__={"class_fullname": "XTransformer"}),
        "class_fullname",
    ),
    ("pecos", "param.json", edit_json(__meta__=3), "__meta__ to be an object"),
    ("pecos", "param.json", data(b"{"), "expected JSON"),
    ("pecos", "param.json", data(b"[]"), "a JSON object"),
    ("pecos", "param.json", data(b" " * (1 << 21)), "at most 1048576 bytes"),
    ("pecos", "ranker/param.json", edit_json(depth=0), "depth to be an integer from 1 to 64"),
    ("pecos", "ranker/param.json", edit_json(depth=10**30), "depth to be an integer from 1 to 64"),
    (
        "pecos",
        "ranker/param.json",
        edit_json(model="ANN"),
        "model to be one of HierarchicalMLModel",
    ),
    ("pecos", LEVEL, edit_json(model="New"), "model to be one of MLModel"),
    ("pecos", LEVEL, edit_json(is_mmap=True), "the folder that it was compiled from"),
    ("pecos", LEVEL, edit_json(bias="1"), "bias to be a finite number"),
    ("pecos", LEVEL, edit_json(pred_kwargs={"post_processor": "noop"}), "found noop"),
    ("pecos", LEVEL, edit_json(pred_kwargs={"post_processor": "l4-hinge"}), "found l4-hinge"),
    ("pecos", LEVEL, edit_json(nr_codes=3), "a matrix of 5 x 3"),
    ("pecos", LEVEL, edit_json(bias=0.0), "a matrix of 7 x 5"),
    ("pecos", W, matrix(foreign.LABELS.tocsr()), "a matrix of format csc"),
    ("pecos", W, matrix(foreign.LABELS, True), "arrays without compression"),
    ("pecos", W, matrix(weights(np.nan)), "weights that are finite"),
    ("pecos", W, matrix(weights(1e300)), "weights that are finite"),
    ("pecos", W, matrix(TWICE), "a feature once in a column"),
    ("pecos", W, npz_member("data.npy", npy(np.array([None]))), DAMAGED),
    ("pecos", W, npz_member("data.npy", npy(np.zeros((2, 2)))), DAMAGED),
    ("pecos", W, npz_member("indices.npy", HUGE.ljust(128)), DAMAGED),
    ("pecos", W, npz_member("indices.npy", WRONG_SHAPE), DAMAGED),
    ("pecos", W, npz_member("indices.npy", npy(np.zeros(5))), DAMAGED),
    ("pecos", W, npz_member("indptr.npy", npy(np.array([0, 3, 2, 3, 4, 5]))), "offsets of columns"),
    ("pecos", W, npz_member("indptr.npy", npy(np.zeros(3, np.int64))), DAMAGED),
    ("pecos", W, data(b"PK\5\6" + b"\0" * 18), DAMAGED),
    ("pecos", C, matrix(sp.csc_matrix(np.ones((5, 2)))), "each of 5 nodes below one node"),
    (
        "pecos",
        C,
        matrix(sp.csc_matrix(ABOVE * [[1], [0], [1], [1], [1]])),
        "each of 5 nodes below one node",
    ),
    ("omikuji", "settings.json", edit_json(classifier_loss_type="Focal"), "found Focal"),
    ("omikuji", "settings.json", edit_json(n_features=6), "a matrix that fits, found 8 x"),
    ("omikuji", "settings.json", edit_json(n_features=True), "n_features to be an integer"),
    (*TREE, lambda file: file.rename(file.with_name("tree2.cbor")), "all that follow"),
    (*TREE, cbor(lambda top: top.update(extra=1)), "a map of weights, children"),
    (*TREE, cbor(lambda top: top["children"].append(7)), "Branch or Leaf"),
    (*TREE, cbor(lambda top: top["children"].pop()), "a matrix of 8 x 1"),
    (*TREE, cbor(lambda top: top["weights"]["Dense"].update(v=2)), "version 1"),
    (*TREE, cbor(lambda top: top["weights"]["Dense"].update(data=[1])), "floats"),
    (*TREE, cbor(lambda top: top["weights"]["Dense"].update(data=[0.5])), "8 x 2"),
    (*TREE, cbor(lambda top: top["weights"]["Dense"]["data"].append("a")), "one type"),
    (
        *TREE,
        cbor(lambda top: top["children"][1]["Leaf"].update(labels=[0, 1])),
        "at most one leaf a label",
    ),
    (
        *TREE,
        cbor(lambda top: top["children"][1]["Leaf"]["weights"]["Sparse"]["outer_inds"].reverse()),
        "ascending rows and children",
    ),
    (*TREE, data(b"\x81" * 400 + b"\x00"), "at most 300 levels"),
    (*TREE, data(b"\x9f\x00\xff"), "one type and a length"),
    (*TREE, data(b"\xa1\x61\xff\x00"), "text in UTF-8"),
    (*TREE, data(b"\xa2\x61a\x00\x61a\x00"), "each once"),
    (*TREE, data(b"\x43abc"), "maps, arrays, text and numbers"),
    ("napkinxc", "args.bin", data(foreign.napkinxc_settings(version="0.8.0")), "napkinXC 0.7.0"),
    ("napkinxc", "args.bin", data(foreign.napkinxc_settings(norm=3)), "norm to be 0 or 1"),
    ("napkinxc", "args.bin", data(foreign.napkinxc_settings(hashed=100)), "not hashed"),
    ("napkinxc", "args.bin", data(foreign.napkinxc_settings(model=2)), "a model of type plt"),
    ("napkinxc", "args.bin", data(foreign.napkinxc_settings(n_trees=3)), "an ensemble of 3"),
    ("napkinxc", "tree.bin", patch(0, 4), "4 labels"),
    ("napkinxc", "tree.bin", patch(8, 1), "nodes numbered from 0"),
    ("napkinxc", "tree.bin", patch(12, 9), "5 labels, found 6"),
    ("napkinxc", "tree.bin", patch(72, 8), "a root from 0 to 7"),
    ("napkinxc", "tree.bin", patch(72, 3), "a parent for each node but the root"),
    ("napkinxc", "tree.bin", patch(80, 2, 1), "below its root"),
    ("napkinxc", "weights.bin", patch(0, 7), "8 nodes, as tree.bin"),
    ("napkinxc", "weights.bin", patch(4, 3), "classes from 0 to 2"),
    ("napkinxc", "weights.bin", patch(12, 4), "a loss from 0 to 1"),
    ("napkinxc", "weights.bin", patch(24, 1), "one loss for all nodes"),
    (*PICKLE, data(pickle.dumps([1], 5)), "preprocessor and model"),
    (*PICKLE, data(pickle.dumps([1], 3)), "protocol 4 or 5"),
    (*PICKLE, libmultilabel(bias=None), "a bias from"),
    (*PICKLE, libmultilabel(node_ptr=np.arange(4)), "node_ptr from 0 to 7"),
    (*PICKLE, libmultilabel(node_ptr=[0, 7]), "an array of numpy"),
    (*PICKLE, libmultilabel(node_ptr=np.array(["a"])), "an array|numbers"),
    (*PICKLE, libmultilabel(n_trees=1001), "a list of 1 to 1000 tree models"),
    (*PICKLE, libmultilabel(n_trees=999), "arrays of its own for each tree"),
    (*PICKLE, libmultilabel(root=1), "an instance of libmultilabel"),
    (*PICKLE, libmultilabel(flat_model=None), "an instance of libmultilabel"),
]


@pytest.mark.parametrize(
    ("library", "name", "change", "words"),
    REFUSALS,
    ids=lambda value: value if type(value) is str else "",
)
def test_refusals(tmp_path: Path, library: str, name: str, change: Change, words: str) -> None:
    foreign.SAVERS[library](tmp_path)
    change(tmp_path / name)
    with pytest.raises(BadModel, match=words) as refusal:
        IMPORTERS[library](ModelFiles(tmp_path))
    assert str(refusal.value).startswith(str(tmp_path))
    assert len(str(refusal.value)) < 700


class Bomb:
    """What a hostile pickle would have run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must never be printed",)


def test_a_pickle_imports_and_calls_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = ModelFile(tmp_path, pickle.dumps({"model": Bomb(), "preprocessor": 1}, 5))
    found = read_pickle(file)["model"]
    assert type(found) is Stub
    assert (found.name, found.is_call, found.args) == (
        "builtins.print",
        True,
        ("this must never be printed",),
    )
    assert capsys.readouterr().out == ""


def test_a_maze_of_shared_items_costs_no_time(tmp_path: Path) -> None:
    """Nodes that share their children, and tuples that share their items, double with
    every level.
    """
    maze: Any = ()
    for _ in range(60):
        maze = (maze, maze)
    for changes in ({"bias": maze}, {"node_ptr": maze}, {"root": maze}, {"flat_model": maze}):
        file = tmp_path / "maze.pickle"
        file.write_bytes(foreign.libmultilabel_pickle(**changes))
        with pytest.raises(BadModel):
            IMPORTERS["libmultilabel"](ModelFiles(file))


@pytest.mark.parametrize(
    "item", [0, 23, 24, 255, 256, 65536, 2**32 - 1, "", "é", {}, {"a": {"b": "c"}}, ["x", "y"]]
)
def test_cbor_items(tmp_path: Path, item: Any) -> None:
    assert read_cbor(ModelFile(tmp_path, foreign.to_cbor(item))) == item


def test_cbor_numbers(tmp_path: Path) -> None:
    """Every float16 there is, and float32 in between; integers of every width."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    packed = (
        b"\x99"
        + struct.pack(">H", len(halves))
        + b"".join(struct.pack(">Be", 0xF9, x) for x in halves)
    )
    np.testing.assert_array_equal(read_cbor(ModelFile(tmp_path, packed)), halves.astype(np.float32))
    floats = [*np.random.default_rng(0).normal(size=100).astype(np.float32).tolist(), 0.5, -0.0]
    np.testing.assert_array_equal(
        read_cbor(ModelFile(tmp_path, foreign.to_cbor(floats))), np.float32(floats)
    )
    integers = [0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1]
    assert read_cbor(ModelFile(tmp_path, foreign.to_cbor(integers))).tolist() == integers
    long = b"\x82\x1b" + struct.pack(">Q", 2**63 - 1) + b"\x01"
    assert read_cbor(ModelFile(tmp_path, long)).tolist() == [2**63 - 1, 1]
    with pytest.raises(BadModel, match="integers below"):
        read_cbor(ModelFile(tmp_path, long.replace(b"\x7f", b"\xff")))
