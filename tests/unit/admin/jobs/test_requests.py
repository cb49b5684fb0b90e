"""Requests of jobs and the data that they name: good ones, what is
wrong with others, files that change.
"""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import refused
from tests.helpers.jobs_helpers import TRAINING as SMALL_TRAINING
from tests.helpers.schemas import openapi

from xylem.admin.jobs.context import WatchedFiles
from xylem.admin.jobs.data import ABANDONED_SECONDS, DataRoot
from xylem.admin.jobs.errors import DataNotFound
from xylem.admin.jobs.kinds import check_request, parameter_faults, parameter_schemas, read_request
from xylem.base.columns import columns_of
from xylem.base.errors import BadData, BadFields, BadRequest, LimitExceeded
from xylem.base.settings import Limits
from xylem.engine.features.parameters import PARAMETERS
from xylem.trainers import TRAINERS

OVR = {"model": "m", "trainer": "ovr"}
COMBINE = {"model": "m", "members": ["tree", "titles@2", "titles@best"], "vocabulary": "names.txt"}
TUNING = {"model": "m", "data": "valid.jsonl"}
TRAINING: dict[str, Any] = {
    **SMALL_TRAINING,
    "parameters": {"trees": 3, "features.ngram_max": 2},
    "weights": "float32",
    "seed": 0,
    "thresholds": {"method": "ofo"},
    "promotion": {
        "alias": "latest",
        "if": [{"metric": "P@5", "least_change": -0.2}, {"metric": "macro_f", "least_change": 0.0}],
    },
}


@pytest.fixture
def data(tmp_path: Path) -> DataRoot:
    for name in ("train.jsonl", "valid.jsonl", "rows.txt", "pair.X.npz", "names.txt", "train.csv"):
        (tmp_path / name).write_text("{}")
    return DataRoot(tmp_path, 1)


def faults(kind: str, body: Any, data: DataRoot) -> dict[str, str]:
    """What is wrong with a request: the detail of each place."""
    with refused(BadFields, "", body) as caught:
        check_request(kind, body, data, Limits())
    return {fault.path or "": str(fault) for fault in caught.value.faults}


def test_a_good_request_is_kept_as_it_was_said(data: DataRoot) -> None:
    for kind, body in (
        ("training", TRAINING),
        (
            "training",
            {**OVR, "trainer": "plt", "data": "rows.txt", "label_names": "names.txt", "split": 0.1},
        ),
        ("training", {**OVR, "data": "rows.txt", "parameters": {"features.norm": "l1"}}),
        ("training", {**OVR, "data": "train.jsonl", "promotion": {"alias": "stable"}}),
        ("combine", {**COMBINE, **TUNING, "language": "fi", "rerank": "train.jsonl"}),
        (
            "combine",
            {**COMBINE, **TUNING, "split": 0.2, "thresholds": {"method": "fta"}, "language": "fi"},
        ),
        ("vocabulary", {"model": "m", "version": 2, "vocabulary": "names.txt", "by": "notation"}),
        ("threshold-tuning", {**TUNING, "method": "sto", "kappa": 0.01, "start": [1, 4]}),
        ("threshold-tuning", {**TUNING, "version": 3, "test": "train.jsonl"}),
        ("batch", {**TUNING, "top_r": 3, "threshold": "tuned", "version": "stable"}),
    ):
        assert check_request(kind, body, data, Limits()) == (body, body["model"])
        read_request(kind, body)


@pytest.mark.parametrize("kind", ["training", "threshold-tuning", "batch"])
def test_columns_of_tables(kind: str, data: DataRoot) -> None:
    body = {"model": "m", "data": "train.csv", **({"trainer": "ovr"} if kind == "training" else {})}
    good = {"text_column": ["title=2", "body"], "label_column": "tags", "label_separator": "|"}
    said, _ = check_request(kind, {**body, **good}, data, Limits())
    assert read_request(kind, said).columns() == columns_of(*good.values())
    for change, place in (
        ({"text_column": ["a=0"]}, "text_column"),
        ({"text_column": "a"}, "text_column"),
        ({"label_column": ""}, "label_column"),
        ({"label_separator": ""}, "label_separator"),
        ({"data": "train.jsonl"}, "data"),
    ):
        assert set(faults(kind, {**body, **good, **change}, data)) == {place}


