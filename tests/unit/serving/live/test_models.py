"""Live models follow their store: promotions, failures, and damaged versions."""

import asyncio
import errno
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.helpers.faulty_fs import FaultyFileSystem
from tests.helpers.live_models import (
    Opened,
    damage,
    find,
    following,
    live_over,
    looked,
    publish,
    until,
)

import xylem.serving.live.opener as opener_module
from xylem.base.errors import Unavailable
from xylem.serving.live.models import ModelUnavailable
from xylem_store.errors import AliasNotFound, ModelNotFound, VersionNotFound
from xylem_store.store import Store
from xylem_store.version import Model


def test_an_open_model_answers_before_the_first_look_has_ended(own_store: Store) -> None:
    opened = Opened()

    def prepare(model: Model) -> str:
        if model.manifest.model == "text":  # the last
            assert find(live, model="named") == "named@1"
            assert not live.ready
            for name in ("text", "none"):
                with pytest.raises(Unavailable, match="being opened"):
                    live.version_of(name, "latest")
        return opened(model)

    live = live_over(own_store, prepare)
    assert not live.ready
    with pytest.raises(Unavailable, match="being opened"):
        find(live)
    live.look()
    assert opened[-1] == find(live, model="text") == "text@1"
    assert live.ready


def test_a_store_that_is_missing_is_told(tmp_path: Path) -> None:
    live = live_over(Store(tmp_path / "none"))
    with pytest.raises(Unavailable, match="the models are being opened"):
        live.refuse_before_first_look()
    live.look()
    for refuse in (live.refuse_before_first_look, partial(live.version_of, "m", "latest")):
        with pytest.raises(Unavailable, match="expected the directory of the models, found none"):
            refuse()
    (tmp_path / "none").mkdir()
    live.look()
    live.refuse_before_first_look()


def test_aliases_and_versions(own_store: Store) -> None:
    live = looked(own_store)
    assert live.ready
    found = [find(live, ref) for ref in ("latest", "stable", "1", "2")]
    assert found == ["raw@2", "raw@1", "raw@1", "raw@2"]
    for model, ref, error in (
        ("none", "latest", ModelNotFound),
        ("none", "1", ModelNotFound),
        ("../raw", "1", Exception),
        ("raw", "none", AliasNotFound),
        ("raw", "3", VersionNotFound),
    ):
        with pytest.raises(error):
            find(live, ref, model)
    assert live.status().failures == []


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda root: Store(root / "none"), "found none"),
        (lambda root: Store(Path(__file__)), "found a file"),
        (lambda root: Store(root, fs=FaultyFileSystem(0, errno.EACCES)), "found Permission denied"),
    ],
)
def test_a_store_that_is_not_there_says_why(
    tmp_path: Path, make: Callable[[Path], Store], found: str
) -> None:
    store = make(tmp_path)
    live = looked(store)
    assert not live.ready
    said = str(live.status().store_error)
    assert said.endswith(found)
    assert str(store.root) not in said
    with pytest.raises(Unavailable, match=found):
        find(live)


