"""A concept that an admin adds: answered by its name at once, learnt by the next run, and kept."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.combined_models import NAMES
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.distinct_documents import distinct_documents
from tests.helpers.servers import ServerProcess, wait_for

import xylem
from xylem_store.store import Store

KEY = "the-admin-key-of-the-concepts"
TEXT = "a remark on the zeppelin museum by the lake"
NEW: dict[str, Any] = {
    "key": "l-new",
    "names": {"en": ["zeppelin museum", "airship hall"]},
    "broader": ["l0"],
    "examples": [f"airship number {i} stands in hall {i * 7}" for i in range(4)],
}


def labels_of(client: xylem.Client, text: str) -> list[str]:
    return [label.label for label in client.predict("m", [text], top_r=3)[0].labels]


def names_in(file: Path, *more: str) -> None:
    """Write a vocabulary without the last concept, which has one more for each line of `more`."""
    lines = "".join(f"l{i},{name}\n" for i, name in enumerate(NAMES))
    file.write_text(f"uri,label_en\n{lines}{''.join(more)}")


def done(client: xylem.Client, submitted: Any) -> Any:
    job = client.wait(submitted.id)
    assert job.state == "succeeded", job.error
    wait_for(lambda: [model.aliases["latest"] for model in client.models()] == [job.version])
    return job


def add_and_find(client: xylem.Client, data: Path) -> None:
    assert client.concepts("m") == []
    submitted = client.add_concept("m", **NEW)
    (concept,) = client.concepts("m")
    assert concept["at"] > 0 and {name: concept[name] for name in NEW} == NEW
    with pytest.raises(xylem.errors.ProblemError, match="vocabulary does not have, found 'l-new'"):
        client.add_concept("m", **NEW)
    assert done(client, submitted).kind == "vocabulary"
    assert [concept["version"] for concept in client.concepts("m")] == [2]
    assert "l-new" in labels_of(client, TEXT)
    assert "l-new" in labels_of(client, "at the airship hall")
    with pytest.raises(xylem.errors.ProblemError, match="vocabulary does not have, found 'l1'"):
        client.add_concept("m", **{**NEW, "key": "l1"})

    changed = "l6,another name\nl-next,something new\n"
    names_in(data / "next.csv", changed)
    text = (data / "next.csv").read_text().replace(f"l6,{NAMES[6]}\n", "").replace("l5", "l-five")
    (data / "next.csv").write_text(text)
    changes = client.wait(client.set_vocabulary("m", "next.csv", compare=True).id).result
    assert changes is not None and len(client.history("m")) == 2
    assert changes["changed"] == [{"key": "l6", "name": "another name", "old_name": NAMES[6]}]
    assert changes["removed"] == [{"key": "l5", "name": NAMES[5]}]
    assert {concept["key"] for concept in changes["added"]} == {"l-five", "l-next"}
    assert (changes["n_added"], changes["n_changed"], changes["n_removed"]) == (2, 1, 1)
    for wrong in ("gone.csv", "../secret"):
        with pytest.raises(xylem.errors.ProblemError, match="expected a file") as refused:
            client.set_vocabulary("m", wrong, compare=True)
        assert str(data) not in str(refused.value) and refused.value.status == 422
    failed = client.wait(client.set_vocabulary("m", "documents.jsonl", compare=True).id)
    assert failed.error is not None and failed.error.startswith("documents.jsonl: expected a file")


def learn_and_remove(client: xylem.Client, data: Path) -> None:
    names_in(data / "names.csv", "l-next,something new\n")
    job = done(client, client.set_vocabulary("m", "names.csv"))
    assert "l-new" in labels_of(client, TEXT) and "l-next" in labels_of(client, "something new")
    job = client.wait(client.learn("m").id)
    assert job.state == "succeeded", job.error
    concepts = job.result["sources"][-1]
    assert (concepts["source"], concepts["rows"]) == ("concepts", 4)
    assert concepts["learnt"] + concepts["held_out"] == 4
    assert [run["version"] for run in client.learning("m")["runs"]] == [job.version, 1]
    assert "l-new" in labels_of(client, TEXT)
    done(client, client.remove_concept("m", "l-new"))
    assert client.concepts("m") == [] and "l-new" not in labels_of(client, TEXT)
    for _ in range(2):
        with pytest.raises(xylem.errors.ProblemError, match="that was added to m, found 'l-new'"):
            client.remove_concept("m", "l-new")


def test_an_added_concept_is_answered_learnt_and_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    data = tmp_path / "data"
    data.mkdir()
    names_in(data / "names.csv")
    write_lines(data / "documents.jsonl", distinct_documents(340, 1))
    recipe = {
        "vocabulary": "names.csv",
        "language": "en",
        "sources": [{"file": "documents.jsonl"}],
        "parameters": {"features.kind": "tfidf"},
        "beam_width": 3,
        "near": False,
        "promotion": {"metric": "F1@5", "least_change": -100.0},
    }
    settings = {"data_dir": data, "jobs": 1, "job_nice": 0, "admin_key": KEY}
    with (
        ServerProcess(store.root, **settings) as server,
        xylem.Client(f"http://127.0.0.1:{server.port}", KEY) as client,
    ):
        with pytest.raises(xylem.errors.ProblemError, match="expected a recipe, found none"):
            client.add_concept("m", **NEW)
        client.set_recipe("m", recipe)
        with pytest.raises(xylem.errors.ProblemError, match="a learn job makes one"):
            client.add_concept("m", **NEW)
        done(client, client.learn("m"))
        add_and_find(client, data)
        learn_and_remove(client, data)
        (data / "names.csv").unlink()
        with pytest.raises(xylem.errors.ProblemError, match="expected a file below the data"):
            client.add_concept("m", **NEW)
        assert client.concepts("m") == []
