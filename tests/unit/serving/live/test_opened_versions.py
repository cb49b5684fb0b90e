"""Versions that are opened when they are requested, and how many are kept open."""

import asyncio
import threading

import pytest
from tests.helpers.live_models import (
    Opened,
    bounded,
    find,
    following,
    held_by,
    live_over,
    looked,
    publish,
    until,
)

from xylem.base.errors import TimedOut
from xylem_store.errors import ModelNotFound, VersionNotFound
from xylem_store.store import Store


async def test_the_least_recently_used_are_closed(own_store: Store) -> None:
    opened = Opened()
    for seed in range(3, 7):
        publish(own_store, seed)
    live = looked(own_store, opened, **bounded())
    for ref in ("2", "3", "2", "4", "2", "3"):
        assert await live.find("raw", ref) == f"raw@{ref}"
    assert opened == ["raw@2", "raw@3", "raw@4", "raw@3"]


async def test_a_version_is_opened_once_for_many_requests(
    three: Store,
) -> None:
    opened = Opened()
    live = live_over(three, opened)
    async with following(live, 0.01):
        opened.clear()
        assert await asyncio.gather(*(live.find("raw", "2") for _ in range(20))) == ["raw@2"] * 20
        three.promote("raw", 2)
        await until(
            lambda: live.aliases["raw", "latest"].version == 2 and not live._requested.opened
        )
        assert await live.find("raw", "latest") == "raw@2"
    assert opened == ["raw@2"]


async def test_an_unknown_model_does_not_wait_for_one_that_opens(three: Store) -> None:
    gate = threading.Event()
    live = looked(three, held_by(gate))
    opening = asyncio.create_task(live.find("raw", "2"))
    await asyncio.sleep(0.01)
    with pytest.raises(ModelNotFound):
        await asyncio.wait_for(live.find("none", "1"), 60)
    gate.set()
    await opening


@pytest.mark.parametrize("loaded_max", [1, 2, 4])
def test_with_a_bound_models_are_opened_by_requests(own_store: Store, loaded_max: int) -> None:
    opened = Opened()
    live = looked(own_store, opened, **bounded(models_loaded=loaded_max))
    assert live.ready and opened == []
    for model in ("hashed", "named", "raw", "text"):
        assert find(live, model=model).startswith(model)
        assert live.resident(model, "latest") == find(live, model=model)
    assert len(opened) == 4 and len(live.open_versions()) == loaded_max


async def test_a_request_does_not_wait_for_ever(three: Store) -> None:
    gate = threading.Event()
    live = looked(three, held_by(gate), seconds_max=0.05)
    with pytest.raises(TimedOut):
        await live.find("raw", "2")
    gate.set()
    await until(lambda: ("raw", 2) in live.open_versions())
    assert await live.find("raw", "2") == "raw@2"


async def test_deleted_versions_are_let_go(three: Store) -> None:
    live = live_over(three)
    async with following(live, 0.01):
        assert await live.find("raw", "2") == "raw@2"
        three.delete("raw", 2)
        await until(
            lambda: (
                2 not in live.models["raw"].versions and ("raw", 2) not in live._requested.opened
            )
        )
        with pytest.raises(VersionNotFound):
            await live.find("raw", "2")
