"""A remote store in a directory and in memory: what is pushed is pulled, bit by bit, or refused."""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from model_store.errors import BadNames, BadSplit, Conflict, Corrupt, VersionNotFound
from model_store.label_info import Subject, build_label_info
from model_store.manifest import manifest_digest
from model_store.splits import Split
from model_store.store import Store
from service.errors import BadParameter, Unavailable
from service.remote.documents import RemoteVersion
from service.remote.follower import RemoteFollower
from service.remote.objects import ATTEMPTS, SERIALS_KEPT, RemoteStore, shown_url
from service.serve import follow_remote
from service.settings import Settings
from tests.small_models import small_draft


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "here")
    for seed in (1, 2, 3):
        store.publish("m", small_draft(seed))
    return store


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def files_of(store: Store, model: str, version: int) -> dict[str, bytes]:
    home = store.root / "models" / model / "versions" / str(version)
    return {str(file.relative_to(home)): file.read_bytes() for file in home.rglob("*") if file.is_file()}


def test_what_is_pushed_is_pulled_bit_by_bit(store: Store, url: str, tmp_path: Path) -> None:
    remote, there = RemoteStore(url), Store(tmp_path / "there")
    there.prepare()
    pushed = remote.push(store, "m", 2)
    assert pushed == remote.push(store, "m", 2) == remote.find("m", 2)
    assert remote.pull(there, "m", pushed).version == 2
    remote.pull(there, "m", pushed)  # it is there already
    assert there.versions("m") == (2,)
    assert files_of(there, "m", 2) == files_of(store, "m", 2)
    there.verify("m", 2)
    assert there.publish("m", small_draft(4)).version == 3  # the next number, as everywhere


def test_aliases_are_read_as_they_were_moved(store: Store, url: str) -> None:
    remote = RemoteStore(url)
    assert remote.models() == []
    assert remote.aliases("m") == (0, {})
    pushed = [remote.push(store, "m", version) for version in (1, 2)]
    assert remote.move("m", "latest", pushed[1]).serial == 1
    assert remote.move("m", "stable", pushed[0]).serial == 2
    assert remote.move("m", "stable", pushed[0]).serial == 2  # nothing to write
    assert RemoteStore(url).aliases("m") == (2, {"latest": pushed[1], "stable": pushed[0]})
    assert remote.models() == ["m"]
    for turn in range(SERIALS_KEPT + 3):
        remote.move("m", "stable", pushed[turn % 2])
    assert len(remote._serials("m", "aliases")) == SERIALS_KEPT


