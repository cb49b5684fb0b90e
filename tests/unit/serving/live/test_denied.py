"""An alias that denies labels answers on every way what a request that denies them is answered."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers.alias_helpers import deny, file_of, split
from tests.helpers.feedback_helpers import RAW, client_of, event, send
from tests.helpers.live_models import looked
from tests.helpers.oip_requests import csr
from tests.helpers.served_models import at_once, in_thread
from tests.helpers.small_models import small_draft, softmax_draft

from xylem.serving.label_info import LiveLabelInfo
from xylem.serving.live.denied import denying_as, with_denied
from xylem.serving.live.models import LiveModels
from xylem.serving.live.opening import serve_model
from xylem.serving.live.served import ServedVersion
from xylem_store.label_info import LabelInfo, Subject, build_label_info
from xylem_store.store import Store

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
        for label in prediction["labels"]:  # a path of concepts, where there is label info
            label.get("explanation", {}).pop("broader_path", None)
    return found


def names_of(rows: list[dict[str, Any]]) -> set[str]:
    return {label["label"] for row in rows for label in row["labels"]}


def asked(instances: Sequence[dict[str, Any]], options: dict[str, Any]) -> bytes:
    return json.dumps({"instances": instances, **options}).encode()


def answered(served: ServedVersion, body: bytes) -> list[Any]:
    """What both ways answer: that of the event loop, where it does, and that of a thread."""
    found = at_once(body, served)
    return [*([] if found is None else [without_ids(found)]), without_ids(in_thread(body, served))]


FEATURES = {"kind": "raw", "norm": "l2"}
DRAFTS = {
    "label-tree": small_draft(n_trees=3, features=FEATURES),
    "one-tree": small_draft(n_trees=1, features=FEATURES),
    "forest": small_draft(kind="decision-tree", n_trees=3, features=FEATURES),
    "embedded": softmax_draft(n_words=70),
}


@pytest.fixture(scope="module", params=[*DRAFTS, "text", "named"])
def served(
    request: pytest.FixtureRequest, shared_store: Path, tmp_path_factory: Any
) -> ServedVersion:
    if request.param not in DRAFTS:
        return serve_model(Store(shared_store).open(request.param))
    store = Store(tmp_path_factory.mktemp("denied") / "store")
    store.publish("m", DRAFTS[request.param])
    return serve_model(store.open("m"))


def instances_of(served: ServedVersion) -> list[dict[str, Any]]:
    kind = served.opened.manifest.features["kind"]
    named = [{"text": TEXT}, {"text": "chess"}] if kind == "tfidf" else [{"features": {"red": 1.0}}]
    return ROWS if kind == "raw" else named


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_its_answers_are_those_of_requests_that_deny(
    served: ServedVersion, options: dict[str, Any]
) -> None:
    if "explain" in options and served.opened.manifest.kind == "decision-tree":
        options = options | {"explain": False}
    view, body = (
        with_denied(served, [*DENIED, "of another version"]),
        asked(instances_of(served), options),
    )
    both = asked(
        instances_of(served), options | {"deny_labels": DENIED + options.get("deny_labels", [])}
    )
    (expected,) = answered(served, both)[-1:]
    found = answered(view, body)
    assert all(each == expected for each in found)
    assert names_of(expected["predictions"]).isdisjoint(DENIED)
    if served.opened.manifest.kind == "label-tree" and not options.keys() & {
        "threshold",
        "allow_labels",
    }:
        most = min(options.get("top_r", 5), 11 - len(DENIED) - len(options.get("deny_labels", [])))
        if options.get("beam_width") is None:
            assert all(len(each["labels"]) == most for each in expected["predictions"])
    if "threshold" not in options:
        assert without_ids(in_thread(body, served)) != expected


def test_the_kernel_answers_for_an_alias_that_denies(shared_store: Path) -> None:
    """As it does for others: no slower way is taken."""
    served = serve_model(Store(shared_store).open("raw"))
    for view in (served, with_denied(served, DENIED)):
        body = asked(ROWS, {"top_r": 3})
        assert view.fast.answer(body, 0, view.ids.sign(0, 2)).n_rows == 2


def test_all_labels_can_be_denied(served: ServedVersion) -> None:
    view = with_denied(served, [f"label::{i}" for i in range(11)])
    for options in ({}, {"exact": True}, {"threshold": 0.1}):
        for found in answered(view, asked(instances_of(served), options)):
            assert [each["labels"] for each in found["predictions"]] == [[]] * len(
                instances_of(served)
            )


def test_what_is_denied_is_told_of_another_version(served: ServedVersion) -> None:
    view = with_denied(served, [*DENIED, "of another version"])
    assert view.denied.n_unknown == 1
    assert denying_as(served, view).denied.allowed.tolist() == view.denied.allowed.tolist()
    assert denying_as(served, served) is served
    assert with_denied(served, ()) is served


def info_with(deprecated: Sequence[str]) -> LabelInfo:
    return build_label_info(
        [Subject(f"label::{i}", None, {}, deprecated=f"label::{i}" in deprecated) for i in range(9)]
    )


def test_deprecated_labels_are_denied_in_a_version_and_aliases(
    served: ServedVersion,
) -> None:
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
    again = denying_as(by_number, by_alias)
    assert again.denied.allowed.tolist() == by_alias.denied.allowed.tolist()
    for info in (info_with([]), None):
        live.follow(info)
        assert with_denied(by_number, ()).denied is None
        body = asked(instances_of(served), {"top_r": 11})
        assert answered(with_denied(by_number, ()), body) == answered(served, body)


async def names_by_route(client: httpx.AsyncClient, base: str, project: str) -> dict[str, set[str]]:
    async def post(path: str, **content: Any) -> httpx.Response:
        response = await client.post(path, **content)
        assert response.status_code == 200, response.text
        return response

    predict = await post(f"{base}/predict", json={"instances": ROWS, "top_r": 11})
    lines, ndjson = "\n".join(map(json.dumps, ROWS)), {"content-type": "application/x-ndjson"}
    batch = await post(f"{base}/batch?top_r=11", content=lines, headers=ndjson)
    tensors = {"inputs": csr(ROWS), "parameters": {"top_r": 11}, "outputs": [{"name": "labels"}]}
    infer = await post(f"{base.replace('v1', 'v2', 1)}/infer", json=tensors)
    suggest = await post(f"/v1/projects/{project}/suggest", data={"text": TEXT, "limit": "11"})
    documents = {"documents": [{"text": TEXT}]}
    several = await post(f"/v1/projects/{project}/suggest-batch?limit=11", json=documents)
    return {
        "predict": names_of(predict.json()["predictions"]),
        "batch": names_of([json.loads(line) for line in batch.text.splitlines()]),
        "infer": {name for name in infer.json()["outputs"][0]["data"] if name},
        "suggest": names_of([{"labels": suggest.json()["results"]}]),
        "suggest-batch": names_of([{"labels": several.json()[0]["results"]}]),
    }


async def test_every_route_of_an_alias_denies_and_a_number_does_not(own_store: Store) -> None:
    deny(own_store, "raw", DENIED)
    deny(own_store, "text", DENIED)
    async with client_of(own_store) as client:
        every = {f"label::{i}" for i in range(11)}
        of_aliases = await names_by_route(client, "/v1/models/raw", "text")
        assert of_aliases == dict.fromkeys(of_aliases, every - set(DENIED))
        of_numbers = await names_by_route(client, "/v1/models/raw/versions/2", "text@1")
        assert of_numbers == dict.fromkeys(of_numbers, every)
        score = {"instances": [{**RAW, "labels": ["label::1", "label::3"]}]}
        refused = await client.post("/v1/models/raw/score", json=score)
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown-label")
        assert (
            "instances[0].labels[1]" in refused.text
            and "neither denied nor deprecated" in refused.text
        )
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
    assert beside.canary.denied.names == tuple(DENIED)
    assert denied_by(live, "latest") == tuple(DENIED)
    assert denied_by(live, "1") is denied_by(live, "2") is None


def live_over(store: Store, **changes: Any) -> LiveModels[ServedVersion]:
    return looked(store, serve_model, **{"deny": with_denied, **changes})


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
    live = live_over(own_store, models_loaded=1)
    assert live.resident("raw", "latest") is None
    assert denied_by(live, "latest") == tuple(DENIED)
    assert asyncio.run(live.find("raw", "2")).denied is None


def test_a_damaged_alias_serves_what_was_served_or_nothing(own_store: Store) -> None:
    deny(own_store, "raw", DENIED)
    split(own_store, "raw", (1, 5000))
    live = live_over(own_store)
    before, canary = live.aliases["raw", "latest"], live.splits["raw", "latest"].canary
    file = file_of(own_store, "raw")
    file.write_bytes(file.read_bytes()[:-5])
    live.look()
    assert denied_by(live, "latest") == tuple(DENIED)
    assert live.aliases["raw", "latest"] == before
    assert live.splits["raw", "latest"].canary is canary is not None
    late = live_over(own_store)
    assert ("raw", "latest") not in late.aliases and ("raw", "stable") in late.aliases
    for one in (live, late):
        failures = [(failure.ref, failure.detail) for failure in one.status().failures]
        assert failures == [("latest", "the alias's file is damaged")]


async def test_feedback_passes_over_what_the_alias_denies(own_store: Store) -> None:
    async with client_of(own_store, store_poll_seconds=0.05) as client:

        async def marks() -> dict[str, int]:
            found = (await client.get("/v1/models/raw/versions/2/labels")).json()
            return {label["label"]: label["marks"] for label in found["labels"]}

        true = ["label::1", "label::3"]
        await send(client, event("a", true))
        before = await marks()
        assert min(before[name] for name in true) == 1
        deny(own_store, "raw", DENIED)
        while (await client.get("/v1/models/raw/labels")).json()["n_denied"] != len(DENIED):
            await asyncio.sleep(0.02)
        await send(client, event("b", true))
        after = await marks()
        assert all(after[name] == before[name] for name in DENIED)
        assert after["label::1"] == before["label::1"] + 1
        await send(client, event("c", true), path="/v1/models/raw/versions/2/feedback")
        assert (await marks())["label::3"] == before["label::3"] + 1
