"""An alias that denies labels answers on every way what a request that denies them is answered."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_store.label_info import LabelInfo, Subject, build_label_info
from model_store.store import Store
from service.inference.fast_request import AS_PREDICTIONS
from service.serving.denied import denying_as, with_denied
from service.serving.label_info import LiveLabelInfo
from service.serving.live import LiveModels
from service.serving.opening import serve_model
from service.serving.served import ServedVersion
from tests.alias_helpers import deny, file_of, split
from tests.feedback_helpers import RAW, client_of, event, send
from tests.oip_requests import csr
from tests.served_models import at_once, in_thread, publish_model
from tests.small_models import small_draft, softmax_draft

DENIED = [f"label::{i}" for i in (0, 3, 4, 7, 8)]
ROWS = [RAW, {"indices": [2], "values": [1.0]}]
TEXT = "a text editor for the terminal"
WAYS: list[dict[str, Any]] = [
    {},
    {"top_r": 3},
    {"top_r": 3, "beam_width": 1},
    {"top_r": 11, "exact": True},
    {"top_r": 11, "threshold": 0.3},
    {"threshold": 0.3, "exact": True},
    {"top_r": 4, "label_weights": {"label::1": 3.0}},
    {"top_r": 4, "explain": True},
    {"top_r": 4, "statistics": True},
    {"allow_labels": ["label::0", "label::1", "label::2"]},
    {"top_r": 11, "deny_labels": ["label::1"]},
]


def without_ids(answer: bytes) -> Any:
    found = json.loads(answer)
    for prediction in found["predictions"]:
        prediction.pop("prediction_id")
    return found


def asked(instances: Sequence[dict[str, Any]], options: dict[str, Any]) -> bytes:
    return json.dumps({"instances": instances, **options}).encode()


def answered(served: ServedVersion, body: bytes) -> list[Any]:
    """What both ways answer: that of the event loop, where it does, and that of a thread."""
    found = at_once(body, served)
    return [*([] if found is None else [without_ids(found)]), without_ids(in_thread(body, served))]


@pytest.fixture(scope="module", params=["label-tree", "one-tree", "embedded", "forest", "text", "named"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ServedVersion:
    store = Store(tmp_path_factory.mktemp("denied") / "store")
    kind = request.param
    if kind == "forest":
        store.publish(
            "m", small_draft(kind="decision-tree", n_trees=3, features={"kind": "raw", "norm": "l2"})
        )
    elif kind == "embedded":
        store.publish("m", softmax_draft(n_words=70))
    elif kind in ("text", "named"):
        publish_model(store, "m", "tfidf" if kind == "text" else "named")
    else:
        publish_model(store, "m", "raw", n_trees=1 if kind == "one-tree" else 3)
    return serve_model(store.open("m"))


def instances_of(served: ServedVersion) -> list[dict[str, Any]]:
    kind = served.opened.manifest.features["kind"]
    named = [{"text": TEXT}, {"text": "chess"}] if kind == "tfidf" else [{"features": {"red": 1.0}}]
    return ROWS if kind == "raw" else named


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_its_answers_are_those_of_requests_that_deny(served: ServedVersion, options: dict[str, Any]) -> None:
    if "explain" in options and served.opened.manifest.kind == "decision-tree":
        options = options | {"explain": False}
    view, body = with_denied(served, [*DENIED, "of another version"]), asked(instances_of(served), options)
    both = asked(instances_of(served), options | {"deny_labels": DENIED + options.get("deny_labels", [])})
    (expected,) = answered(served, both)[-1:]
    found = answered(view, body)
    assert all(each == expected for each in found)
    names = {label["label"] for prediction in expected["predictions"] for label in prediction["labels"]}
    assert names.isdisjoint(DENIED)
    if served.opened.manifest.kind == "label-tree" and not options.keys() & {"threshold", "allow_labels"}:
        most = min(options.get("top_r", 5), 11 - len(DENIED) - len(options.get("deny_labels", [])))
        if options.get("beam_width") is None:
            assert all(len(each["labels"]) == most for each in expected["predictions"])
    if "threshold" not in options:
        assert without_ids(in_thread(body, served)) != expected


def test_the_kernel_answers_for_an_alias_that_denies(tmp_path: Path) -> None:
    """As it does for others: no slower way is taken."""
    store = Store(tmp_path / "store")
    publish_model(store, "m", "raw")
    served = serve_model(store.open("m"))
    for view in (served, with_denied(served, DENIED)):
        body = asked(ROWS, {"top_r": 3})
        found = view.fast.answer(body, (0, len(body)), AS_PREDICTIONS, view.ids.sign(0, 2))
        assert found is not None and found.n_rows == 2


def test_all_labels_can_be_denied(served: ServedVersion) -> None:
    view = with_denied(served, [f"label::{i}" for i in range(11)])
    for options in ({}, {"exact": True}, {"threshold": 0.1}):
        for found in answered(view, asked(instances_of(served), options)):
            assert [each["labels"] for each in found["predictions"]] == [[]] * len(instances_of(served))


def test_what_is_denied_is_told_of_another_version(served: ServedVersion) -> None:
    view = with_denied(served, [*DENIED, "of another version"])
    assert view.denied is not None and view.denied.n_unknown == 1
    again = denying_as(served, view).denied
    assert again is not None and again.allowed.tolist() == view.denied.allowed.tolist()
    assert denying_as(served, served) is served
    assert with_denied(served, ()) is served


def info_with(deprecated: Sequence[str]) -> LabelInfo:
    return build_label_info(
        [Subject(f"label::{i}", None, {}, deprecated=f"label::{i}" in deprecated) for i in range(9)]
    )


def test_deprecated_labels_are_denied_labels_of_the_version_and_of_its_aliases(served: ServedVersion) -> None:
    live = LiveLabelInfo("m", served.labels)
    there = served._replace(info=live)
    live.follow(info_with([]))
    assert with_denied(there, ()) is there
    live.follow(info_with(DENIED[:3]))
    by_number = with_denied(there, ())
    assert with_denied(by_number, ()) is by_number
    by_alias = with_denied(by_number, DENIED[3:])
    for options in WAYS:
        body = asked(instances_of(served), options)
        assert answered(by_number, body) == answered(with_denied(served, DENIED[:3]), body)
        assert answered(by_alias, body) == answered(with_denied(served, DENIED), body)
    again = denying_as(by_number, by_alias).denied
    assert by_alias.denied is not None and again is not None
    assert again.allowed.tolist() == by_alias.denied.allowed.tolist()
    for info in (info_with([]), None):
        live.follow(info)
        assert with_denied(by_number, ()).denied is None
        body = asked(instances_of(served), {"top_r": 11})
        assert answered(with_denied(by_number, ()), body) == answered(served, body)


async def body_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


async def test_every_route_of_an_alias_keeps_to_it_and_a_number_does_not(own_store: Store) -> None:
    deny(own_store, "raw", DENIED)
    deny(own_store, "text", DENIED)

    async def labels_of(client: httpx.AsyncClient, base: str, text: str) -> list[set[str]]:
        """The names that each route answers."""
        predicted = await body_of(await client.post(f"{base}/predict", json={"instances": ROWS, "top_r": 11}))
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        headers = {"content-type": "application/x-ndjson"}
        batch = await client.post(f"{base}/batch?top_r=11", content=lines, headers=headers)
        tensors = {"inputs": csr(ROWS), "parameters": {"top_r": 11}, "outputs": [{"name": "labels"}]}
        infer = await body_of(await client.post(f"{base.replace('v1', 'v2', 1)}/infer", json=tensors))
        found = [name for one in predicted["predictions"] for name in one["labels"]]
        found_lines = [name for line in batch.text.splitlines() for name in json.loads(line)["labels"]]
        suggested = await body_of(
            await client.post(f"/v1/projects/{text}/suggest", data={"text": TEXT, "limit": "11"})
        )
        several = await client.post(
            f"/v1/projects/{text}/suggest-batch?limit=11", json={"documents": [{"text": TEXT}]}
        )
        return [
            {label["label"] for label in found},
            {label["label"] for label in found_lines},
            {name for name in infer["outputs"][0]["data"] if name},
            {one["label"] for one in suggested["results"]},
            {one["label"] for one in (await body_of(several))[0]["results"]},
        ]

    async with client_of(own_store) as client:
        every = {f"label::{i}" for i in range(11)}
        for names in await labels_of(client, "/v1/models/raw", "text"):
            assert names == every - set(DENIED)
        for names in await labels_of(client, "/v1/models/raw/versions/2", "text@1"):
            assert names == every
        score = {"instances": [{**RAW, "labels": ["label::1", "label::3"]}]}
        refused = await client.post("/v1/models/raw/score", json=score)
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown-label")
        assert "instances[0].labels[1]" in refused.text and "neither denied nor deprecated" in refused.text
        assert (await client.post("/v1/models/raw/versions/2/score", json=score)).status_code == 200


def test_a_canary_and_a_shadow_of_the_alias_keep_to_it(own_store: Store) -> None:
    deny(own_store, "raw", DENIED)
    live = live_over(own_store)
    assert denied_by(live, "latest") == tuple(DENIED)
    assert denied_by(live, "stable") is None
    own_store.promote("raw", 1)
    split(own_store, "raw", (2, 5000), (2, 10))
    live.look()
    beside = live.splits["raw", "latest"]
    assert beside.canary is beside.shadow
    assert beside.canary is not None and beside.canary.denied is not None
    assert beside.canary.denied.names == tuple(DENIED)
    assert denied_by(live, "latest") == tuple(DENIED)
    assert denied_by(live, "1") is denied_by(live, "2") is None


def live_over(store: Store, **changes: Any) -> LiveModels[ServedVersion]:
    live = LiveModels(
        store,
        serve_model,
        **{"models_max": 100, "versions_max": 2, "seconds_max": 30.0, "deny": with_denied, **changes},
    )
    live.look()
    return live


def denied_by(live: LiveModels[ServedVersion], ref: str) -> tuple[str, ...] | None:
    found = asyncio.run(live.find("raw", ref))
    known = live.resident("raw", ref)
    assert known is None or known is found
    return found.denied and found.denied.names


def test_a_view_is_made_once_and_anew_when_the_set_changes(own_store: Store) -> None:
    made: list[Sequence[str]] = []

    def make(served: ServedVersion, names: Sequence[str]) -> ServedVersion:
        made.extend([names] if names else [])  # of none each look may ask
        return with_denied(served, names)

    live = live_over(own_store, deny=make)
    deny(own_store, "raw", DENIED[:1])
    live.look()
    first = live.resident("raw", "latest")
    own_store.promote("named", 1, "other")  # the state of the store is another
    live.look()
    assert live.resident("raw", "latest") is first and made == [tuple(DENIED[:1])]
    deny(own_store, "raw", DENIED[:2])
    live.look()
    assert denied_by(live, "latest") == tuple(DENIED[:2]) and len(made) == 2
    deny(own_store, "raw", ())
    live.look()
    assert denied_by(live, "latest") is None and len(made) == 2


def test_versions_that_no_alias_keeps_open_keep_to_it_too(own_store: Store) -> None:
    deny(own_store, "raw", DENIED)
    live = live_over(own_store, models_max=0)
    assert live.resident("raw", "latest") is None
    assert denied_by(live, "latest") == tuple(DENIED)
    assert asyncio.run(live.find("raw", "2")).denied is None


def test_a_damaged_alias_serves_on_what_was_served_and_nothing_at_a_start(own_store: Store) -> None:
    deny(own_store, "raw", DENIED)
    live = live_over(own_store)
    file = file_of(own_store, "raw")
    file.write_bytes(file.read_bytes()[:-5])
    live.look()
    assert denied_by(live, "latest") == tuple(DENIED)
    assert [failure.ref for failure in live.status().failures] == ["latest"]
    late = live_over(own_store)
    assert ("raw", "latest") not in late.aliases and ("raw", "stable") in late.aliases
    assert [failure.detail for failure in late.status().failures] == ["the alias's file is damaged"]


async def test_feedback_passes_over_what_the_alias_denies(own_store: Store) -> None:
    async def marks(client: httpx.AsyncClient) -> dict[str, int]:
        found = await body_of(await client.get("/v1/models/raw/versions/2/labels"))
        return {label["label"]: label["marks"] for label in found["labels"]}

    async with client_of(own_store, store_poll_seconds=0.05) as client:
        true = ["label::1", "label::3"]
        await send(client, event("a", true))
        before = await marks(client)
        assert min(before[name] for name in true) == 1
        deny(own_store, "raw", DENIED)
        while (await body_of(await client.get("/v1/models/raw/labels")))["n_denied"] != len(DENIED):
            await asyncio.sleep(0.02)
        await send(client, event("b", true))
        after = await marks(client)
        assert all(after[name] == before[name] for name in DENIED)
        assert after["label::1"] == before["label::1"] + 1
        await send(client, event("c", true), path="/v1/models/raw/versions/2/feedback")
        assert (await marks(client))["label::3"] == before["label::3"] + 1
