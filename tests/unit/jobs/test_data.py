"""The data root: names that lead out of it, uploads that are cut off, files that change."""

import os
import shutil
import time
from pathlib import Path

import pytest

from service.base.errors import BadData, BadRequest, DataNotFound, LimitExceeded
from service.jobs.context import WatchedFiles
from service.jobs.data import ABANDONED_SECONDS, DataRoot

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
def data(root: Path) -> DataRoot:
    return DataRoot(root, BYTES_MAX)


HOSTILE = [
    *("", ".", "..", "../secret.jsonl", "sub/../../secret.jsonl", "../root-beside/x.jsonl"),
    *("/etc/passwd", "//etc/passwd", "~/x"),
    *("outside.jsonl", "up/secret.jsonl", "up/root-beside/x.jsonl", "circle", "gone.jsonl"),  # links
    *("pipe.jsonl", "sub", "a.jsonl/x", "none.jsonl"),  # no files
    *("a.jsonl\0", "\0", "\udcff", "x" * 300, "sub/" * 1000 + "b.jsonl"),  # no names
]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:30])
def test_no_name_leads_out_of_the_root_or_to_what_is_no_file(root, data, name):
    with pytest.raises(BadRequest) as caught:
        data.path_of(name, "valid")
    assert caught.value.path == "valid" and len(str(caught.value)) < 500
    assert str(root.parent) not in str(caught.value)
    with pytest.raises(DataNotFound):
        data.delete(name)
    assert (root.parent / "secret.jsonl").read_text() == "secret"


@pytest.mark.parametrize("name", [None, 3, ["a.jsonl"], {"a": 1}, True])
def test_a_name_is_a_string(data, name):
    with pytest.raises(BadRequest):
        data.path_of(name)


def test_files_and_links_below_the_root_are_found_and_the_root_may_be_a_link(root, data):
    assert data.path_of("a.jsonl") == root / "a.jsonl" == data.path_of("inside.jsonl")
    assert data.path_of("sub/b.jsonl") == root / "sub" / "b.jsonl" == data.path_of("sub/../sub/b.jsonl")
    found = [(info.name, info.bytes) for info in data.list()]
    assert found == [("a.jsonl", 1), ("inside.jsonl", 1), ("sub/b.jsonl", 2)]
    assert data.shown(f"{root}/sub/b.jsonl:3: expected") == "sub/b.jsonl:3: expected"
    link = root.parent / "link"
    link.symlink_to(root)
    linked = DataRoot(link, BYTES_MAX)
    assert linked.path_of("sub/b.jsonl").read_text() == "bb" and linked.list() == data.list()


@pytest.mark.parametrize("name", [None, "none"])
def test_without_a_root_everything_is_refused(tmp_path, name):
    data = DataRoot(None if name is None else tmp_path / name, BYTES_MAX)
    for call in (lambda: data.path_of("a"), data.list, lambda: data.upload("a"), lambda: data.delete("a")):
        with pytest.raises(BadRequest, match="XYLEM_DATA_DIR"):
            call()


def test_an_upload_is_there_when_it_is_finished_and_whole(root, data):
    with data.upload("sub/new.jsonl") as upload:
        for piece in (b"one\n", b"", b"two\n"):
            upload.write(piece)
        assert not (root / "sub" / "new.jsonl").exists() and len(data.list()) == 3
        info = upload.finish()
    assert (info.name, info.bytes) == ("sub/new.jsonl", 8) and info in data.list()
    assert (root / "sub" / "new.jsonl").read_bytes() == b"one\ntwo\n"


def test_an_upload_over_a_link_replaces_the_link(root, data):
    with data.upload("outside.jsonl") as upload:
        upload.write(b"mine")
        upload.finish()
    assert (root.parent / "secret.jsonl").read_text() == "secret"
    assert not (root / "outside.jsonl").is_symlink()


def test_an_upload_that_is_cut_off_leaves_nothing_and_the_old_file(root, data):
    with pytest.raises(ConnectionError), data.upload("a.jsonl") as upload:
        upload.write(b"half")
        raise ConnectionError
    assert (root / "a.jsonl").read_text() == "a"
    assert not list(root.glob(".upload-*"))


def test_an_upload_at_the_limit_is_taken_and_one_beyond_it_is_not(root, data):
    with data.upload("n.jsonl") as upload:
        upload.write(BYTES_MAX * b"x")
        upload.finish()
    with pytest.raises(LimitExceeded, match="data_bytes_max"), data.upload("m.jsonl") as upload:
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
def test_an_upload_has_a_plain_name_in_a_directory_that_is_there(root, data, name):
    before = sorted(root.rglob("*"))
    with pytest.raises(BadRequest):
        data.upload(name)
    assert sorted(root.rglob("*")) == before


def test_what_a_killed_upload_left_goes_a_day_later_and_living_ones_stay(root, data):
    left = root / ".upload-left"
    left.write_bytes(b"half")
    with data.upload("a.jsonl"), data.upload("a.jsonl"):
        assert len(list(root.glob(".upload-*"))) == 3
    long_ago = time.time() - ABANDONED_SECONDS - 1
    os.utime(left, (long_ago, long_ago))
    with data.upload("a.jsonl"):
        assert not left.exists()
    assert not list(root.glob(".upload-*"))


def test_files_are_deleted_of_links_the_link(root, data):
    data.delete("inside.jsonl")
    assert (root / "a.jsonl").exists()
    data.delete("sub/b.jsonl")
    assert [info.name for info in data.list()] == ["a.jsonl"]
    with pytest.raises(DataNotFound):
        data.delete("sub/b.jsonl")


CHANGES = {
    "append": lambda path: path.write_text(path.read_text() + "more"),
    "rewrite": lambda path: path.write_text("b"),
    "replace": lambda path: shutil.copy2(path, path.with_name("other")).replace(path),
    "touch": lambda path: os.utime(path, ns=(0, 0)),
    "remove": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_is_noticed(root, data, change):
    files = WatchedFiles(data)
    assert files.find("a.jsonl") == root / "a.jsonl"
    files.check()
    CHANGES[change](root / "a.jsonl")
    with pytest.raises(BadData):
        files.check()


def test_a_pair_of_files_is_watched_as_one_and_neither_leads_out_of_the_root(root, data):
    other = root / "d.Y.npz"
    for path in (root / "d.X.npz", other):
        path.write_bytes(b"x")
    files = WatchedFiles(data)
    assert files.find("d.X.npz") == data.path_of("d.X.npz") == root / "d.X.npz"
    other.write_bytes(b"yy")
    with pytest.raises(BadData):
        files.check()
    other.unlink()
    other.symlink_to(root.parent / "secret.jsonl")
    with pytest.raises(BadRequest):
        data.path_of("d.X.npz")