def test_all_faults_of_a_training_are_told_at_once(data: DataRoot) -> None:
    found = faults(
        "training",
        {
            "model": "No/Model",
            "trainer": "label-tree",
            "data": "../train.jsonl",
            "valid": "nowhere.jsonl",
            "parameters": {
                "trees": -3,
                "none": 1,
                "loss": "x",
                "features.ngram_max": 99,
                "features.none": 1,
            },
            "weights": "float64",
            "seed": -1,
            "split": 2,
            "thresholds": {"method": "ofx", "kappa": 7},
            "promotion": {
                "alias": "7",
                "if": [{"metric": "P@9"}, {"metric": "P@1", "least_change": "x"}],
            },
            "unknown": 1,
        },
        data,
    )
    assert found.keys() == {
        *("model", "data", "valid", "weights", "seed", "split", "unknown"),
        *("parameters.trees", "parameters.none", "parameters.loss"),
        *("parameters.features.ngram_max", "parameters.features.none"),
        *("thresholds.method", "thresholds.kappa", "promotion.if[1].least_change"),
    }
    assert found["parameters.trees"] == "expected an integer from 1 to 100, found -3"
    assert found["seed"] == "expected at least 0, found -1"


def test_a_fault_of_a_training_is_told_where_it_is(data: DataRoot) -> None:
    for change, places in (
        ({"trainer": "forest"}, {"trainer"}),
        ({"trainer": 3}, {"trainer"}),
        ({"split": 0.5}, {"split"}),
        ({"valid": None}, {"thresholds", "promotion"}),
        ({"valid": None, "thresholds": None}, {"promotion"}),
        (
            {"promotion": {"alias": "7", "if": [{"metric": "P@9"}]}},
            {"promotion.alias", "promotion.if[0].metric"},
        ),
        ({"promotion": {"if": [{"metric": "P@5"}] * 33}}, {"promotion.if"}),
        ({"promotion": {"alias": None, "if": [{"metric": "P@5"}]}}, {"promotion.if"}),
        ({"calibrate": True, "valid": None, "thresholds": None, "promotion": None}, {"calibrate"}),
        ({"calibrate": True, "trainer": "huffman-tree", "parameters": {}}, {"calibrate"}),
        ({"calibrate": 1}, {"calibrate"}),
        ({"calibrate": True, "rerank": True}, {"rerank"}),
        ({"parameters": {"trees": [1]}}, {"parameters.trees"}),
        ({"parameters": {"trees": 1e400}}, {"parameters.trees"}),
        ({"parameters": {"features.kind": "no"}}, {"parameters.features.kind"}),
        (
            {"parameters": {"features.ngram_max": "2", "features.min_df": 2.5}},
            {"parameters.features.ngram_max", "parameters.features.min_df"},
        ),
        ({"data": 3}, {"data"}),
        ({"data": "x" * 1000}, {"data"}),
        ({"model": None}, {"model"}),
        ({"seed": 1 << 63}, {"seed"}),
        ({"seed": True}, {"seed"}),
        ({"thresholds": {"method": "ofo", "start": [1]}}, {"thresholds.start"}),
        ({"thresholds": {"method": "ofo", "start": [5, 1]}}, {"thresholds.start"}),
        ({"label_names": "../x"}, {"label_names"}),
    ):
        assert faults("training", {**TRAINING, **change}, data).keys() == places, change