def test_a_store_that_is_made_later_becomes_ready_even_if_empty(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    live, of_empty = looked(store), looked(Store(tmp_path))
    assert (of_empty.ready, of_empty.status().store_error) == (True, None)
    with pytest.raises(ModelNotFound):
        find(of_empty)
    publish(store)
    live.look()
    assert (live.ready, live.status().store_error, find(live)) == (True, None, "raw@1")


def test_what_fails_with_a_path_is_reported_without_it(own_store: Store) -> None:
    def fail(_: Model) -> str:
        raise OSError(errno.EMFILE, "Too many open files", str(own_store.root / "secret"))

    live = looked(own_store, fail)
    assert {failure.detail for failure in live.status().failures} == {"OSError"}
    with pytest.raises(ModelUnavailable) as raised:
        find(live, "1")
    assert str(own_store.root) not in str(raised.value)


def test_it_follows_publish_promote_and_rollback(own_store: Store) -> None:
    live = looked(own_store)
    publish(own_store)
    assert find(live) == "raw@2"
    live.look()
    assert find(live) == "raw@3"
    own_store.rollback("raw")
    live.look()
    assert find(live) == "raw@2"
    own_store.promote("raw", 3, "stable")
    live.look()
    assert find(live, "stable") == "raw@3"
    assert live.status().swaps == 3


def test_a_version_is_prepared_once_and_not_at_every_look(own_store: Store) -> None:
    prepared = Opened()
    live = live_over(own_store, prepared)
    own_store.promote("raw", 2, "canary")
    for _ in range(3):
        live.look()
    assert sorted(prepared) == ["hashed@1", "named@1", "raw@1", "raw@2", "text@1"]


def test_a_damaged_new_version_keeps_the_old_one(own_store: Store) -> None:
    live = looked(own_store)
    damage(own_store, "raw", publish(own_store))
    live.look()
    assert find(live) == "raw@2"
    (failure,) = live.status().failures
    assert (failure.model, failure.ref) == ("raw", "3")
    assert "sha256" in failure.detail or "Corrupt" in failure.detail
    with pytest.raises(ModelUnavailable):
        find(live, "3")
    publish(own_store, seed=4)
    live.look()
    assert find(live) == "raw@4"


def test_a_model_damaged_from_the_start_is_not_served_others_are(
    own_store: Store, tmp_path: Path
) -> None:
    """Where there are none, nothing is ready."""
    damage(own_store, "text", 1)
    live = looked(own_store)
    assert live.ready
    with pytest.raises(ModelUnavailable):
        find(live, model="text")
    assert find(live) == "raw@2"
    only = Store(tmp_path / "only")
    damage(only, "raw", publish(only))
    assert not looked(only).ready


def test_a_failure_is_tried_again_after_a_while(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Opened()
    prepare.error = OSError("too many open files")
    live = looked(own_store, prepare)
    publish(own_store)
    for _ in range(3):
        live.look()
    assert prepare.count("raw@3") == 1
    prepare.error = None
    clock = SimpleNamespace(monotonic=lambda: float("inf"), perf_counter=time.perf_counter)
    monkeypatch.setattr(
        opener_module, "time", clock
    )  # of this module only: others schedule by theirs
    live.look()
    assert (find(live), live.status().failures) == ("raw@3", [])


async def test_waking_tries_a_version_again_that_could_not_be_prepared(
    own_store: Store,
) -> None:
    prepare = Opened()
    prepare.error = KeyError("surprise")
    live = live_over(own_store, prepare)
    async with following(live, 3600):
        publish(own_store)
        live.wake()
        await until(lambda: live.status().failures != [])
        assert await live.find("raw", "latest") == "raw@2"
        assert live.status().failures[0].detail.startswith("KeyError")
        prepare.error = None
        live.wake()
        await until(lambda: live.resident("raw", "latest") == "raw@3")


async def test_nothing_ends_the_task_that_follows_the_store(own_store: Store) -> None:
    calls: list[str] = []
    newest = 0

    def fail(name: str) -> str:
        calls.append(name)
        raise ValueError(name)

    def deny(opened: str, _: object) -> str:
        return fail("renewed") if opened == "raw@2" and newest else opened

    live = live_over(own_store, deny=deny)
    task = asyncio.create_task(live.follow(0.005, partial(fail, "looked")))
    await live.has_looked.wait()
    newest = publish(own_store)
    await until(lambda: live.version_of("raw", "latest") == newest)
    await live.find("raw", "2")  # no alias names it any more: each look at a change renews it
    newest = publish(own_store)
    await until(lambda: live.version_of("raw", "latest") == newest)
    assert calls.count("renewed") > 0
    assert calls.count("looked") == 1
    assert not task.done()
    task.cancel()


def test_an_unreadable_store_keeps_what_is_served(own_store: Store, tmp_path: Path) -> None:
    live = looked(own_store)
    moved = own_store.root.rename(tmp_path / "moved")
    own_store.root.write_text("not a directory")
    live.look()
    assert live.status().store_error
    assert find(live) == "raw@2"
    own_store.root.unlink()
    moved.rename(own_store.root)
    live.look()
    assert live.status().store_error is None
