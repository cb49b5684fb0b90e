"""Labels of a version, what speaks for one, its threshold over
time; and a version with its figures.
"""

import contextlib
import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from tests.conftest import serving, settings_of
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.feedback_helpers import client_of, event, send
from tests.helpers.small_models import small_draft

from xylem.api.routes.models import summarize
from xylem.base.db.engine import Database, default_url
from xylem.base.db.tables import CHECKPOINTS
from xylem.serving.label_weights import label_features
from xylem.thresholds.store import history
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.alias import Alias
from xylem_store.label_info import Subject, build_label_info
from xylem_store.names import find_name
from xylem_store.origin import REPORT, json_array
from xylem_store.reading import ModelInfo
from xylem_store.store import Store

LABELS = "/v1/models/raw/labels"
HISTORY = "/v1/models/raw/threshold-history"
FEATURES = "/v1/models/named/label-features"
UNSCALED = {"kind": "raw", "norm": "none"}
NAMES = ("a/b", "Ärger", "ärger 2", "12", "<b>", "x" * 300)


@pytest.fixture
def named(tmp_path: Path) -> Store:
    """A store with a model of awkward label names, three rows of
    the first and one more of each next.
    """
    file = tmp_path / "rows.jsonl"
    numbered = ((i, name) for i, name in enumerate(NAMES) for _ in range(3 + i))
    write_lines(file, ({"text": f"word{i} thing", "labels": [name]} for i, name in numbered))
    train_and_publish(
        Store(tmp_path / "store"),
        "named",
        TrainRequest(trainer="label-tree", data=file, valid=file),
    )
    return Store(tmp_path / "store")


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    said = {
        key: json.dumps(one) if isinstance(one, str | bool) else one for key, one in query.items()
    }
    response = await client.get(path, params=said)
    return (
        response.json()
        if response.status_code == 200
        else (response.status_code, response.json()["code"])
    )


async def test_labels_are_searched_ordered_and_shown_in_pages(named: Store) -> None:
    async with serving(settings_of(named.root)) as (_, client):
        path = "/v1/models/named/labels"
        whole = await get(client, path)
        names = [label["label"] for label in whole["labels"]]
        assert sorted(names) == sorted(NAMES)
        assert (whole["n_labels"], whole["n_found"], whole["threshold_epoch"]) == (6, 6, None)
        assert whole["labels"][0]["threshold"] is whole["labels"][0]["marks"] is None
        rows = {label["label"]: label["training_rows"] for label in whole["labels"]}
        assert rows == {name: 3 + i for i, name in enumerate(NAMES)}
        for search in ("ÄRGER", "12", "/", "<B>", "xx", "none of them", ""):
            found = await get(client, path, search=search)
            expected = [name for name in names if search.lower() in name.lower()]
            assert [label["label"] for label in found["labels"]] == expected
            assert found["n_found"] == len(expected)
        for order in ("label", "training_rows", "id"):
            for descending in (False, True):
                found = await get(client, path, order=order, descending=descending)
                assert found["labels"] == sorted(
                    whole["labels"], key=itemgetter(order), reverse=descending
                )
        pages = [await get(client, path, offset=i, limit=4) for i in (0, 4)]
        assert [page["next_offset"] for page in pages] == [4, None]
        assert pages[0]["labels"] + pages[1]["labels"] == whole["labels"]
        assert (await get(client, path, offset=99))["next_offset"] is None


