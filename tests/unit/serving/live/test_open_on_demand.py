"""With a bound models are opened by requests, and closed when others need room."""

import asyncio
import contextlib
import gc
import shutil
import threading
import weakref
from collections.abc import Callable, Sequence

import pytest
from pydantic import ByteSize
from tests.helpers.alias_helpers import deny, split
from tests.helpers.live_models import (
    Live,
    Opened,
    bounded,
    damage,
    find,
    following,
    live_over,
    looked,
    name_of,
    publish,
    until,
)

import xylem.serving.live.requested_versions as requested_module
from xylem.base.errors import Overloaded, TimedOut
from xylem.serving.live.models import LiveModels, ModelUnavailable
from xylem_store.errors import ModelNotFound, VersionNotFound
from xylem_store.store import Store
from xylem_store.version import Model


class Served:
    """What serves a version, with its arrays; it may be referred to weakly."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = name_of(model)


def live_of(store: Store, **changes: object) -> LiveModels[Served]:
    live: LiveModels[Served] = looked(store, Served, **{**bounded(), **changes})  # type: ignore[arg-type, assignment]
    return live


def gate_of(name: str, gate: threading.Event) -> Callable[[Model], str]:
    """Prepare the version of this name once the gate is open, and others at once."""

    def prepare(model: Model) -> str:
        if name_of(model) == name:
            gate.wait(100)
        return name_of(model)

    return prepare


async def test_a_closed_version_is_gone_once_no_request_uses_it(own_store: Store) -> None:
    live = live_of(own_store)
    in_use = await live.find("raw", "1")
    refs = [weakref.ref(in_use), weakref.ref(await live.find("raw", "2"))]
    await live.find("text", "latest")  # `raw@1` is closed, but in use; so `raw@2` is, too
    gc.disable()
    try:
        assert live.open_versions() == {("text", 1)}
        assert refs[1]() is None and refs[0]() is in_use
        del in_use
        assert refs[0]() is None
    finally:
        gc.enable()


async def test_an_opening_waits_a_little_for_versions_in_use(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = live_of(own_store, **bounded(models_loaded=1))
    in_use = await live.find("raw", "1")
    monkeypatch.setattr(requested_module, "ROOM_SECONDS", 60.0)
    with pytest.raises(TimedOut, match="text version 1: expected it to be open by now"):
        await live.find("text", "latest", 0.05)
    del in_use
    assert (await live.find("text", "latest")).name == "text@1"
    in_use = await live.find("raw", "1")
    monkeypatch.setattr(requested_module, "ROOM_SECONDS", 0.01)
    assert (await live.find("text", "latest")).name == "text@1"
    assert in_use.name == "raw@1"


async def test_more_openings_than_wait_are_refused(own_store: Store) -> None:
    gate = threading.Event()
    live = live_over(own_store, gate_of("raw@1", gate), **bounded(), openings_max=2)
    live.look()
    waiting = [asyncio.create_task(live.find("raw", "1")) for _ in range(5)]
    waiting.append(asyncio.create_task(live.find("text", "latest")))
    await asyncio.sleep(0.05)
    with pytest.raises(Overloaded, match="at most 2 models that wait to be opened"):
        await live.find("named", "latest")
    gate.set()
    assert await asyncio.gather(*waiting) == ["raw@1"] * 5 + ["text@1"]
    assert await live.find("named", "latest") == "named@1"


async def test_a_request_waits_as_long_as_it_may(own_store: Store) -> None:
    gate = threading.Event()
    live = live_over(own_store, gate_of("raw@1", gate), **bounded())
    live.look()
    with pytest.raises(TimedOut, match="raw version 1"):
        await live.find("raw", "1", 0.02)
    gate.set()
    assert await live.find("raw", "1") == "raw@1"


def test_a_damaged_model_fails_alone(own_store: Store) -> None:
    damage(own_store, "text", 1)
    live = looked(own_store, **bounded())
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="sha256"):
            find(live, model="text")
    assert (find(live), find(live, model="named")) == ("raw@2", "named@1")
    assert [failure.model for failure in live.status().failures] == ["text"]


async def test_a_model_that_is_deleted_while_it_opens(own_store: Store) -> None:
    live = live_over(own_store, **bounded())
    async with following(live, 0.01):
        assert await live.find("named", "latest") == "named@1"
        for name in ("named", "text"):
            own_store.delete_model(name)
        for name in ("named", "text"):  # the look may or may not have seen it
            with contextlib.suppress(ModelNotFound, VersionNotFound):
                assert await live.find(name, "latest") == f"{name}@1"
        await until(lambda: "named" not in live.models and not live.open_versions())
        with pytest.raises(ModelNotFound):
            await live.find("named", "latest")


async def test_an_open_model_moves_before_requests_do(own_store: Store) -> None:
    opened = Opened()
    live = live_over(own_store, opened, **bounded())
    async with following(live, 3600):
        assert await live.find("raw", "latest") == "raw@2"
        publish(own_store)
        own_store.promote("raw", 1, "other")
        await live.catch_up(60)
        assert live.resident("raw", "latest") == "raw@3"
        assert live.resident("raw", "stable") is None and opened == ["raw@2", "raw@3"]
        damage(own_store, "raw", publish(own_store, seed=4))
        await live.catch_up(60)
        assert await live.find("raw", "latest") == "raw@3"
        assert [failure.ref for failure in live.status().failures] == ["4"]
    assert len(live.open_versions()) == 2


async def test_views_and_splits_go_with_their_versions(own_store: Store) -> None:
    deny(own_store, "raw", ["label::1"])
    split(own_store, "raw", (1, 5000))

    def without(served: str, names: Sequence[str]) -> str:
        return f"{served}-{len(names)}" if names else served

    live = live_over(own_store, **bounded(), deny=without)
    async with following(live, 0.01):
        for _ in range(3):
            assert await live.find("raw", "latest") == "raw@2-1"
            assert live.splits["raw", "latest"].canary == "raw@1-1"
            assert live.resident("raw", "latest") == "raw@2-1"
            for model in ("named", "text"):
                assert await live.find(model, "latest") == f"{model}@1"
            assert live.resident("raw", "latest") is None and live.splits == {}
            assert live._state.served._views == {}


def test_a_preloaded_model_is_waited_for_and_stays(own_store: Store) -> None:
    opened = Opened()
    live = live_over(own_store, opened, **bounded("te*", "n*", models_loaded=3))
    assert not live.ready
    live.look()
    assert live.ready and opened == ["named@1", "text@1"]
    for ref in ("1", "2", "1", "2"):
        assert find(live, ref) == f"raw@{ref}"
    assert find(live, model="text") == "text@1"
    assert opened.count("text@1") == 1 and ("text", 1) in live.open_versions()


def test_a_preloaded_model_that_is_damaged_is_not_ready(own_store: Store) -> None:
    damage(own_store, "text", 1)
    live = looked(own_store, **bounded("text"))
    assert not live.ready and find(live) == "raw@2"


def test_a_pattern_that_matches_nothing_is_told(
    own_store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    live = looked(own_store, **bounded("te*", "shop-*"))
    live.look()
    told = [line for line in capfd.readouterr().err.splitlines() if "preload" in line]
    assert len(told) == 1 and '"event":"preload_matches_nothing","pattern":"shop-*"' in told[0]


@pytest.mark.parametrize(("n_sizes", "n_open"), [(0.5, 1), (1, 1), (2.1, 2)])
def test_a_bound_of_bytes(own_store: Store, n_sizes: float, n_open: int) -> None:
    """One that is smaller than a model serves that model alone."""
    for model in ("hashed", "named", "text"):
        own_store.delete_model(model)
    arrays = own_store.manifest("raw", 1).arrays.values()
    size = ByteSize(n_sizes * sum(array.bytes for array in arrays))
    live = looked(own_store, models_loaded=size)
    for ref in ("1", "2", "1"):
        assert find(live, ref) == f"raw@{ref}"
    assert len(live.open_versions()) == n_open


def test_heads_of_a_closed_version_are_dropped(own_store: Store) -> None:
    live: Live = looked(own_store, **bounded())

    class Target:
        usage: object = None

    for model in ("raw", "named", "text"):
        find(live, model=model)
        target = Target()
        target.usage = live.usage(model, {"raw": 2}.get(model, 1))
        live.heads[model.encode()] = target
    assert sorted(live.heads) == [b"named", b"text"]


async def test_a_store_that_is_lost_keeps_what_is_open(own_store: Store) -> None:
    live = live_over(own_store, **bounded())
    async with following(live, 0.01):
        await live.find("raw", "latest")
        shutil.rmtree(own_store.root)
        await until(lambda: live.status().store_error is not None)
        assert await live.find("raw", "latest") == "raw@2"
        with pytest.raises(Exception, match="named"):
            await live.find("named", "latest")
