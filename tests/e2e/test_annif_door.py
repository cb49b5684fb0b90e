"""Annif's own client code, and requests as its users' scripts make them, against a server."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.e2e.test_label_info import info_of, store  # noqa: F401
from tests.helpers.servers import KEY, ServerProcess

from xylem.serving.dialects.annif.schema import DOCUMENTS_MAX
from xylem.serving.label_info import LiveLabelInfo
from xylem_store.label_info import Subject, build_label_info
from xylem_store.names import build_names
from xylem_store.store import Store

CLIENTS = Path(__file__).resolve().parents[2] / ".venv-clients" / "bin"
TEXT = "a small text editor for the terminal"
SUGGEST = "/v1/projects/text/suggest"
BATCH = f"{SUGGEST}-batch"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def server(store: Store) -> Iterator[ServerProcess]:  # noqa: F811
    settings = {"text_bytes_max": 64, "top_r_max": 100, "feedback_rows": 1, "admin_key": KEY}
    with ServerProcess(store.root, **settings) as process:
        yield process


def suggest(server: ServerProcess, of: str = "text", /, **fields: object) -> tuple[int, Any]:
    body = urlencode(fields).encode()
    return server.ask("POST", f"/v1/projects/{of}/suggest", body, content_type=FORM)


def suggested(server: ServerProcess, of: str = "text", /, **fields: object) -> list[dict[str, Any]]:
    status, answer = suggest(server, of, text=TEXT, **fields)
    assert status == 200, answer
    return answer["results"]  # type: ignore[no-any-return]


def predicted(server: ServerProcess, model: str = "text", **options: Any) -> list[dict[str, Any]]:
    asked = {"instances": [{"text": TEXT}], **options}
    found: list[dict[str, Any]] = server.ask("POST", f"/v1/models/{model}/predict", asked)[1][
        "predictions"
    ]
    return found[0]["labels"]  # type: ignore[no-any-return]


def values(results: list[dict[str, Any]], name: str) -> list[Any]:
    return [one[name] for one in results]


def test_suggestions_are_predictions(server: ServerProcess) -> None:
    assert suggested(server, limit=3) == [
        {
            "uri": one["label"],
            "label": f"koira {one['id']}",
            "notation": f"{one['id']}.0",
            "score": one["score"],
        }
        for one in predicted(server, top_r=3)
    ]
    assert len(suggested(server)) == 10
    english = suggested(server, language="EN", project="any", metadata_title="a title", more="x")
    assert values(english, "label") == [f"dog {one['id']}" for one in predicted(server, top_r=10)]
    least = predicted(server, top_r=11, exact=True)[4]["score"]
    reached = suggested(server, limit=11, threshold=least)
    assert values(reached, "score") == values(predicted(server, top_r=11, threshold=least), "score")
    assert suggested(server, limit=0) == []


def test_without_label_info_a_label_is_its_own_uri(server: ServerProcess) -> None:
    assert suggested(server, "hashed", limit=2) == [
        {"uri": one["label"], "label": one["label"], "notation": None, "score": one["score"]}
        for one in predicted(server, "hashed", top_r=2)
    ]


def test_projects_are_aliases(server: ServerProcess) -> None:
    projects = server.ask("GET", "/v1/projects")[1]["projects"]
    assert values(projects, "project_id") == ["hashed", "named", "raw", "raw@stable", "text"]
    first, last = projects[0], projects[-1]
    assert server.ask("GET", "/v1/projects/text") == (200, last)
    assert last["vocab"] == {
        "vocab_id": "text",
        "languages": ["en", "fi"],
        "size": 11,
        "loaded": True,
    }
    assert (last["language"], last["vocab_language"]) == ("fi", "fi")
    assert (first["language"], first["vocab"]["languages"]) == ("und", [])
    assert server.ask("GET", "/v1/projects/raw@1")[1]["project_id"] == "raw@1"


def test_a_batch_of_documents(server: ServerProcess) -> None:
    documents = [{"text": TEXT, "document_id": "a", "metadata": {"title": "x"}}, {"text": "chess"}]
    status, answer = server.ask("POST", f"{BATCH}?limit=2&language=en", {"documents": documents})
    assert (status, values(answer, "document_id")) == (200, ["a", None])
    for document, one in zip(documents, answer, strict=True):
        assert (
            one["results"]
            == suggest(server, text=document["text"], limit=2, language="en")[1]["results"]
        )


@pytest.mark.parametrize(
    ("n", "status"), [(0, 200), (DOCUMENTS_MAX, 200), (DOCUMENTS_MAX + 1, 422)]
)
def test_a_batch_has_as_many_documents_as_annifs(
    server: ServerProcess, n: int, status: int
) -> None:
    found, answer = server.ask("POST", f"{BATCH}?limit=1", {"documents": [{"text": "a"}] * n})
    assert found == status
    assert status == 422 or len(answer) == n


@pytest.mark.parametrize(
    ("project", "fields", "status", "code"),
    [
        ("none", {"text": "a"}, 404, "model-not-found"),
        ("text@none", {"text": "a"}, 404, "alias-not-found"),
        ("text@9", {"text": "a"}, 404, "version-not-found"),
        ("text@", {"text": "a"}, 404, "alias-not-found"),
        ("text@%2e%2e", {"text": "a"}, 404, "alias-not-found"),
        ("text", {}, 422, "bad-request"),
        ("text", {"text": "a", "limit": -1}, 422, "bad-request"),
        ("text", {"text": "a", "limit": "many"}, 422, "bad-request"),
        ("text", {"text": "a", "limit": 101}, 422, "limit-exceeded"),
        ("text", {"text": "a", "threshold": 1.5}, 422, "bad-request"),
        ("text", {"text": "a", "threshold": "nan"}, 422, "bad-request"),
        ("text", {"text": "a", "language": "de"}, 422, "bad-request"),
        ("hashed", {"text": "a", "language": "fi"}, 422, "bad-request"),
        ("text", {"text": "a" * 65}, 422, "limit-exceeded"),
        ("raw", {"text": "a"}, 422, "bad-instance"),
        ("text", {"text": "a", **{f"metadata_{i}": i for i in range(300)}}, 422, "bad-request"),
    ],
)
def test_refusals(server: ServerProcess, project: str, fields: Any, status: int, code: str) -> None:
    found, answer = suggest(server, project, **fields)
    assert (found, answer["status"], answer["code"]) == (status, status, code)
    assert answer["title"] and answer["detail"]


@pytest.mark.parametrize(
    ("path", "body", "media", "status"),
    [
        (SUGGEST, b"text=%ff", FORM, 422),
        (SUGGEST, b"text=\xe4", FORM, 422),
        (SUGGEST, b"text=a&text=b", FORM, 422),
        (SUGGEST, b'{"text": "a"}', "application/json", 415),
        (SUGGEST, b"text=a", f"{FORM}; charset=latin-1", 415),
        (BATCH, b"[", "application/json", 400),
        (BATCH, b'{"documents": [{"text": 5}]}', "application/json", 422),
        (BATCH, b'{"documents": 5}', "application/json", 422),
    ],
)
def test_bodies_that_are_none(
    server: ServerProcess, path: str, body: bytes, media: str, status: int
) -> None:
    found, answer = server.ask("POST", path, body, content_type=media)
    assert (found, answer["status"]) == (status, status)


SCRIPT = """
from annif.cli import cli
for command in (
    ["load-vocab", "v", "v.csv"],
    ["show-project", "x"],
    ["suggest", "x", "--limit", "3", "a.txt"],
    ["index", "x", "."],
):
    cli(command, standalone_mode=False)