async def test_labels_are_found_and_told_by_their_names(named: Store) -> None:
    others = [("en", True, "oak"), ("en", False, "Ash tree")]
    subjects = [
        Subject("a/b", "1", {"fi": "Puu", "en": "tree"}, other_names=others),
        Subject("12", None, {"en": "Fluß"}, ["a/b"], other_names=[("sv", False, "flod")]),
        Subject("<b>", None, {"und": "KOIRA"}),
        Subject("x" * 300, None, {"fi": "hauva", "und": "koira"}),
        Subject("of no label", None, {"fi": "koirat"}),
    ]
    named.put_label_info("named", build_label_info(subjects))
    async with serving(settings_of(named.root)) as (_, client):
        path = "/v1/models/named/labels"

        async def by_name(**query: Any) -> dict[str, Any]:
            return {label["label"]: label for label in (await get(client, path, **query))["labels"]}

        async def found(search: str, **query: Any) -> set[str]:
            return set(await by_name(search=search, **query))

        plain = await get(client, path)
        assert plain["languages"] == ["fi", "en", "und"] and "uri" not in plain["labels"][0]
        told = await by_name(language="fi")
        # "12" has no Finnish name: it is called as in the next language that has one
        names = {"a/b": "Puu", "12": "Fluß", "<b>": "KOIRA", "x" * 300: "hauva"}
        assert {name: label["name"] for name, label in told.items()} == dict.fromkeys(NAMES) | names
        assert (told["a/b"]["notation"], told["12"]["uri"], told["Ärger"]["uri"]) == (
            "1",
            "12",
            None,
        )
        whole = await by_name(label_info=True)
        assert whole["a/b"]["names"] == {"fi": "Puu", "en": "tree"}
        assert (whole["12"]["broader"], whole["Ärger"]["names"]) == (["a/b"], {})
        assert await found("koira") == set()
        assert await found("koira", language="FI") == {
            "<b>"
        }  # the other is called another in Finnish
        assert await found("koira", label_info=True) == {"<b>", "x" * 300}
        assert await found("FLUSS", language="en") == await found("FLUSS", language="fi") == {"12"}
        assert await found("puu", language="en") == set()
        assert await found("ash", language="en") == await found("OAK", label_info=True) == {"a/b"}
        assert await found("ash", language="fi") == await found("flod", label_info=True) == set()
        assert "ash" not in json.dumps(await get(client, path, label_info=True)).lower()
        assert await found("a/b", language="en") == {"a/b"}
        assert await get(client, path, language="de") == (422, "unsupported-option")


async def test_labels_know_their_thresholds_and_which_rest_on_little(own_store: Store) -> None:
    async with client_of(own_store) as client:
        assert (await get(client, LABELS))["threshold_epoch"] is None
        assert len((await get(client, LABELS, marks_below=1, order="marks"))["labels"]) == 11
        await send(client, event("a", ["label::3"]), event("b", ["label::3", "label::4"]))
        found = await get(client, LABELS)
        known = (await get(client, "/v1/models/raw/thresholds"))["labels"]
        assert found["threshold_epoch"] == 2
        keys = ("id", "label", "threshold", "hits", "marks")
        for label, expected in zip(found["labels"], known, strict=True):
            assert [label[key] for key in keys] == [expected[key] for key in keys]
        few = await get(client, LABELS, marks_below=2, order="marks", descending=True)
        marks = [label["marks"] for label in few["labels"]]
        assert marks == sorted(
            (label["marks"] for label in known if label["marks"] < 2), reverse=True
        )


async def test_what_speaks_for_a_label_is_what_the_command_line_tells(named: Store) -> None:
    model = named.open("named")
    named.publish("forest", small_draft(kind="decision-tree", features=UNSCALED))
    async with serving(settings_of(named.root)) as (_, client):
        for name in NAMES:
            found = await get(client, FEATURES, label=name, top=3)
            expected = label_features(model, find_name(model.labels, name), 3)
            assert found["features"] == expected["features"] and 0 < len(found["features"]) <= 3
            assert (found["id"], found["n_trees"]) == (expected["id"], len(expected["trees"]))
            assert await get(client, FEATURES, id=found["id"], top=3) == found
        assert await get(client, FEATURES, label="none") == (422, "unknown-label")
        assert await get(client, FEATURES, id=6) == (422, "unknown-label")
        for query in (
            {},
            {"id": 0, "label": "a/b"},
            {"id": -1},
            {"id": 0, "top": 0},
            {"id": 0, "top": 101},
        ):
            assert await get(client, FEATURES, **query) == (422, "bad-request")
        assert await get(client, "/v1/models/none/label-features", id=0) == (404, "model-not-found")
        refused = await get(
            client, "/v1/models/forest/label-features", id=0
        )  # its labels have no weights
        assert refused == (422, "unsupported-option")


async def test_a_threshold_over_time_is_what_it_was_after_each_event(own_store: Store) -> None:
    async with client_of(own_store) as client:
        assert await get(client, HISTORY, id=3) == (409, "thresholds-not-tuned")
        seen: dict[int, list[tuple[int, float]]] = {label: [] for label in range(11)}
        for i in range(6):
            await send(client, event(f"e{i}", [f"label::{i % 3}"]))
            found = await get(client, "/v1/models/raw/thresholds")
            for label in found["labels"]:
                seen[label["id"]].append((found["threshold_epoch"], label["threshold"]))
        for label, states in seen.items():
            history = await get(client, HISTORY, id=label)
            points = {point["epoch"]: point["threshold"] for point in history["points"]}
            assert (history["threshold_epoch"], min(points)) == (states[-1][0], 1)
            assert history["points"][0]["kind"] == "started"
            for (
                epoch,
                threshold,
            ) in states:  # the last point up to an epoch is the threshold of then
                assert points[max(one for one in points if one <= epoch)] == threshold
            times = [point["at"] for point in history["points"]]
            assert times == sorted(times)


