"""Label info from the command line to the answers of a server:
replaced while it answers, damaged, kept.
"""

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.conftest import Command, Run, answer
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.oip_requests import tensor
from tests.helpers.servers import ServerProcess, wait_for

from xylem import Client
from xylem_store.label_info import LABEL_INFO, LabelInfo, Subject, build_label_info
from xylem_store.store import Store

BODY = {"instances": [{"text": "a small text editor for the terminal"}], "top_r": 3}
ROW = '{"indices": [1], "values": [1.0]}'
SPARSE = {"instances": [json.loads(ROW)], "top_r": 11}
TENSORS = {"inputs": [tensor("text", ["a"])], "parameters": {"language": "fi"}}
PREDICT = "/v1/models/text/predict"


def info_of(word: str, n_labels: int = 8) -> Any:
    """A vocabulary that knows the first labels, named by a word in Finnish."""
    subjects = [
        Subject(
            f"label::{i}",
            f"{i}.0",
            {"fi": f"{word} {i}", "en": f"dog {i}"},
            ["label::0"] if i else [],
        )
        for i in range(n_labels)
    ]
    return build_label_info(subjects)


@pytest.fixture(scope="module")
def store(shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    found = Store(Path(shutil.copytree(shared_store, tmp_path_factory.mktemp("labels") / "store")))
    found.put_label_info("text", info_of("koira", 11))
    found.put_label_info("raw", info_of("koira", 4))
    return found


@pytest.fixture(scope="module")
def server(store: Store) -> Iterator[ServerProcess]:
    with ServerProcess(store.root, store_poll_seconds=0.05) as process:
        yield process


def labels_of(server: ServerProcess, path: str, body: object) -> list[dict[str, Any]]:
    status, answer = server.ask("POST", path, body)
    assert status == 200, answer
    found: list[dict[str, Any]] = answer["predictions"][0]["labels"]
    return found


def test_names_stand_beside_labels_where_they_are_asked_for(server: ServerProcess) -> None:
    plain = labels_of(server, PREDICT, BODY)
    assert {key for label in plain for key in label} == {"label", "id", "score"}
    finnish = labels_of(server, f"{PREDICT}?language=fi", BODY)
    assert finnish == [
        {
            **label,
            "uri": label["label"],
            "notation": f"{label['id']}.0",
            "name": f"koira {label['id']}",
        }
        for label in plain
    ]
    for order in ("FI", "sv,fi,*", "fi,en"):
        assert labels_of(server, PREDICT, {**BODY, "language": order}) == finnish
    for label in labels_of(server, PREDICT, {**BODY, "label_info": True, "explain": True}):
        i = label["id"]
        assert label["names"] == {"fi": f"koira {i}", "en": f"dog {i}"}
        assert label["broader"] == (["label::0"] if i else [])
        assert label["explanation"] and "name" not in label


def test_what_the_vocabulary_does_not_know_is_null(server: ServerProcess) -> None:
    found = labels_of(
        server, "/v1/models/raw/predict", {**SPARSE, "language": "en", "label_info": True}
    )
    assert len(found) == 11
    for label in found:
        i, told = label["id"], (label["name"], label["uri"], label["names"])
        known = f"dog {i}", label["label"], {"fi": f"koira {i}", "en": f"dog {i}"}
        assert told == (known if i < 4 else (None, None, {}))
    by_version = labels_of(server, "/v1/models/raw/versions/1/predict?language=fi", SPARSE)
    assert {label["name"] for label in by_version if label["id"] == 3} == {"koira 3"}


def test_lines_of_a_batch_and_the_client_tell_names(server: ServerProcess) -> None:
    instance = json.dumps(BODY["instances"][0]).encode()
    (line,) = server.stream("/v1/models/text/batch?language=sv,en&top_r=1", [instance])
    (label,) = json.loads(line)["labels"]
    assert label["name"] == f"dog {label['id']}"
    with Client(f"http://127.0.0.1:{server.port}") as client:
        found = client.predict("text", ["a terminal"], language="fi", label_info=True)[0].labels[0]
        assert (found.name, found.notation) == (f"koira {found.id}", f"{found.id}.0")
        assert found.names["en"] == f"dog {found.id}"
        assert client.predict("text", ["a terminal"])[0].labels[0].names == {}


def with_deprecated(labels: set[str]) -> LabelInfo:
    every = [f"label::{i}" for i in range(11)]
    return build_label_info(
        [Subject(label, None, {}, deprecated=label in labels) for label in every]
    )


def in_line(line: str | bytes) -> set[str]:
    return {one["label"] for one in json.loads(line)["labels"]}


def test_deprecated_labels_are_answered_nowhere(
    run_here: Run, shared_store: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(shared_store, tmp_path / "store"))
    rows, scored, file = (tmp_path / name for name in ("rows.jsonl", "scored.jsonl", "v.ttl"))
    rows.write_text(ROW + "\n")
    scored.write_text(json.dumps({"indices": [1], "values": [1.0], "labels": ["label::1"]}) + "\n")
    prefixes = ["@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"]
    prefixes += ["@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"]
    concepts = [
        f'<label::{i}> a skos:Concept ; skos:prefLabel "name {i}"@en .\n' for i in range(11)
    ]
    deprecated = [f"<label::{i}> owl:deprecated true .\n" for i in (1, 4)]
    file.write_text("".join(prefixes + concepts + deprecated))
    every = {f"label::{i}" for i in range(11)}

    def by_http(server: ServerProcess, way: str) -> set[str]:
        return {one["label"] for one in labels_of(server, f"/v1/models/raw{way}/predict", SPARSE)}

    with ServerProcess(root, store_poll_seconds=0.05) as server:
        ways = (
            "",
            "/aliases/latest",
            "/versions/2",
            "/versions/1",
        )  # of which the last is of no alias
        assert [by_http(server, way) for way in ways] == [every] * 4
        said = run_here("models", "label-info", "raw", file, "--json", store=root)
        assert said.returncode == 0, said.stderr
        current = every - {"label::1", "label::4"}
        wait_for(lambda: [by_http(server, way) for way in ways] == [current] * 4)
        (line,) = server.stream("/v1/models/raw/batch?top_r=11", [ROW.encode()])
        assert in_line(line) == current
        for model in ("raw", "raw@1"):
            options = ("--data", rows, "--top-r", "11")
            told = run_here("predict", model, *options, store=root).stdout.splitlines()[-1]
            assert in_line(told) == current
            done = run_here("predict", model, *options, "--out", tmp_path / model, store=root)
            assert done.returncode == 0, done.stderr
            (part,) = (tmp_path / model).glob("part-*")
            assert in_line(part.read_bytes()) == current
        refused = run_here("score", "raw", "--data", scored, store=root)
        assert (refused.returncode, "neither denied nor deprecated" in refused.stdout) == (2, True)
        found = server.ask("GET", "/v1/models/raw/labels")[1]
        assert {one["label"] for one in found["labels"] if one["denied"]} == every - current
        Store(root).put_label_info("raw", with_deprecated({"label::2"}))
        wait_for(lambda: [by_http(server, way) for way in ways] == [every - {"label::2"}] * 4)
        Store(root).put_label_info("raw", with_deprecated(set()))
        wait_for(lambda: [by_http(server, way) for way in ways] == [every] * 4)


@pytest.mark.parametrize(
    ("path", "body", "code", "detail"),
    [
        (f"{PREDICT}?language=de", BODY, "unsupported-option", "(fi, en), found 'de'"),
        (
            "/v1/models/hashed/predict?language=fi",
            BODY,
            "unsupported-option",
            "found none: call xylem",
        ),
        (f"{PREDICT}?language=de,sv", BODY, "unsupported-option", "(fi, en), found 'de,sv'"),
        (PREDICT, {**BODY, "label_info": 1}, "bad-request", "label_info"),
        (PREDICT, {**BODY, "language": 5}, "bad-request", "language"),
        (f"{PREDICT}?language=fi", {**BODY, "language": "fi"}, "bad-request", "found it in both"),
        (f"{PREDICT}?language=fi&language=en", BODY, "bad-request", "found several"),
        (f"{PREDICT}?language={quote('x' * 4097)}", BODY, "limit-exceeded", "name_bytes_max"),
        (f"{PREDICT}?language=%ff", BODY, "bad-request", "query string"),
        ("/v2/models/text/infer", TENSORS, "unsupported-option", "parameters.language"),
        ("/v1/models/text/batch?language=de", b"", "unsupported-media-type", "Content-Type"),
    ],
)
def test_what_cannot_be_told_is_refused(
    server: ServerProcess, path: str, body: object, code: str, detail: str
) -> None:
    _, answer = server.ask("POST", path, body)
    assert answer["code"] == code
    assert detail in answer["detail"]


def test_label_info_is_replaced_while_requests_are_answered(
    server: ServerProcess, store: Store
) -> None:
    seen: list[tuple[int, str]] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            status, answer = server.ask("POST", f"{PREDICT}?language=fi", BODY)
            names = [label["name"].split()[0] for label in answer["predictions"][0]["labels"]]
            seen.append((status, "/".join(sorted(set(names)))))

    asking = threading.Thread(target=ask)
    asking.start()
    words = [f"word{i}" for i in range(5)]
    for word in words:
        store.put_label_info("text", info_of(word, 11))
        wait_for(lambda word=word: (200, word) in seen)  # type: ignore[misc]
    done.set()
    asking.join()
    assert {status for status, _ in seen} == {200}
    changes = [word for word, _ in itertools.groupby(word for _, word in seen)]
    assert changes in (words, ["koira", *words]), (
        "each answer is of one vocabulary, and none comes back"
    )
    store.put_label_info("text", info_of("koira", 11))
    wait_for(
        lambda: labels_of(server, f"{PREDICT}?language=fi", BODY)[0]["name"].startswith("koira")
    )


def test_damage_leaves_what_was_served_and_is_told(server: ServerProcess, store: Store) -> None:
    path = store.root / "models" / "text" / LABEL_INFO
    whole = path.read_bytes()
    damaged = path.with_name("damaged")
    damaged.write_bytes(whole.replace(b"n_subjects", b"n_Subjects"))
    damaged.replace(path)

    def failures() -> Any:
        return server.ask("GET", "/readyz")[1]["failures"]

    wait_for(lambda: [one["ref"] for one in failures()] == [LABEL_INFO])
    assert labels_of(server, f"{PREDICT}?language=fi", BODY)[0]["name"].startswith("koira")
    with ServerProcess(store.root) as second:  # which never saw it whole
        assert labels_of(second, PREDICT, BODY)
        assert second.ask("POST", f"{PREDICT}?language=fi", BODY)[1]["code"] == "unsupported-option"
        assert [one["ref"] for one in second.ask("GET", "/readyz")[1]["failures"]] == [LABEL_INFO]
    damaged.write_bytes(whole)
    damaged.replace(path)
    wait_for(lambda: failures() == [])


def test_the_command_attaches_shows_and_removes(
    command: Command, own_store: Store, tmp_path: Path
) -> None:
    def label_info(*arguments: object) -> tuple[int, str, str]:
        return command("models", "label-info", "text", *arguments, store=own_store.root)

    file, rows = tmp_path / "v.csv", tmp_path / "rows.jsonl"
    file.write_text("uri,label_fi\n" + "".join(f"label::{i},koira {i}\n" for i in range(9)))
    rows.write_text(json.dumps(BODY["instances"][0]) + "\n")
    predict = "predict", "text", "--data", rows, "--language", "fi", "--top-r", "11"
    status, _, said = label_info()
    assert (status, "expected label info, found none" in said) == (2, True)
    told = {"model": "text", "by": "uri", "languages": ["fi"], "language": "fi"}
    assert answer(label_info(file, "--json")) == {
        **told,
        "subjects": 9,
        "labels": 11,
        "known_labels": 9,
    }
    assert "koira" not in label_info()[1]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text(BODY["instances"][0]["text"])
    documents = "predict", "text", "--data", tmp_path / "texts", "--language", "sv,fi,*"
    assert command(*documents, store=own_store.root)[0] == 0
    assert "\tkoira " in (tmp_path / "texts" / "a.labels").read_text()
    labels = json.loads(command(*predict, store=own_store.root)[1].splitlines()[-1])["labels"]
    names = {label["id"]: label["name"] for label in labels}
    assert names == {i: f"koira {i}" if i < 9 else None for i in range(11)}
    status, _, said = label_info(file, "--by", "fi")
    assert (status, "found none of 11: say what they are with --by" in said) == (2, True)
    assert label_info(file, "--remove")[0] == 2
    assert answer(label_info("--remove", "--json"))["removed"]
    status, _, said = command(*predict, store=own_store.root)
    assert (status, "expected a model with label info" in said) == (2, True)


def test_training_attaches_a_vocabulary_or_warns(command: Command, tmp_path: Path) -> None:
    data, good, other = (tmp_path / name for name in ("train.jsonl", "v.tsv", "other.tsv"))
    write_lines(data, ({"text": f"word{i}", "labels": [f"http://x/{i}"]} for i in range(4)))
    good.write_text("<http://x/1>\tone\n")
    other.write_text("<http://y/1>\tone\n")
    store = Store(tmp_path / "store")
    options = (
        "train",
        "label-tree",
        "--data",
        data,
        "--model",
        "m",
        "--threads",
        "1",
        "--label-info",
    )
    assert command(*options, tmp_path / "none.tsv")[0] == 2
    assert not store.models()
    status, _, said = command(*options, other)
    assert (status, "warning: no label info: m: expected labels" in said) == (0, True)
    assert store.label_info("m") is None
    assert command(*options, good)[0] == 0
    assert store.label_info("m").text("name:und", 0) == "one"
