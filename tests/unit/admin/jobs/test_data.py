"""Data that requests of jobs name: files below a root, uploads, and files that change."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from xylem.admin.jobs.context import WatchedFiles
from xylem.admin.jobs.data import ABANDONED_SECONDS, DataRoot
from xylem.admin.jobs.errors import DataNotFound
from xylem.base.errors import BadData, BadRequest, LimitExceeded

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


def test_a_prefix_hides_all_other_files(root: Path, below: DataRoot) -> None:
    (root / "sub" / "linked.jsonl").symlink_to("../a.jsonl")
    (root / "sub2").mkdir()
    (root / "sub2" / "b.jsonl").write_text("b")
    for prefix, names in (("sub/", ["sub/b.jsonl"]), ("a", ["a.jsonl"]), ("x", []), (None, [])):
        files = below.below(prefix)
        assert [file.name for file in files.list()] == names
        for name in ("sub/b.jsonl", "a.jsonl", "sub2/b.jsonl", "sub/../a.jsonl", *HOSTILE):
            if name not in names and not (prefix == "a" and name == "sub/../a.jsonl"):
                with pytest.raises(BadRequest, match="expected a file below the data directory"):
                    files.path_of(name)
                with pytest.raises(DataNotFound):
                    files.delete(name)
        for name in ("sub2/new.jsonl", "new.jsonl", "sub"):
            with pytest.raises(BadRequest, match="expected a file in a directory below"):
                files.upload(name)
    # a link is a file of where it leads
    with pytest.raises(BadRequest):
        below.below("sub/").path_of("sub/linked.jsonl")
    with below.below("sub/").upload("sub/new.jsonl") as upload:
        assert upload.finish().name == "sub/new.jsonl"


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


def test_files_and_links_below_the_root_are_accepted(root: Path, below: Any) -> None:
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


def test_a_finished_upload_replaces_a_link(root: Path, below: Any) -> None:
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


def test_a_cut_off_or_too_long_upload_leaves_the_old_file(root: Path, below: Any) -> None:
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


def test_what_a_killed_upload_left_goes_a_day_later(root: Path, below: Any) -> None:
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


def test_a_pair_of_files_is_watched_as_one_below_the_root(root: Path, below: Any) -> None:
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