"""


@pytest.mark.skipif(not (CLIENTS / "annif").exists(), reason="annif is not in .venv-clients")
def test_annifs_own_backend_asks_us(server: ServerProcess, tmp_path: Path) -> None:
    info = info_of("koira", 11)
    rows = [f"{info.text('uri', i)},koira {i},dog {i},{i}.0\n" for i in range(11)]
    (tmp_path / "v.csv").write_text("uri,label_fi,label_en,notation\n" + "".join(rows))
    (tmp_path / "a.txt").write_text(TEXT)
    project = f"[x]\nname=X\nlanguage=en\nbackend=http\nvocab=v\nendpoint={server.url}{SUGGEST}\n"
    (tmp_path / "projects.cfg").write_text(project)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [CLIENTS / "python", "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Trained:           True" in done.stdout
    best = predicted(server, top_r=3)
    assert [line.split("\t") for line in done.stdout.splitlines() if line.startswith("<")] == [
        [f"<{one['label']}>", f"dog {one['id']}", f"{one['id']}.0", f"{one['score']:.4f}"]
        for one in best
    ]
    indexed = (tmp_path / "a.annif").read_text().splitlines()
    assert [line.split("\t")[0] for line in indexed][:3] == [f"<{one['label']}>" for one in best]


def test_documents_are_learned_from_once_and_kept_as_rows(server: ServerProcess) -> None:
    first = predicted(server)[0]["label"]
    documents = [
        {
            "text": TEXT,
            "subjects": [{"uri": first, "label": "passed over"}],
            "metadata": {"any": 1},
        },
        {"text": "a game of chess", "subjects": [{"label": first}]},
    ]
    for _ in range(2):
        assert server.ask("POST", "/v1/projects/text/learn", documents) == (204, b"")
    assert server.ask("GET", "/v1/models/text/thresholds")[1]["n_events"] == 2
    path = "/v1/admin/models/text/feedback-rows"
    _, _, rows = server.exchange("GET", path, authorization=f"Bearer {KEY}")
    kept = [json.loads(line) for line in rows.splitlines()]
    assert [(row["text"], row["labels"]) for row in kept] == [
        (d["text"], [first]) for d in documents
    ]
    assert all(row["event_id"].startswith("annif-") for row in kept)
    unknown = [{"text": "x", "subjects": []}, {"text": "x", "subjects": [{"uri": "no:such"}]}]
    for body, path in (
        (unknown, "[1].subjects[0]"),
        ([{"text": "x"}], "[0].subjects"),
        ({"text": "x"}, ""),
    ):
        status, answer = server.ask("POST", "/v1/projects/text/learn", body)
        assert (status, answer.get("errors", [{"path": ""}])[0]["path"]) == (422, path), answer
    status, answer = server.ask("POST", "/v1/projects/raw/learn", [{"text": "x", "subjects": []}])
    assert (status, answer["code"]) == (422, "bad-instance")
    assert server.ask("GET", "/v1/models/text/thresholds")[1]["n_events"] == 2


def test_a_label_is_found_by_the_uri_that_label_info_tells() -> None:
    live = LiveLabelInfo("m", build_names(["7.1", "7.2"]))
    assert live.label_of_uri("http://example.org/1") is None
    live.follow(
        build_label_info(
            [Subject("http://example.org/1", "7.2", {"en": "dog"})], key_column="notation"
        )
    )
    assert live.label_of_uri("http://example.org/1") == 1
    assert live.label_of_uri("7.1") is None
