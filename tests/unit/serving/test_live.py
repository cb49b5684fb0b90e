import asyncio
import errno
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import service.serving.live as live_module
from model_store.alias import PARTS, Beside
from model_store.errors import AliasNotFound, ModelNotFound, VersionNotFound
from model_store.store import Store
from model_store.version import Model
from service.base.errors import ModelUnavailable, TimedOut, Unavailable
from service.serving.live import LiveModels
from service.serving.split import roles_of
from tests.alias_helpers import file_of, split
from tests.faulty_fs import FaultyFileSystem
from tests.served_models import publish_model

Live = LiveModels[str]


def name_of(model: Model) -> str:
    return f"{model.manifest.model}@{model.manifest.version}"


class Opened(list[str]):
    """Prepares versions, and keeps their names."""

    def __call__(self, model: Model) -> str:
        self.append(name_of(model))
        return self[-1]


def live_over(store: Store, prepare: Callable[[Model], str] = name_of, **changes: Any) -> Live:
    return LiveModels(
        store, prepare, **{"models_max": 100, "versions_max": 2, "seconds_max": 30.0, **changes}
    )


def looked(store: Store, prepare: Callable[[Model], str] = name_of, **changes: Any) -> Live:
    live = live_over(store, prepare, **changes)
    live.look()
    return live


@asynccontextmanager
async def following(live: Live, poll_seconds: float) -> AsyncIterator[None]:
    """Follows the store; begins when it has been looked at."""
    task = asyncio.create_task(live.follow(poll_seconds, lambda: None))
    await live.has_looked.wait()
    yield
    task.cancel()


def held_by(gate: threading.Event) -> Callable[[Model], str]:
    """Prepares version 2 once the gate is open."""

    def prepare(model: Model) -> str:
        if model.manifest.version == 2:
            gate.wait(100)
        return name_of(model)

    return prepare


