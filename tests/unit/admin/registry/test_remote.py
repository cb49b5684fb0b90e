"""A remote store in a directory and in memory: what is pushed is pulled, bit by bit, or refused."""

from functools import partial
from pathlib import Path

import pytest
from tests.conftest import together
from tests.helpers.remote_stores import followed, move
from tests.helpers.small_models import small_draft

from xylem.admin.registry.remote import (
    ATTEMPTS,
    INDEX,
    RemoteStore,
    RemoteVersion,
)
from xylem.base.errors import BadParameter
from xylem.base.files import redacted_url
from xylem_store.alias import (
    Alias,
    TrafficShare,
    promoted,
    removed,
    with_canary,
)
from xylem_store.documents import render_sealed
from xylem_store.errors import AliasNotFound, BadNames, BadSplit, Conflict, Corrupt, VersionNotFound
from xylem_store.remote_index import RemoteIndex, RemoteModel
from xylem_store.store import Store


def files_of(store: Store, version: int) -> dict[str, bytes]:
    home = store.root / "models/m/versions" / str(version)
    return {
        str(file.relative_to(home)): file.read_bytes() for file in home.rglob("*") if file.is_file()
    }


def test_what_is_pushed_is_pulled_bit_by_bit(
    store: Store, remote: RemoteStore, there: Store
) -> None:
    pushed = remote.push(store, "m", 2)
    assert pushed == remote.push(store, "m", 2) == remote.find("m", 2)
    assert remote.pull(there, "m", pushed).version == 2
    remote.pull(there, "m", pushed)  # it is there already
    assert there.versions("m") == (2,)
    assert files_of(there, 2) == files_of(store, 2)
    there.verify("m", 2)
    assert there.publish("m", small_draft(4)).version == 3  # the next number, as everywhere


def test_aliases_are_read_as_they_were_moved(store: Store, url: str, remote: RemoteStore) -> None:
    assert remote.index() == RemoteIndex()
    first, second = (remote.push(store, "m", version) for version in (1, 2))
    move(remote, "latest", second)
    move(remote, "stable", first)
    index = remote.index()
    move(remote, "stable", first)  # nothing to write
    assert remote.index() is index
    named = RemoteModel(
        {"latest": Alias(2, serial=1), "stable": Alias(1, serial=2)}, dict((first, second))
    )
    assert RemoteStore(url).index() == index == RemoteIndex(2, {"m": named})
    after = remote.change("m", {"stable": removed, "latest": promoted(1)}, first)  # both or none
    assert (
        after
        == RemoteModel({"latest": Alias(1, (2,), serial=3)}, dict((first,)))
        == remote.model("m")
    )