def test_no_move_of_many_at_once_is_lost(store: Store, tmp_path: Path) -> None:
    """Local files are made exclusively, as S3 does it; who finds the number taken tries the next one."""
    url = f"file://{tmp_path}/remote"
    pushed = RemoteStore(url).push(store, "m", 1)
    aliases = [f"alias-{i}" for i in range(ATTEMPTS // 2)]
    threads = [
        threading.Thread(target=lambda alias=alias: RemoteStore(url).move("m", alias, pushed))
        for alias in aliases
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert RemoteStore(url).aliases("m") == (len(aliases), dict.fromkeys(aliases, pushed))


def test_who_reads_while_aliases_are_written_sees_those_before(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteStore(f"file://{tmp_path}/remote")
    first, second = (remote.push(store, "m", version) for version in (1, 2))
    before = remote.move("m", "latest", first)
    link, seen = os.link, []

    def read_and_link(source: str, target: str) -> None:
        seen.append(remote.aliases("m"))
        link(source, target)

    monkeypatch.setattr(os, "link", read_and_link)
    after = remote.move("m", "latest", second)
    assert seen == [before]
    assert remote.aliases("m") == after
    assert len(list((tmp_path / "remote" / "m" / "aliases").iterdir())) == 2  # nothing unfinished stays


def test_numbers_that_others_use_are_refused(store: Store, url: str, tmp_path: Path) -> None:
    remote, other = RemoteStore(url), Store(tmp_path / "other")
    other.publish("m", small_draft(9))
    pushed = remote.push(store, "m", 1)
    with pytest.raises(Conflict, match="expected no other m@1"):
        remote.push(other, "m", 1)
    with pytest.raises(Conflict, match="m@1: expected the version of"):
        remote.pull(other, "m", pushed)
    with pytest.raises(VersionNotFound, match="expected m@7, found no such object"):
        remote.find("m", 7)
    with pytest.raises(Conflict, match="as it was pushed, found another"):
        remote.move("m", "latest", RemoteVersion(version=1, digest="0" * 64))


def damaged(data: bytes) -> bytes:
    return data[:-5000] + bytes([data[-5000] ^ 1]) + data[-4999:]


@pytest.mark.parametrize(
    "harm", [damaged, lambda data: data[: len(data) // 2], lambda data: b"", lambda _: b"x" * 9]
)
def test_an_object_that_is_not_what_its_digest_says_is_not_published(
    store: Store, tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    remote, there = RemoteStore(f"file://{tmp_path}/remote"), Store(tmp_path / "there")
    there.prepare()
    pushed = remote.push(store, "m", 1)
    (file,) = (tmp_path / "remote" / "m" / "versions").iterdir()
    file.write_bytes(harm(file.read_bytes()))
    with pytest.raises(Corrupt):
        remote.pull(there, "m", pushed)
    assert there.models() == []


def test_another_version_under_a_name_is_refused(store: Store, tmp_path: Path) -> None:
    remote, there = RemoteStore(f"file://{tmp_path}/remote"), Store(tmp_path / "there")
    there.prepare()
    first, second = (remote.push(store, "m", version) for version in (1, 2))
    paths = [
        tmp_path / remote._version_path("m", version).partition("remote/")[2] for version in (first, second)
    ]
    shutil.copyfile(
        tmp_path / "remote" / paths[1].relative_to(tmp_path),
        tmp_path / "remote" / paths[0].relative_to(tmp_path),
    )
    with pytest.raises(Corrupt, match="expected m@1 of"):
        remote.pull(there, "m", first)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"latest": 1}',
        b'{"latest": {"version": 0, "digest": "x"}}',
        b'{"A b": {}}',
        b" " * 100_000,
    ],
)
def test_aliases_that_are_none_are_refused(store: Store, tmp_path: Path, content: bytes) -> None:
    remote = RemoteStore(f"file://{tmp_path}/remote")
    remote.move("m", "latest", remote.push(store, "m", 1))
    (tmp_path / "remote" / "m" / "aliases" / f"{2:012d}.json").write_bytes(content)
    with pytest.raises(Corrupt, match="aliases of m, number 2"):
        remote.aliases("m")


@pytest.mark.parametrize(
    ("url", "says"), [("nothing://x/y", "Protocol not known"), ("gs://bucket/x", "gcsfs")]
)
def test_a_url_of_an_unknown_kind_is_refused(url: str, says: str) -> None:
    with pytest.raises(BadParameter, match=says):
        RemoteStore(url)


def test_what_may_be_secret_is_not_shown() -> None:
    assert shown_url("s3://user:secret@bucket/a?key=b") == "s3://bucket/a"


def followed(remote: RemoteStore, there: Store, keep: int = 0) -> RemoteFollower:
    return RemoteFollower(remote, there, poll_seconds=3600, keep=keep)


def test_a_store_that_follows_has_what_aliases_name(store: Store, url: str, tmp_path: Path) -> None:
    remote, there = RemoteStore(url), Store(tmp_path / "there")
    there.publish("own", small_draft(5))
    follower = followed(remote, there)
    assert follower.look()
    pushed = {version: remote.push(store, "m", version) for version in (1, 2, 3)}
    remote.move("m", "stable", pushed[3])
    remote.move("m", "latest", pushed[2])
    assert follower.look()
    assert there.info("m").aliases == {"latest": 2, "stable": 3}
    assert there.versions("m") == (2, 3)
    remote.move("m", "latest", pushed[1])
    remote.move("m", "stable", pushed[1])
    assert follower.look()
    assert there.info("m").aliases == {"latest": 1, "stable": 1}
    assert there.versions("m") == (1,)  # it keeps none besides
    assert there.versions("own") == (1,)
    for version in (1, 3):
        assert manifest_digest(store.manifest("m", version)) == pushed[version].digest


def test_a_store_that_follows_has_the_splits(store: Store, url: str, tmp_path: Path) -> None:
    remote, there = RemoteStore(url), Store(tmp_path / "there")
    there.prepare()
    follower = followed(remote, there)
    pushed = {version: remote.push(store, "m", version) for version in (1, 2, 3)}
    remote.move("m", "latest", pushed[1])
    remote.put_beside("m", "latest", "canary", pushed[2], 500)
    remote.put_beside("m", "latest", "shadow", pushed[3], 10_000)
    assert follower.look()
    assert there.split("m") == Split(1, 2, 500, 3, 10_000)
    assert there.versions("m") == (1, 2, 3)
    remote.put_beside("m", "latest", "canary", pushed[2], 2000)
    assert follower.look()
    assert there.split("m") == Split(1, 2, 2000, 3, 10_000)
    remote.move("m", "latest", pushed[1])  # what it names already: the split ends
    assert follower.look()
    assert (there.split("m"), there.versions("m")) == (None, (1,))
    remote.put_beside("m", "latest", "canary", pushed[2], 500)
    assert follower.look()
    remote.move("m", "latest", pushed[2])
    assert follower.look()
    assert (there.alias("m").version, there.split("m")) == (2, None)
    assert remote.splits("m").splits == {}
    file = there.root / "models" / "m" / "splits" / "latest"
    file.write_bytes(b"half")
    remote.move("m", "stable", pushed[1])
    assert follower.look()
    assert not file.exists()


def test_a_split_that_does_not_fit_is_refused(store: Store, url: str) -> None:
    remote = RemoteStore(url)
    pushed = remote.push(store, "m", 1)
    with pytest.raises(Conflict, match="expected latest of m to name a version"):
        remote.put_beside("m", "latest", "canary", pushed, 500)
    remote.move("m", "latest", pushed)
    with pytest.raises(BadSplit, match="another version than the alias names"):
        remote.put_beside("m", "latest", "canary", pushed, 500)
    other = remote.push(store, "m", 2)
    for role, part in (("canary", 0), ("canary", 10_000), ("shadow", 10_001)):
        with pytest.raises(BadSplit):
            remote.put_beside("m", "latest", role, other, part)
    assert remote.splits("m") == (0, {})
    # who knows of no splits reads the aliases as before
    remote.put_beside("m", "latest", "canary", other, 500)
    assert remote.aliases("m") == (1, {"latest": pushed})


def test_versions_that_nobody_names_are_kept_up_to_a_number(store: Store, url: str, tmp_path: Path) -> None:
    remote, there = RemoteStore(url), Store(tmp_path / "there")
    there.prepare()
    follower = followed(remote, there, keep=1)
    for version in (1, 2, 3):
        remote.move("m", "latest", remote.push(store, "m", version))
        assert follower.look()
    assert there.versions("m") == (2, 3)


def test_a_fault_leaves_the_store_as_it_is_and_ends(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remote, there = RemoteStore(f"file://{tmp_path}/remote"), Store(tmp_path / "there")
    there.prepare()
    follower = followed(remote, there)
    remote.move("m", "latest", remote.push(store, "m", 1))
    assert follower.look()
    second = remote.push(store, "m", 2)
    remote.move("m", "latest", second)
    path = next(tmp_path.glob("remote/m/versions/2.*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    assert [follower.look(), follower.look()] == [False, False]
    assert there.info("m").aliases == {"latest": 1}
    path.write_bytes(whole)
    assert follower.look()
    assert there.info("m").aliases == {"latest": 2}
    events = [
        json.loads(line)["event"] for line in capsys.readouterr().err.splitlines() if line.startswith("{")
    ]
    assert events.count("remote_failed") == 1  # once a fault
    assert events[-1] == "remote_works_again"


def test_a_store_of_objects_that_does_not_answer_is_unavailable(store: Store, tmp_path: Path) -> None:
    place = tmp_path / "remote"
    place.write_text("a file, no directory")
    with pytest.raises(Unavailable, match="expected to look for m@1, found NotADirectoryError"):
        RemoteStore(f"file://{place}").push(store, "m", 1)


def test_a_replica_that_finds_no_model_does_not_start_and_one_that_has_some_does(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "remote").write_text("a file, no directory")
    settings = Settings(store=tmp_path / "empty", store_remote=f"file://{tmp_path}/remote/below")
    with pytest.raises(Unavailable, match="expected to fetch models, found none: see the log"):
        follow_remote(settings)
    follower = follow_remote(settings.model_copy(update={"store": store.root}))
    assert follower is not None
    follower.stop(60.0)
    assert follow_remote(Settings(store=store.root)) is None


def labelled(store: Store, name: str = "dog") -> None:
    subjects = [Subject("label::1", "12", {"en": name}), Subject("label::2", None, {"fi": "kissa"})]
    store.put_label_info("m", build_label_info(subjects))


def info_bytes(store: Store) -> bytes:
    return (store.root / "models" / "m" / "label_info").read_bytes()


def test_label_info_and_denied_labels_travel(store: Store, url: str, tmp_path: Path) -> None:
    remote, there = RemoteStore(url), Store(tmp_path / "there")
    there.prepare()
    assert remote.push_label_info(store, "m") is None and remote.label_info("m") == (0, None)
    labelled(store)
    info = remote.push_label_info(store, "m")
    assert info is not None and remote.push_label_info(store, "m") == info
    assert remote.label_info("m") == (1, info)
    assert remote.change_denied("m", "latest", lambda before: {*before, "label::3"}) == ("label::3",)
    assert remote.change_denied("m", "next", lambda _: ["label::4", "b"]) == ("b", "label::4")
    remote.move("m", "latest", remote.push(store, "m", 2))
    follower = RemoteFollower(remote, there, poll_seconds=9, keep=2)
    assert follower.look()
    assert info_bytes(there) == info_bytes(store)
    assert there.denied("m") == ("label::3",)
    remote.move("m", "next", remote.find("m", 2))
    labelled(store, "hound")
    remote.push_label_info(store, "m")
    remote.change_denied("m", "latest", lambda _: ())
    assert follower.look()
    assert info_bytes(there) == info_bytes(store)
    assert (there.denied("m"), there.denied("m", "next")) == ((), ("b", "label::4"))
    with pytest.raises(BadNames, match="at most 10000 denied labels"):
        remote.change_denied("m", "latest", lambda _: [f"label {i}" for i in range(10_001)])
    with pytest.raises(BadNames, match="expected denied of at most"):
        for i in range(8):
            remote.change_denied("m", f"alias-{i}", lambda _: [f"{k:06d}" + "x" * 960 for k in range(900)])


def test_label_info_that_is_not_what_its_digest_says_is_refused(store: Store, tmp_path: Path) -> None:
    remote, there = RemoteStore(f"file://{tmp_path}/remote"), Store(tmp_path / "there")
    labelled(store)
    info = remote.push_label_info(store, "m")
    assert info is not None
    remote.pull(there, "m", remote.push(store, "m", 1))
    file = tmp_path / "remote" / "m" / "label_info" / f"{info.digest}.bin"
    whole = file.read_bytes()
    labelled(store, "another")
    damaged = whole[:8200] + b"x" + whole[8201:]
    for bad in (whole[:-1], whole + b"x", damaged, whole.replace(b"dog", b"god"), info_bytes(store)):
        file.write_bytes(bad)
        with pytest.raises(Corrupt):
            remote.pull_label_info(there, "m", info)
        assert there.label_info("m") is None
    file.write_bytes(whole)
    remote.pull_label_info(there, "m", info)
    assert info_bytes(there) == whole