def run(call: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(call())  # type: ignore[arg-type]


def find(live: Live, model: str, ref: str) -> str:
    return run(lambda: live.find(model, ref))


def damage(store: Store, name: str, version: int) -> None:
    file = max((store.root / "models" / name / "versions" / str(version)).rglob("*.npy"))
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def publish_damaged(store: Store, name: str) -> int:
    version = publish_model(store, name, "raw", seed=9).version
    damage(store, name, version)
    return version


def test_nothing_is_found_before_the_first_look(own_store: Store) -> None:
    live = live_over(own_store)
    assert not live.ready
    with pytest.raises(Unavailable, match="being opened"):
        find(live, "raw", "latest")


def test_in_the_first_look_a_model_that_is_open_answers_before_the_others(own_store: Store) -> None:
    seen = list[str]()

    def prepare(model: Model) -> str:
        seen.append(name_of(model))
        if model.manifest.model == "text":  # the last
            assert find(live, "named", "latest") == "named@1"
            assert not live.ready
            for name in ("text", "none"):
                with pytest.raises(Unavailable, match="being opened"):
                    live.version_of(name, "latest")
        return name_of(model)

    live = live_over(own_store, prepare)
    live.look()
    assert seen[-1] == "text@1"
    assert live.ready
    assert find(live, "text", "latest") == "text@1"


def test_aliases_and_versions(own_store: Store) -> None:
    live = looked(own_store)
    assert live.ready
    found = [find(live, "raw", ref) for ref in ("latest", "stable", "1", "2")]
    assert found == ["raw@2", "raw@1", "raw@1", "raw@2"]
    for model, ref, error in (
        ("none", "latest", ModelNotFound),
        ("none", "1", ModelNotFound),
        ("../raw", "1", Exception),
        ("raw", "none", AliasNotFound),
        ("raw", "3", VersionNotFound),
    ):
        with pytest.raises(error):
            find(live, model, ref)
    assert live.status().failures == []


def test_an_empty_store_is_ready(tmp_path: Path) -> None:
    live = looked(Store(tmp_path))
    assert live.ready
    assert live.status().store_error is None
    with pytest.raises(ModelNotFound):
        find(live, "raw", "latest")


def missing(root: Path) -> Store:
    return Store(root / "none")


def a_file(root: Path) -> Store:
    (root / "file").write_bytes(b"")
    return Store(root / "file")


def unreadable(root: Path) -> Store:
    return Store(root, fs=FaultyFileSystem(0, errno.EACCES))


@pytest.mark.parametrize(
    ("make", "found"),
    [(missing, "found none"), (a_file, "found a file"), (unreadable, "found Permission denied")],
)
def test_a_store_that_is_not_there_is_not_ready_and_says_why_without_its_path(
    tmp_path: Path, make: Callable[[Path], Store], found: str
) -> None:
    live = looked(make(tmp_path))
    assert not live.ready
    said = live.status().store_error
    assert said is not None
    assert said.endswith(found)
    assert str(tmp_path) not in said
    with pytest.raises(Unavailable, match=found):
        find(live, "raw", "latest")


def test_a_store_that_is_made_later_becomes_ready(tmp_path: Path) -> None:
    store = missing(tmp_path)
    live = looked(store)
    assert not live.ready
    publish_model(store, "raw", "raw")
    live.look()
    assert live.ready
    assert live.status().store_error is None
    assert find(live, "raw", "latest") == "raw@1"


def test_what_fails_with_a_path_is_reported_without_it(own_store: Store) -> None:
    def fail(_: Model) -> str:
        raise OSError(errno.EMFILE, "Too many open files", str(own_store.root / "secret"))

    live = looked(own_store, fail)
    assert live.status().failures
    assert {failure.detail for failure in live.status().failures} == {"OSError"}
    with pytest.raises(ModelUnavailable) as raised:
        find(live, "raw", "1")
    assert str(own_store.root) not in str(raised.value)


def test_it_follows_publish_promote_and_rollback(own_store: Store) -> None:
    live = looked(own_store)
    publish_model(own_store, "raw", "raw", seed=3)
    assert find(live, "raw", "latest") == "raw@2"
    live.look()
    assert find(live, "raw", "latest") == "raw@3"
    own_store.rollback("raw")
    live.look()
    assert find(live, "raw", "latest") == "raw@2"
    own_store.promote("raw", 3, "stable")
    live.look()
    assert find(live, "raw", "stable") == "raw@3"
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
    version = publish_damaged(own_store, "raw")
    live.look()
    assert find(live, "raw", "latest") == "raw@2"
    failures = live.status().failures
    assert [(f.model, f.ref) for f in failures] == [("raw", str(version))]
    assert "sha256" in failures[0].detail or "Corrupt" in failures[0].detail
    with pytest.raises(ModelUnavailable):
        find(live, "raw", str(version))
    publish_model(own_store, "raw", "raw", seed=4)
    live.look()
    assert find(live, "raw", "latest") == f"raw@{version + 1}"


def test_a_model_damaged_from_the_start_is_unavailable_and_others_serve(own_store: Store) -> None:
    damage(own_store, "text", 1)
    live = looked(own_store)
    assert live.ready
    with pytest.raises(ModelUnavailable):
        find(live, "text", "latest")
    assert find(live, "raw", "latest") == "raw@2"


def test_not_ready_when_nothing_at_all_can_be_served(tmp_path: Path) -> None:
    store = Store(tmp_path)
    publish_damaged(store, "only")
    live = looked(store)
    assert not live.ready


def test_a_failure_is_tried_again_after_a_while(own_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = True
    tries = 0

    def prepare(model: Model) -> str:
        nonlocal tries
        tries += model.manifest.version == 3
        if broken and model.manifest.version == 3:
            raise OSError("too many open files")
        return name_of(model)

    live = looked(own_store, prepare)
    publish_model(own_store, "raw", "raw", seed=3)
    for _ in range(3):
        live.look()
    assert tries == 1
    broken = False
    clock = SimpleNamespace(monotonic=lambda: float("inf"), perf_counter=time.perf_counter)
    monkeypatch.setattr(live_module, "time", clock)  # of this module only: others schedule by theirs
    live.look()
    assert find(live, "raw", "latest") == "raw@3"
    assert live.status().failures == []


async def test_versions_asked_for_are_kept_up_to_the_limit(own_store: Store) -> None:
    opened = Opened()
    for seed in range(3, 7):
        publish_model(own_store, "raw", "raw", seed=seed)
    live = looked(own_store, opened, versions_max=2)
    opened.clear()
    for ref in ("2", "3", "2", "4", "2", "3"):
        assert await live.find("raw", ref) == f"raw@{ref}"
    assert opened == ["raw@2", "raw@3", "raw@4", "raw@3"]


def test_a_version_is_opened_once_for_many_requests(own_store: Store) -> None:
    opened = Opened()
    publish_model(own_store, "raw", "raw", seed=3)
    live = looked(own_store, opened)
    opened.clear()

    async def ask() -> list[str]:
        return await asyncio.gather(*(live.find("raw", "2") for _ in range(20)))

    assert run(ask) == ["raw@2"] * 20
    assert opened == ["raw@2"]


async def test_a_version_asked_for_and_then_promoted_is_not_opened_again(own_store: Store) -> None:
    opened = Opened()
    publish_model(own_store, "raw", "raw", seed=3)
    live = live_over(own_store, opened)
    async with following(live, 0.01):
        opened.clear()
        assert await live.find("raw", "2") == "raw@2"
        own_store.promote("raw", 2)
        async with asyncio.timeout(60):
            while live.aliases["raw", "latest"].version != 2 or live._asked:
                await asyncio.sleep(0.01)
        assert await live.find("raw", "latest") == "raw@2"
    assert opened == ["raw@2"]


async def test_an_unknown_model_does_not_wait_for_one_that_is_being_opened(own_store: Store) -> None:
    gate = threading.Event()
    own_store.promote("raw", 1)
    live = looked(own_store, held_by(gate))
    opening = asyncio.create_task(live.find("raw", "2"))
    await asyncio.sleep(0.01)
    with pytest.raises(ModelNotFound):
        await asyncio.wait_for(live.find("none", "1"), 60)
    gate.set()
    await opening


@pytest.mark.parametrize(("limit", "resident"), [(5, 5), (4, 4), (1, 1)])
def test_models_beyond_the_limit_are_opened_when_asked_for(
    own_store: Store, limit: int, resident: int
) -> None:
    opened = Opened()
    live = looked(own_store, opened, models_max=limit)
    assert len(opened) == resident
    assert live.ready
    for model in ("hashed", "named", "raw", "text"):
        assert find(live, model, "latest").startswith(model)


def test_a_request_does_not_wait_for_ever(own_store: Store) -> None:
    gate = threading.Event()
    own_store.promote("raw", 1)
    live = looked(own_store, held_by(gate), seconds_max=0.05)

    async def ask() -> str:
        with pytest.raises(TimedOut):
            await live.find("raw", "2")
        gate.set()
        while True:
            try:
                return await live.find("raw", "2")
            except TimedOut:
                await asyncio.sleep(0.01)

    assert run(ask) == "raw@2"


async def test_deleted_versions_are_let_go(own_store: Store) -> None:
    publish_model(own_store, "raw", "raw", seed=3)
    live = live_over(own_store)
    async with following(live, 0.01):
        assert await live.find("raw", "2") == "raw@2"
        own_store.delete("raw", 2)
        async with asyncio.timeout(60):
            while 2 in live.models["raw"].versions or ("raw", 2) in live._asked:
                await asyncio.sleep(0.01)
        with pytest.raises(VersionNotFound):
            await live.find("raw", "2")


async def test_a_version_that_cannot_be_prepared_keeps_the_old_one_and_waking_tries_it_again(
    own_store: Store,
) -> None:
    broken = True

    def prepare(model: Model) -> str:
        if broken and model.manifest.version == 3:
            raise KeyError("surprise")
        return name_of(model)

    live = live_over(own_store, prepare)
    async with following(live, 3600):
        publish_model(own_store, "raw", "raw", seed=3)
        live.wake()
        async with asyncio.timeout(60):
            while not live.status().failures:
                await asyncio.sleep(0.005)
        assert await live.find("raw", "latest") == "raw@2"
        assert live.status().failures[0].detail.startswith("KeyError")
        broken = False
        live.wake()
        async with asyncio.timeout(60):
            while await live.find("raw", "latest") != "raw@3":
                await asyncio.sleep(0.005)


def test_an_unreadable_store_keeps_what_is_served(own_store: Store, tmp_path: Path) -> None:
    live = looked(own_store)
    moved = own_store.root.rename(tmp_path / "moved")
    own_store.root.write_text("not a directory")
    live.look()
    assert live.status().store_error
    assert find(live, "raw", "latest") == "raw@2"
    own_store.root.unlink()
    moved.rename(own_store.root)
    live.look()
    assert live.status().store_error is None


def test_a_split_is_served_and_ends_with_a_move(own_store: Store) -> None:
    opened = Opened()
    publish_model(own_store, "raw", "raw", seed=3)
    own_store.promote("raw", 2)
    live = looked(own_store, opened)
    assert live.splits == {}
    split(own_store, "raw", (1, 5000), (3, PARTS))
    before = live.heads
    live.look()
    assert live.heads is not before
    beside = live.splits["raw", "latest"]
    assert (beside.canary, beside.shadow, find(live, "raw", "latest")) == ("raw@1", "raw@3", "raw@2")
    assert live.resident("raw", "3") == "raw@3"
    alias = dict(live.status().aliases)["raw", "latest"]
    assert alias == own_store.alias("raw")
    assert roles_of(alias) == [("stable", 2, 5000), ("canary", 1, 5000), ("shadow", 3, PARTS)]
    own_store.promote("raw", 3)
    live.look()
    assert (live.splits, find(live, "raw", "latest")) == ({}, "raw@3")
    assert sorted(opened) == sorted(set(opened))  # each once


def test_a_canary_that_cannot_be_opened_answers_nothing(own_store: Store) -> None:
    live = looked(own_store)
    version = publish_model(own_store, "raw", "raw", seed=9).version
    own_store.promote("raw", 2)
    split(own_store, "raw", (version, 5000), (1, PARTS))
    damage(own_store, "raw", version)
    live = looked(Store(own_store.root))
    beside = live.splits["raw", "latest"]
    assert (beside.canary, beside.shadow) == (None, "raw@1")
    alias = live.aliases["raw", "latest"]
    assert (alias.version, alias.canary, alias.shadow) == (2, None, Beside(1, PARTS))
    assert [failure.ref for failure in live.status().failures] == [str(version)]
    assert find(live, "raw", "latest") == "raw@2"


def test_an_alias_whose_file_is_damaged_is_served_as_it_was(own_store: Store) -> None:
    live = live_over(own_store)
    split(own_store, "raw", (1, 5000))
    live.look()
    before = live.aliases["raw", "latest"]
    file_of(own_store, "raw").write_bytes(b"half")
    live.look()
    assert (live.aliases["raw", "latest"], live.splits["raw", "latest"].canary) == (before, "raw@1")
    failures = [(failure.ref, failure.detail) for failure in live.status().failures]
    assert failures == [("latest", "the alias's file is damaged")]


def test_a_canary_beyond_the_versions_kept_open_answers_nothing(own_store: Store) -> None:
    publish_model(own_store, "raw", "raw", seed=3)
    split(own_store, "raw", (2, 5000))
    live = live_over(own_store, models_max=len(own_store.models()) + 1)  # `stable` of `raw`, too
    live.look()
    assert live.splits == {}
    assert find(live, "raw", "latest") == "raw@3"
