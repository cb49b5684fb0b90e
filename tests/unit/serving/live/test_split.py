"""Canaries of live models: served, not to be opened, and beyond what is kept open."""

from tests.helpers.alias_helpers import split
from tests.helpers.live_models import Opened, bounded, damage, find, looked

from xylem.serving.live.split import roles_of
from xylem_store.alias import PARTS, TrafficShare
from xylem_store.store import Store


def test_a_split_is_served_and_ends_with_a_move(three: Store) -> None:
    opened = Opened()
    three.promote("raw", 2)
    live = looked(three, opened)
    assert live.splits == {}
    split(three, "raw", (1, 5000), (3, PARTS))
    before = live.heads
    live.look()
    assert live.heads is not before
    beside = live.splits["raw", "latest"]
    assert (beside.canary, beside.shadow, find(live)) == ("raw@1", "raw@3", "raw@2")
    assert live.resident("raw", "3") == "raw@3"
    alias = dict(live.status().aliases)["raw", "latest"]
    assert alias == three.alias("raw")
    assert roles_of(alias) == [("stable", 2, 5000), ("canary", 1, 5000), ("shadow", 3, PARTS)]
    three.promote("raw", 3)
    live.look()
    assert (live.splits, find(live)) == ({}, "raw@3")
    assert sorted(opened) == sorted(set(opened))  # each once


def test_a_canary_that_cannot_be_opened_answers_nothing(three: Store) -> None:
    three.promote("raw", 2)
    split(three, "raw", (3, 5000), (1, PARTS))
    damage(three, "raw", 3)
    live = looked(Store(three.root))
    beside, alias = live.splits["raw", "latest"], live.aliases["raw", "latest"]
    assert (beside.canary, beside.shadow, find(live)) == (None, "raw@1", "raw@2")
    assert (alias.version, alias.canary, alias.shadow) == (2, None, TrafficShare(1, PARTS))
    assert [failure.ref for failure in live.status().failures] == ["3"]


def test_a_split_is_opened_with_its_alias_even_beyond_the_bound(three: Store) -> None:
    split(three, "raw", (2, 5000), (1, PARTS))
    live = looked(three, **bounded(models_loaded=1))
    assert (live.splits, live.resident("raw", "latest"), live.open_versions()) == ({}, None, set())
    assert find(live) == live.resident("raw", "latest") == "raw@3"
    beside = live.splits["raw", "latest"]
    assert (beside.canary, beside.shadow) == ("raw@2", "raw@1")
    assert find(live, model="text") == "text@1"
    assert (live.splits, live.open_versions()) == ({}, {("text", 1)})


def test_preloaded_models_that_exceed_the_bound_open_later(three: Store) -> None:
    split(three, "raw", (2, 5000))
    opened = Opened()
    live = looked(three, opened, **bounded("raw", "named", models_loaded=2))
    assert live.ready and opened == [
        "named@1",
        "raw@1",
    ]  # its alias `stable` fits, `latest` does not
    assert find(live) == "raw@3" and live.splits["raw", "latest"].canary == "raw@2"
