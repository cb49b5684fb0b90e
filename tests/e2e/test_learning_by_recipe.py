"""The loop of a vocabulary: a recipe, a job that learns, corrections, a job with what is new."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Command
from tests.helpers.combined_models import NAMES
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.distinct_documents import distinct_documents
from tests.helpers.servers import ServerProcess, wait_for

import xylem
from xylem_store.store import Store

KEY = "the-admin-key-of-the-recipe"


def check_runs(learning: dict[str, Any], newest: dict[str, Any]) -> None:
    """Two runs, the newest first, each with what its job has reported."""
    assert (learning["n_waiting"], learning["job"]) == (0, None)
    second, first = learning["runs"]
    assert (second["version"], first["version"], first["promoted"]) == (2, 1, True)
    assert first["at"] < second["until"] < second["at"]
    assert second["figures"] == newest["judges"]["figures"] and second["judges"] >= 30
    assert second["sources"] == newest["sources"] and second["reasons"]
    assert second["corrections"] == newest["corrections"]


def test_a_recipe_is_repeated_by_jobs_and_by_the_command(tmp_path: Path, command: Command) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    data = tmp_path / "data"
    data.mkdir()
    lines = "".join(f"l{i},{name}\n" for i, name in enumerate(NAMES))
    (data / "names.csv").write_text(f"uri,label_en\n{lines}")
    write_lines(data / "documents.jsonl", distinct_documents(340, 1))
    recipe = {
        "vocabulary": "names.csv",
        "language": "en",
        "sources": [{"file": "documents.jsonl"}],
        "parameters": {"features.kind": "tfidf"},
        "beam_width": 3,
        "near": False,
        "rows": 20,
    }
    settings = {"data_dir": data, "jobs": 1, "job_nice": 0, "feedback_rows": 1, "admin_key": KEY}
    with (
        ServerProcess(store.root, **settings) as server,
        xylem.Client(f"http://127.0.0.1:{server.port}", KEY) as client,
    ):
        for wrong, fault in ({"cron": "0 0 * * 0"}, "found both"), ({"vocabulary": "x"}, "below"):
            with pytest.raises(xylem.errors.ProblemError, match=fault):
                client.set_recipe("m", {**recipe, **wrong})
        with pytest.raises(xylem.errors.ProblemError, match="xylem learn makes one") as refused:
            client.learn("m")
        assert refused.value.status == 422 and client.jobs() == []
        with pytest.raises(xylem.errors.ProblemError, match="expected a model, found none"):
            client.learning("m")
        key = client.call("POST", "/v1/admin/keys", name="editor", scopes=["admin"])
        with xylem.Client(f"http://127.0.0.1:{server.port}", key["key"]) as editor:
            assert editor.set_recipe("m", recipe)["recipe"]["beam_width"] == 3
            client.call("DELETE", f"/v1/admin/keys/{key['id']}")
            with pytest.raises(xylem.errors.ProblemError, match="found that it was revoked"):
                editor.learn("m")
        (schedule,) = client.schedules()
        assert (schedule["kind"], schedule["model"], schedule["rows"]) == ("learn", "m", 20)
        learning = client.learning("m")
        schedule_facts = {"id": schedule["id"], "cron": None, "rows": 20, "next_at": None}
        assert learning["schedule"] == schedule_facts and learning["recipe"]["near"] is False
        assert (learning["n_waiting"], learning["job"], learning["runs"]) == (0, None, [])

        job = client.wait(client.learn("m").id)
        assert (job.state, job.version) == ("succeeded", 1), job.error
        assert job.promotion.promoted and job.result["judges"]["rows"] >= 30
        wait_for(lambda: [model.name for model in client.models()] == ["m"])
        events = [
            {"event_id": str(i), "instance": {"text": row["text"]}, "labels": row["labels"]}
            for i, row in enumerate(distinct_documents(20, 6))
        ]
        client.feedback("m", events)
        # the schedule submits the job, though the key that made it is revoked
        wait_for(lambda: len(client.jobs()) == 2)
        job = client.wait(client.jobs()[0].id)
        assert (job.state, job.version) == ("succeeded", 2), job.error
        assert job.result["sources"][1]["rows"] == 20 and job.promotion.baseline == 1
        check_runs(client.learning("m"), job.result)
        (data / "documents.jsonl").unlink()
        job = client.wait(client.learn("m").id)
        assert job.state == "failed" and "found not: documents.jsonl" in job.error
        (schedule,) = client.schedules()
        assert (schedule["runs"], schedule["last_job"]) == (1, client.jobs()[1].id)
        assert client.recipe("m")["recipe"]["sources"][0]["file"] == "documents.jsonl"
    assert store.versions("m") == (1, 2)
    status, printed, _ = command("models", "recipe", "m", "--store", store.root, "--json")
    assert status == 0 and json.loads(printed)["recipe"]["rows"] == 20
