"""A store that follows a remote one has what its aliases name, and what stands beside them."""

import json
from pathlib import Path

import pytest
from tests.helpers.remote_stores import followed, move
from tests.helpers.small_models import small_draft

from xylem.admin.registry.remote import (
    RemoteStore,
)
from xylem.base.errors import Unavailable
from xylem.base.settings import Settings
from xylem.server.serve import follow_remote
from xylem_store.alias import (
    Alias,
    TrafficShare,
    denying,
    promoted,
    removed,
    with_canary,
    with_shadow,
)
from xylem_store.errors import BadNames, Corrupt
from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store


def test_a_store_that_follows_has_what_aliases_name(
    store: Store, remote: RemoteStore, there: Store
) -> None:
    there.publish("own", small_draft(5))
    follower = followed(remote, there)
    assert not follower.look()  # nothing was pushed: that is told, and nothing is touched
    pushed = {version: remote.push(store, "m", version) for version in (1, 2, 3)}
    move(remote, "stable", pushed[3])
    move(remote, "latest", pushed[2])
    assert follower.look()
    assert there.info("m").aliases == {"latest": 2, "stable": 3}
    assert there.versions("m") == (2, 3)
    move(remote, "latest", pushed[1])
    remote.change("m", {"stable": removed})
    assert follower.look()
    assert there.info("m").aliases == {"latest": 1}
    assert there.versions("m") == there.versions("own") == (1,)  # it keeps none besides
    for version in (1, 3):
        assert store.manifest("m", version).digest == pushed[version].digest


def test_a_store_that_follows_has_the_splits(
    store: Store, remote: RemoteStore, there: Store
) -> None:
    follower = followed(remote, there)
    pushed = {version: remote.push(store, "m", version) for version in (1, 2, 3)}
    for change, version, expected in (
        (promoted(1), 1, Alias(1)),
        (with_canary(2, 0.05), 2, Alias(1, (), TrafficShare(2, 500))),
        (with_shadow(3, 1), 3, Alias(1, (), TrafficShare(2, 500), TrafficShare(3, 10_000))),
        (with_canary(2, 0.2), 2, Alias(1, (), TrafficShare(2, 2000), TrafficShare(3, 10_000))),
        (promoted(1), 1, Alias(1)),  # what it names already: the split ends
        (with_canary(2, 0.05), 2, Alias(1, (), TrafficShare(2, 500))),
        (promoted(2), 2, Alias(2, (1,))),
    ):
        remote.change("m", {"latest": change}, pushed[version])
        assert follower.look()
        assert there.alias("m")[:4] == expected[:4]
        assert there.versions("m") == tuple(sorted(expected.versions))
    assert remote.model("m").aliases == {"latest": Alias(2, (1,), serial=7)}


def test_some_that_nobody_names_are_kept(store: Store, remote: RemoteStore, there: Store) -> None:
    follower = followed(remote, there, keep=1)
    for version in (1, 2, 3):
        move(remote, "latest", remote.push(store, "m", version))
        assert follower.look()
    assert there.versions("m") == (2, 3)


def test_a_fault_leaves_the_store_as_it_is_and_ends(
    store: Store,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    on_disk: RemoteStore,
    there: Store,
) -> None:
    follower = followed(on_disk, there)
    move(on_disk, "latest", on_disk.push(store, "m", 1))
    assert follower.look()
    move(on_disk, "latest", on_disk.push(store, "m", 2))
    path = next(tmp_path.glob("remote/m/versions/2.*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    assert [follower.look(), follower.look()] == [False, False]
    assert there.info("m").aliases == {"latest": 1}
    path.write_bytes(whole)
    assert follower.look()
    assert there.info("m").aliases == {"latest": 2}
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    events = [json.loads(line)["event"] for line in lines]
    assert events.count("remote_failed") == 1  # once a fault
    assert events[-1] == "remote_works_again"


def test_a_replica_starts_with_what_it_has(
    store: Store, tmp_path: Path, on_disk: RemoteStore
) -> None:
    (tmp_path / "remote").write_text("a file, no directory")
    with pytest.raises(Unavailable, match="expected to look for m@1, found NotADirectoryError"):
        on_disk.push(store, "m", 1)
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


def test_label_info_and_denied_labels_travel(
    store: Store, remote: RemoteStore, there: Store
) -> None:
    assert remote.push_label_info(store, "m") is None
    labelled(store)
    info = remote.push_label_info(store, "m")
    assert info is not None and remote.push_label_info(store, "m") == info

    def deny(alias: str, *labels: str) -> object:
        return remote.change("m", {alias: denying(lambda _: labels)}).aliases[alias].denied

    pushed = remote.push(store, "m", 2)
    changes = {name: promoted(2) for name in ("latest", "next")}
    assert remote.change("m", changes, pushed, info).label_info == info
    assert (deny("latest", "label::3"), deny("next", "label::4", "b")) == (
        ("label::3",),
        ("b", "label::4"),
    )
    follower = followed(remote, there, keep=2)
    assert follower.look()
    assert info_bytes(there) == info_bytes(store)
    assert there.alias("m").denied == ("label::3",)
    labelled(store, "hound")
    remote.change("m", {}, info=remote.push_label_info(store, "m"))
    deny("latest")
    assert follower.look()
    assert info_bytes(there) == info_bytes(store)
    assert (there.alias("m").denied, there.alias("m", "next").denied) == ((), ("b", "label::4"))
    with pytest.raises(BadNames, match="at most 10000 denied labels"):
        deny("latest", *(f"label {i}" for i in range(10_001)))


def test_bad_label_info_is_refused(
    store: Store, tmp_path: Path, on_disk: RemoteStore, there: Store
) -> None:
    labelled(store)
    info = on_disk.push_label_info(store, "m")
    assert info is not None
    on_disk.pull(there, "m", on_disk.push(store, "m", 1))
    file = tmp_path / "remote" / "m" / "label_info" / f"{info.digest}.bin"
    whole = file.read_bytes()
    labelled(store, "another")
    changed = whole[:8200] + b"x" + whole[8201:]
    for bad in (
        whole[:-1],
        whole + b"x",
        changed,
        whole.replace(b"dog", b"god"),
        info_bytes(store),
    ):
        file.write_bytes(bad)
        with pytest.raises(Corrupt):
            on_disk.pull_label_info(there, "m", info)
        assert there.label_info("m") is None
    file.write_bytes(whole)
    on_disk.pull_label_info(there, "m", info)
    assert info_bytes(there) == whole