def test_faults_of_the_other_kinds(data: DataRoot) -> None:
    assert faults("training", {**OVR, "data": "pair.X.npz", "split": 0.1}, data).keys() == {"split"}
    tuning = {
        "model": "m",
        "data": "x",
        "test": "..",
        "version": "A!",
        "start": [1, 2, 3],
        "method": "best",
    }
    assert faults("threshold-tuning", tuning, data).keys() == {
        "data",
        "test",
        "version",
        "start",
        "method",
    }
    batch = {"model": "m", "data": "rows.txt", "version": True, "top_r": 1001, "explain": True}
    assert faults("batch", batch, data).keys() == {"data", "version", "top_r", "explain"}
    assert faults("batch", {}, data).keys() == {"model", "data"}
    combine = {
        "model": "m",
        "members": ["tree", "t@", "A"],
        "data": "x",
        "language": "1",
        "ranker": "best",
    }
    places = {"members[1]", "members[2]", "data", "language", "ranker", "candidates", "split"}
    assert faults("combine", {**combine, "candidates": 0, "split": 2}, data).keys() == places
    places = {"model", "data", "members", "rerank"}
    assert faults("combine", {"members": [], "rerank": ".."}, data).keys() == places
    wrong = {"trainer": 5, "parameters": {"x": 1}, "label_names": "..", "split": 0.5, "seed": -1}
    places = {"model", "trainer", "data", "label_names", "seed"}
    assert faults("training", wrong, data).keys() == places
    places = {"model", "vocabulary", "version", "from"}
    assert faults("vocabulary", {"version": "A!", "from": "b"}, data).keys() == places
    odd = {"model": "m", "vocabulary": "no", "a.b": 1}
    assert faults("vocabulary", odd, data).keys() == {"vocabulary", "a.b"}
    vocabulary = {"model": "m", "vocabulary": "x", "by": "!", "thresholds": {}, "version": "A!"}
    extend = {
        "model": "m",
        "data": "no",
        "rows": ["train.jsonl", ".."],
        "version": "v!",
        "thresholds": {},
    }
    assert faults("extend", extend, data).keys() == {"data", "rows[1]", "thresholds", "version"}
    assert faults("vocabulary", vocabulary, data).keys() == {
        "vocabulary",
        "by",
        "thresholds",
        "version",
    }
    tuning = {"model": "m", "data": "train.jsonl", "objective": "instance"}
    found = faults("threshold-tuning", {**tuning, "method": "sto"}, data)
    assert found.keys() == {"method"}
    assert "expected ofo, as the other methods tune for macro-F only" in str(found["method"])
    assert faults("threshold-tuning", {**tuning, "start": [1, 4]}, data).keys() == {"start"}
    assert faults("threshold-tuning", {**tuning, "kappa": 0.02}, data).keys() == {"kappa"}
    assert faults("threshold-tuning", {**tuning, "objective": "x"}, data).keys() == {"objective"}
    check_request("threshold-tuning", tuning, data, Limits())
    both = {"model": "m", "data": "rows.txt", "chunk_characters": 500, "exact": True}
    assert faults("batch", both, data).keys() == {"data", "chunk_characters"}


def test_what_is_no_object_or_of_no_kind_is_refused(data: DataRoot) -> None:
    for body in (None, [], "x", 3):
        with pytest.raises(BadRequest, match="expected an object"):
            check_request("batch", body, data, Limits())
    with pytest.raises(BadRequest, match="expected a kind of training"):
        check_request("baking", {}, data, Limits())


def test_schemas_say_what_every_trainer_and_all_features_take_and_their_defaults_are_taken() -> (
    None
):
    found = parameter_schemas()
    assert (
        found["trainers"].keys() == openapi()["x-parameters"]["trainers"].keys() >= TRAINERS.keys()
    )
    assert found["features"].keys() == PARAMETERS.keys()
    for trainer, spec in TRAINERS.items():
        said = found["trainers"][trainer]["parameters"]["properties"]
        assert said.keys() == spec.parameters.model_fields.keys()
        assert all(parameter["description"] for parameter in said.values()), trainer
        defaults = {name: parameter["default"] for name, parameter in said.items()}
        assert list(parameter_faults(trainer, defaults)) == []
    for kind in PARAMETERS:
        said = found["features"][kind]["properties"]
        defaults = {f"features.{name}": parameter["default"] for name, parameter in said.items()}
        assert list(parameter_faults("label-tree", {"features.kind": kind, **defaults})) == []


