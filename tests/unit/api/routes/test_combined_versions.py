"""A combined version is served by every way that there is."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import InProcess, post
from tests.helpers.alias_helpers import deny
from tests.helpers.combined_models import documents, publish_combined
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.measured import evaluate

import xylem
from xylem.base import no_progress
from xylem.base.db.engine import Database
from xylem.thresholds.tuning import TuneRequest, keep
from xylem.workflows.tuning import tune
from xylem_store.store import Store

PATH = "/v1/models/both"
TEXT = "an old salt mine above a river boat"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return publish_combined(tmp_path_factory.mktemp("served"))


Ask = Callable[..., Any]


@pytest.fixture
def ask(store: Store, in_process: InProcess) -> Ask:
    """What returns the answer of a server in this process, which must be of success."""

    def ask(path: str, content: Any, kind: str = "application/json", **changes: Any) -> Any:
        response = in_process(post(path, content, **{"content-type": kind}), store.root, **changes)
        assert response.status_code == 200, response.text
        return response.json()

    return ask


def predict(
    ask: Ask, database_url: str | None = None, path: str = PATH, **options: Any
) -> dict[str, Any]:
    """Return the labels of TEXT by their names."""
    body = {"instances": [{"text": TEXT}], "top_r": 7, **options}
    (found,) = ask(f"{path}/predict", body, database_url=database_url)["predictions"]
    assert found["exact"] is True
    return {label["label"]: label for label in found["labels"]}


def test_labels_have_names_and_explanations_of_members_and_words(ask: Ask) -> None:
    found = predict(ask, language="en", explain=True)
    learned, named = found["l1"], found["l6"]
    assert named["learned"] is False and named["name"] == "salt mine"
    assert "learned" not in learned and learned["score"] > 0.5
    members = learned["explanation"]["members"]
    assert [one["member"] for one in members] == ["words@1", "chars@1"]
    assert members[0]["rank"] == 1 and members[0]["explanation"]["trees"]
    assert all(word in json.dumps(learned["explanation"]) for word in ("river", "boat"))
    assert "mine" in json.dumps(named["explanation"])
    assert not any("rank" in one for one in named["explanation"]["members"])


def test_every_door_explains_alike_with_members_and_names(store: Store, ask: Ask) -> None:
    expected = {name: label["explanation"] for name, label in predict(ask, explain=True).items()}
    assert expected["l6"]["names"] == [
        {"name": "salt mine", "kind": "preferred", "words": ["salt", "mine"]}
    ]
    line = json.dumps({"text": TEXT}) + "\n"
    batch = ask("/v1/models/both/batch?top_r=7&explain=true", line, "application/x-ndjson")
    in_python = xylem.load(store.root, "both").explain(TEXT, top_r=7)
    for labels in (batch["labels"], in_python):
        assert {label["label"]: label["explanation"] for label in labels} == expected


def test_lists_of_labels_and_thresholds_hold(store: Store, ask: Ask) -> None:
    assert "l1" not in predict(ask, deny_labels=["l1"])
    assert predict(ask, allow_labels=["l6", "l1"]).keys() == {"l1", "l6"}
    expected = {name for name, one in predict(ask).items() if one["score"] >= 0.5}
    assert predict(ask, threshold=0.5).keys() == expected
    store.promote("both", 1, "public")
    deny(store, "both", ["l1"], "public")
    assert "l1" not in predict(ask, path=f"{PATH}/aliases/public")


def test_batches_tensors_scores_and_annif_have_the_same_answers(ask: Ask) -> None:
    every = predict(ask)
    line = json.dumps({"text": TEXT}) + "\n"
    batch = ask("/v1/models/both/batch?top_r=7", line, "application/x-ndjson")
    expected = [(name, one["score"]) for name, one in every.items()]
    assert [(one["label"], one["score"]) for one in batch["labels"]] == expected
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}
    tensors = {"inputs": [text], "parameters": {"top_r": 7}}
    outputs = {one["name"]: one["data"] for one in ask("/v2/models/both/infer", tensors)["outputs"]}
    assert outputs["labels"] == list(every)
    scores = ask("/v1/models/both/score", {"instances": [{"text": TEXT, "labels": ["l6", "l1"]}]})
    found = [one["score"] for one in scores["scores"][0]["labels"]]
    assert found == pytest.approx([every["l6"]["score"], every["l1"]["score"]])
    form = "application/x-www-form-urlencoded"
    suggested = ask("/v1/projects/both/suggest", f"text={TEXT}&limit=3", form)["results"]
    assert [one["uri"] for one in suggested] == list(every)[:3]


@pytest.mark.parametrize("method", ["sto", "fta", "ofo"])
def test_thresholds_are_tuned_and_moved(
    store: Store, ask: Ask, tmp_path: Path, method: Any
) -> None:
    wanted = TuneRequest((method,), write_lines(tmp_path / "more.jsonl", documents(80, 5)))
    opened, url = store.open("both"), f"sqlite:///{tmp_path}/xylem.db"
    with contextlib.closing(Database(url)) as database:
        kept = keep(opened, database, tune(opened, wanted, no_progress))
    assert kept["validation_macro_f"] > 60
    found = predict(ask, threshold="tuned", database_url=url)
    assert "l1" in found and len(found) < 6
    event = {"event_id": method, "instance": {"text": TEXT}, "labels": ["l6", "l1"]}
    (result,) = ask("/v1/models/both/feedback", event, database_url=url)["results"]
    assert result["result"] == "applied"


def test_figures_are_those_of_any_version(store: Store, tmp_path: Path) -> None:
    found = evaluate(store.open("both"), write_lines(tmp_path / "test.jsonl", documents(60, 6)))
    assert found["P@1"] > 90