async def points(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """The history of a threshold."""
    return (await get(client, HISTORY, id=1))["points"]


async def test_a_long_history_keeps_its_ends(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(own_store) as client:
        for i in range(12):
            await send(client, event(f"e{i}", ["label::1"]))
        whole = await points(client)
        assert len(whole) == 13
        monkeypatch.setattr(history, "POINTS_MAX", 5)
        few = await points(client)
        assert len(few) == 5 and [few[0], few[-1]] == [whole[0], whole[-1]]
        assert [point for point in whole if point in few] == few
        monkeypatch.setattr(history, "POINTS_MAX", 200)
        monkeypatch.setattr(history, "_PAGE", 2)  # of the log
        assert await points(client) == whole
        monkeypatch.setattr(history, "CHANGES_MAX", 4)
        assert await points(client) == [whole[0], *whole[-4:]]
        monkeypatch.setattr(history, "PAYLOAD_BYTES_MAX", 0)
        assert await points(client) == whole[:1]


async def test_of_many_states_the_newest_are_read(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(own_store) as client:
        await send(client, event("a", ["label::1"]))
        with contextlib.closing(Database(default_url(own_store.root))) as database:
            state = ThresholdDatabase(database)
            tuned = state.load("raw", 2)
            for _ in range(3):
                state.save("raw", 2, tuned)
            with database.read() as connection:
                epochs = sorted(connection.execute(select(CHECKPOINTS.c.epoch)).scalars())
        monkeypatch.setattr(history, "CHANGES_MAX", 0)
        assert [point["epoch"] for point in await points(client)] == epochs
        monkeypatch.setattr(history, "STATE_LABELS_MAX", 1)
        newest = await points(client)
        assert [(point["epoch"], point["kind"]) for point in newest] == [(epochs[-1], "tuned")]


async def test_a_version_is_shown_with_its_figures(named: Store) -> None:
    async with serving(settings_of(named.root)) as (_, client):
        found = await get(client, "/v1/models/named/versions/1")
        assert (found["model"], found["version"], found["n_labels"]) == ("named", 1, 6)
        figures = found["validation"]
        assert figures["rows"] == sum(3 + i for i in range(6))
        supports = {label["label"]: label["support"] for label in figures["labels"]}
        assert supports == {name: 3 + i for i, name in enumerate(NAMES)}
        assert [band["band"] for band in figures["bands"]] == ["1-9"]
        for version in ("2", "0", "x", "1" * 30):
            assert await get(client, f"/v1/models/named/versions/{version}") == (
                404,
                "version-not-found",
            )
        assert await get(client, "/v1/models/none/versions/1") == (404, "model-not-found")


@pytest.mark.parametrize("report", [{}, {"validation": 7}, {"validation": {"rows": 1}}])
async def test_figures_that_are_not_there_or_not_ours_are_null(report: Any, tmp_path: Path) -> None:
    extra = {REPORT: json_array(REPORT, report)}
    Store(tmp_path).publish("small", small_draft(features=UNSCALED, extra=extra))
    async with serving(settings_of(tmp_path)) as (_, client):
        assert (await get(client, "/v1/models/small/versions/1"))["validation"] is None


async def test_a_damaged_old_version_does_not_hide_the_others(own_store: Store) -> None:
    manifest = own_store.root / "models" / "raw" / "versions" / "1" / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_bytes(b"{")
    own_store.promote("raw", 2, "stable")
    async with client_of(own_store) as client:
        new, old = (await get(client, "/v1/models/raw"))["version_details"]
    assert (new["version"], new["n_labels"], "error" in new) == (2, 11, False)
    assert (old["version"], old["error"]["code"]) == (1, "model-corrupt")


async def test_manifests_are_read_once(own_store: Store) -> None:
    async with client_of(own_store) as client:
        shown = await get(client, "/v1/models/raw")
        for manifest in own_store.root.glob("models/raw/versions/*/manifest.json"):
            manifest.chmod(0o644)
            manifest.write_bytes(b"{")
        assert await get(client, "/v1/models/raw") == shown


def test_an_alias_before_its_first_look_is_as_in_the_store() -> None:
    info = ModelInfo("raw", (1, 2), {"latest": Alias(2), "new": Alias(1)})
    assert summarize(info, {("raw", "latest"): Alias(1)}).aliases == {"latest": 1, "new": 1}