BYTES_MAX = 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory beside a secret, with links in it and out of it."""
    (tmp_path / "secret.jsonl").write_text("secret")
    (tmp_path / "root-beside").mkdir()
    (tmp_path / "root-beside" / "x.jsonl").write_text("secret")
    directory = tmp_path / "root"
    (directory / "sub").mkdir(parents=True)
    (directory / "a.jsonl").write_text("a")
    (directory / "sub" / "b.jsonl").write_text("bb")
    (directory / "inside.jsonl").symlink_to("a.jsonl")
    (directory / "outside.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (directory / "up").symlink_to("..")
    (directory / "circle").symlink_to("circle")
    (directory / "gone.jsonl").symlink_to("nowhere")
    os.mkfifo(directory / "pipe.jsonl")
    return directory


@pytest.fixture
def below(root: Path) -> DataRoot:
    """The files below the root, as requests and uploads name them."""
    return DataRoot(root, BYTES_MAX)


HOSTILE = [
    *("", ".", "..", "../secret.jsonl", "sub/../../secret.jsonl", "../root-beside/x.jsonl"),
    *("/etc/passwd", "//etc/passwd", "~/x"),
    *(
        "outside.jsonl",
        "up/secret.jsonl",
        "up/root-beside/x.jsonl",
        "circle",
        "gone.jsonl",
    ),  # links
    *("pipe.jsonl", "sub", "a.jsonl/x", "none.jsonl"),  # no files
    *("a.jsonl\0", "\0", "\udcff", "x" * 300, "sub/" * 1000 + "b.jsonl"),  # no names
]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:30])
def test_no_name_leads_out_of_the_root_or_to_what_is_no_file(
    root: Path, below: Any, name: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        below.path_of(name, "valid")
    assert caught.value.path == "valid" and len(str(caught.value)) < 500
    assert str(root.parent) not in str(caught.value)
    with pytest.raises(DataNotFound):
        below.delete(name)
    assert (root.parent / "secret.jsonl").read_text() == "secret"


def test_a_name_is_a_string(below: Any) -> None:
    for name in (None, 3, ["a.jsonl"], {"a": 1}, True):
        with pytest.raises(BadRequest):
            below.path_of(name)


def test_files_and_links_below_the_root_are_found_and_the_root_may_be_a_link(
    root: Path, below: Any
) -> None:
    assert below.path_of("a.jsonl") == root / "a.jsonl" == below.path_of("inside.jsonl")
    assert (
        below.path_of("sub/b.jsonl")
        == root / "sub" / "b.jsonl"
        == below.path_of("sub/../sub/b.jsonl")
    )
    found = [(info.name, info.bytes) for info in below.list()]
    assert found == [("a.jsonl", 1), ("inside.jsonl", 1), ("sub/b.jsonl", 2)]
    assert below.with_relative_paths(f"{root}/sub/b.jsonl:3: expected") == "sub/b.jsonl:3: expected"
    link = root.parent / "link"
    link.symlink_to(root)
    linked = DataRoot(link, BYTES_MAX)
    assert linked.path_of("sub/b.jsonl").read_text() == "bb" and linked.list() == below.list()


@pytest.mark.parametrize("name", [None, "none"])
def test_without_a_root_everything_is_refused(tmp_path: Path, name: str | None) -> None:
    none = DataRoot(None if name is None else tmp_path / name, BYTES_MAX)
    for call in (
        lambda: none.path_of("a"),
        none.list,
        lambda: none.upload("a"),
        lambda: none.delete("a"),
    ):
        with pytest.raises(BadRequest, match="XYLEM_DATA_DIR"):
            call()


def test_an_upload_is_there_when_it_is_finished_and_replaces_a_link(root: Path, below: Any) -> None:
    with below.upload("sub/new.jsonl") as upload:
        for piece in (b"one\n", b"", b"two\n"):
            upload.write(piece)
        assert not (root / "sub" / "new.jsonl").exists() and len(below.list()) == 3
        info = upload.finish()
    assert (info.name, info.bytes) == ("sub/new.jsonl", 8) and info in below.list()
    assert (root / "sub" / "new.jsonl").read_bytes() == b"one\ntwo\n"
    with below.upload("outside.jsonl") as upload:
        upload.finish()
    assert (root.parent / "secret.jsonl").read_text() == "secret"
    assert not (root / "outside.jsonl").is_symlink()


def test_an_upload_that_is_cut_off_or_too_long_leaves_nothing_and_the_old_file(
    root: Path, below: Any
) -> None:
    with pytest.raises(ConnectionError), below.upload("a.jsonl") as upload:
        upload.write(b"half")
        raise ConnectionError
    assert (root / "a.jsonl").read_text() == "a"
    with below.upload("n.jsonl") as upload:
        upload.write(BYTES_MAX * b"x")
        upload.finish()
    with pytest.raises(LimitExceeded, match="data_bytes_max"), below.upload("m.jsonl") as upload:
        upload.write(BYTES_MAX * b"x")
        upload.write(b"x")
    assert not (root / "m.jsonl").exists() and not list(root.glob(".upload-*"))


@pytest.mark.parametrize(
    "name",
    [
        *(".hidden", "-x", "sub/.x", "a b", "ü", "\0"),
        *("x/y", "sub//x", "sub/x/", "../x", "a.jsonl/x", "up/x", "sub", "/x"),
    ],
)
def test_an_upload_has_a_plain_name_in_a_directory_that_is_there(
    root: Path, below: Any, name: str
) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(BadRequest):
        below.upload(name)
    assert sorted(root.rglob("*")) == before


def test_what_a_killed_upload_left_goes_a_day_later_and_living_ones_stay(
    root: Path, below: Any
) -> None:
    left = root / ".upload-left"
    left.write_bytes(b"half")
    with below.upload("a.jsonl"), below.upload("a.jsonl"):
        assert len(list(root.glob(".upload-*"))) == 3
    long_ago = time.time() - ABANDONED_SECONDS - 1
    os.utime(left, (long_ago, long_ago))
    with below.upload("a.jsonl"):
        assert not left.exists()
    assert not list(root.glob(".upload-*"))


def test_files_are_deleted_of_links_the_link(root: Path, below: Any) -> None:
    below.delete("inside.jsonl")
    assert (root / "a.jsonl").exists()
    below.delete("sub/b.jsonl")
    assert [info.name for info in below.list()] == ["a.jsonl"]
    with pytest.raises(DataNotFound):
        below.delete("sub/b.jsonl")


CHANGES = {
    "append": lambda path: path.write_text(path.read_text() + "more"),
    "rewrite": lambda path: path.write_text("b"),
    "replace": lambda path: shutil.copy2(path, path.with_name("other")).replace(path),
    "touch": lambda path: os.utime(path, ns=(0, 0)),
    "remove": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_is_noticed(root: Path, below: Any, change: str) -> None:
    files = WatchedFiles(below)
    assert files.find("a.jsonl") == root / "a.jsonl"
    files.check()
    CHANGES[change](root / "a.jsonl")
    with pytest.raises(BadData):
        files.check()


def test_a_pair_of_files_is_watched_as_one_and_neither_leads_out_of_the_root(
    root: Path, below: Any
) -> None:
    other = root / "d.Y.npz"
    for path in (root / "d.X.npz", other):
        path.write_bytes(b"x")
    files = WatchedFiles(below)
    assert files.find("d.X.npz") == below.path_of("d.X.npz") == root / "d.X.npz"
    other.write_bytes(b"yy")
    with pytest.raises(BadData):
        files.check()
    other.unlink()
    other.symlink_to(root.parent / "secret.jsonl")
    with pytest.raises(BadRequest):
        below.path_of("d.X.npz")