def test_no_change_of_many_at_once_is_lost(store: Store, tmp_path: Path) -> None:
    """A file is replaced only as it was read; who finds it changed reads and tries again."""
    url = f"file://{tmp_path}/remote"
    pushed = RemoteStore(url).push(store, "m", 1)
    aliases = [f"alias-{i}" for i in range(ATTEMPTS // 2)]
    together(*(partial(move, RemoteStore(url), alias, pushed) for alias in aliases))
    found = RemoteStore(url).index()
    assert found.generation == len(aliases)
    named = {alias: document.version for alias, document in found.models["m"].aliases.items()}
    assert named == dict.fromkeys(aliases, 1)


def test_an_index_that_others_have_written_is_not_written_over(store: Store, url: str) -> None:
    """Also by who has read it before, and by who found none."""
    one, two, late = RemoteStore(url), RemoteStore(url), RemoteStore(url)
    pushed = one.push(store, "m", 1)
    assert late.index().generation == 0
    move(one, "latest", pushed)
    assert not late._write(RemoteIndex(1, {"m": RemoteModel()}))
    assert two.index() == one.index()
    move(one, "stable", pushed)
    assert not two._write(RemoteIndex(2, {"m": RemoteModel()}))
    assert two.index() == one.index() and two.index().generation == 2


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
        move(remote, "latest", RemoteVersion(1, "0" * 64))
    assert remote.index() == RemoteIndex()


def test_bad_objects_are_refused(
    store: Store, tmp_path: Path, on_disk: RemoteStore, there: Store
) -> None:
    pushed, _ = (on_disk.push(store, "m", version) for version in (1, 2))
    file, other = sorted((tmp_path / "remote" / "m" / "versions").iterdir())
    whole = file.read_bytes()
    for harmed, fault in (
        (whole[:-5000] + bytes([whole[-5000] ^ 1]) + whole[-4999:], "archive"),
        (whole[: len(whole) // 2], "archive"),
        (b"", "archive"),
        (b"x" * 9, "archive"),
        (other.read_bytes(), "expected m@1 of"),
    ):
        file.write_bytes(harmed)
        with pytest.raises(Corrupt, match=fault):
            on_disk.pull(there, "m", pushed)
    assert there.models() == []


INDEX_OF_ONE = RemoteIndex(1, {"m": RemoteModel({"latest": Alias(1)}, {1: "0" * 64})}).render()

ALIAS = Alias(1).fields()
MODEL = {"aliases": {"latest": ALIAS}, "digests": {"1": "0" * 64}, "label_info": None}


@pytest.mark.parametrize(
    "content",
    [
        *(None, b"", b"[]"),
        *(INDEX_OF_ONE[:end] for end in (1, 20, len(INDEX_OF_ONE) - 1)),
        INDEX_OF_ONE.replace(b'"version": 1', b'"version": 2'),
        render_sealed({}),
        render_sealed({"generation": 0, "models": {}}),
        render_sealed({"generation": 1, "models": []}),
        render_sealed({"generation": 1, "models": {"M M": MODEL}}),
        *(
            render_sealed({"generation": 1, "models": {"m": {**MODEL, **change}}})
            for change in (
                {"more": 1},
                {"aliases": {"12": ALIAS}},
                {"aliases": {"latest": {**ALIAS, "version": 0}}},
                {"aliases": {"latest": {**ALIAS, "version": 2}}},
                {"digests": {"1": "0" * 63}},
                {"digests": {"x": "0" * 64}},
                {"label_info": {"digest": "0" * 64, "bytes": 0}},
            )
        ),
    ],
)
def test_an_index_that_is_none_is_refused_and_not_written_over(
    store: Store, tmp_path: Path, content: bytes | None, on_disk: RemoteStore, there: Store
) -> None:
    pushed = on_disk.push(store, "m", 1)
    move(on_disk, "latest", pushed)
    follower = followed(on_disk, there)
    assert follower.look()
    file = tmp_path / "remote" / INDEX
    whole = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert not follower.look()
    with pytest.raises(Corrupt, match=INDEX):
        move(on_disk, "stable", pushed)
    assert there.info("m").aliases == {"latest": 1}
    file.write_bytes(whole)
    assert follower.look()


def test_an_index_is_what_was_written_and_bounded() -> None:
    assert RemoteIndex.parse(INDEX_OF_ONE, "there").models["m"].aliases == {"latest": Alias(1)}
    big = Alias(1, denied=tuple(f"{k:06d}" + "x" * 900 for k in range(1000)))
    big.check()
    for models, fault in (
        ({f"m{i}": RemoteModel({"latest": big}) for i in range(20)}, "at most 16777216 bytes"),
        ({"m": RemoteModel({f"a{i}": Alias(1) for i in range(257)})}, "256 aliases"),
        ({f"m{i}": RemoteModel() for i in range(10_001)}, "10000 models"),
    ):
        with pytest.raises(BadNames, match=fault):
            RemoteIndex(1, models).render()


def test_a_url_of_an_unknown_kind_is_refused_without_secrets() -> None:
    for url, says in (("nothing://x/y", "Protocol not known"), ("gs://bucket/x", "gcsfs")):
        with pytest.raises(BadParameter, match=says):
            RemoteStore(url)
    assert redacted_url("s3://user:secret@bucket/a?key=b") == "s3://bucket/a"


def test_a_split_that_does_not_fit_is_refused(store: Store, remote: RemoteStore) -> None:
    pushed, other = (remote.push(store, "m", version) for version in (1, 2))
    with pytest.raises(AliasNotFound, match="m@latest: expected an alias"):
        remote.change("m", {"latest": with_canary(1, 0.05)}, pushed)
    move(remote, "latest", pushed)
    for change in (
        with_canary(1, 0.05),
        lambda alias: alias._replace(canary=TrafficShare(2, 10_000)),
        lambda alias: alias._replace(shadow=TrafficShare(2, 0)),
    ):
        with pytest.raises(BadSplit):
            remote.change("m", {"stable": promoted(1), "latest": change}, other)
    assert remote.index().generation == 1
