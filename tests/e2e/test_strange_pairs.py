"""Two files of public reports that do not fit each other, by every door: training rows and those
that are measured or predicted, rows and the vocabulary of their labels.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from tests.conftest import Run, serving
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import Place as JobPlace
from tests.helpers.labelled_rows import LABELS, ROWS, rows_of
from tests.helpers.strange_files import IDS

import xylem
from xylem.base.errors import XylemError
from xylem.vocabulary.label_info import read_label_info

TEXTS = [text for text, _ in ROWS]
URIS = [[f"urn:x:{name}" for name in labels] for _, labels in ROWS]
# Rows that are no training rows.
OTHERS = [(f"another {text}", labels) for text, labels in rows_of(seed=2)]

TRAIN = ("train", "label-tree", "-p", "trees=1", "--json")

TURTLE = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
XML = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    'xmlns:skos="http://www.w3.org/2004/02/skos/core#">{}</rdf:RDF>'
)


def turtle(type_of: dict[str, str]) -> str:
    """Return a vocabulary of the labels, whose concepts have a type unless another one is named."""
    return TURTLE + "".join(
        f'<urn:x:{name}> {type_of.get(name, "a skos:Concept ;")} skos:prefLabel "{name}"@en .\n'
        for name in LABELS
    )


RETIRED = turtle(
    dict.fromkeys(LABELS[:2], "a skos:Concept ; <http://www.w3.org/2002/07/owl#deprecated> true ;")
)
TWO_NAMES = '<urn:x:g> a skos:Collection ; skos:prefLabel "one"@en, "two"@en .\n'
CONCEPT = (
    '<skos:Concept rdf:about="urn:x:{0}"><skos:prefLabel xml:lang="en">{0}</skos:prefLabel>'
    '<skos:note xml:lang="zh_tw">x</skos:note></skos:Concept>'
)

# Vocabularies, and the finding about each; empty: it is read rightly.
VOCABULARIES = {
    "two-names.ttl": (turtle({}) + TWO_NAMES, ""),
    "half-typed.ttl": (turtle(dict.fromkeys(LABELS[::2], "")), "concepts-without-type"),
    "bad-tag.rdf": (XML.format("".join(map(CONCEPT.format, LABELS))), ""),
}


class Place(NamedTuple):
    """Jobs with their store and their files, and a model of rows whose labels are URIs."""

    jobs: JobPlace
    folder: Path
    data: Path
    store: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    jobs = JobPlace(tmp_path_factory.mktemp("pairs"))
    files = {
        "numbers": [[str(i) for i in ids] for ids in IDS],
        "floats": [[f"{LABELS.index(name)}.0" for name in labels] for _, labels in OTHERS],
        "uris": URIS,
        "others": [[f"urn:x:{name}" for name in labels] for _, labels in OTHERS],
    }
    for name, lists in files.items():
        texts = TEXTS if name in ("numbers", "uris") else [text for text, _ in OTHERS]
        rows = [{"text": t, "labels": ls} for t, ls in zip(texts, lists, strict=True)]
        write_lines(jobs.data / f"{name}.jsonl", rows)
    write_lines(
        jobs.data / "documents.jsonl",
        [{"document_id": i, "text": t, "labels": ls} for i, (t, ls) in enumerate(ROWS)],
    )
    for name, (content, _) in VOCABULARIES.items():
        (jobs.data / name).write_text(content)
    (jobs.data / "retired.ttl").write_text(RETIRED)
    jobs.train(model="numbers", data="numbers.jsonl", valid="others.jsonl")
    jobs.train(model="uris", data="uris.jsonl", valid="others.jsonl")
    jobs.train(model="documents", data="documents.jsonl", valid="documents.jsonl")
    jobs.train(model="retired", data="uris.jsonl", valid="others.jsonl")
    jobs.store.put_label_info("retired", read_label_info(jobs.data / "retired.ttl"))
    return Place(jobs, jobs.data.parent, jobs.data, jobs.store.root)


def codes_of(report: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in report["findings"]]


def texts_and_labels(file: Path) -> tuple[list[str], list[list[str]]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


def test_labels_of_validation_rows_that_are_written_otherwise(
    place: Place, run_here: Run, tmp_path: Path
) -> None:
    files = ("--data", place.data / "numbers.jsonl", "--valid", place.data / "floats.jsonl")
    train = run_here(*TRAIN, *files, "--model", "m", store=tmp_path)
    floats = ("--data", place.data / "floats.jsonl", "--json")
    evaluate = run_here("evaluate", "numbers", *floats, store=place.store)
    model = xylem.load(place.store, "numbers")
    request = {"model": "trial", "data": "numbers.jsonl", "valid": "floats.jsonl"}
    reports = [
        json.loads(train.stdout.splitlines()[-1]),
        json.loads(evaluate.stdout.splitlines()[-1]),
        model.evaluate(*texts_and_labels(place.data / "floats.jsonl"), progress=False),
        place.jobs.train(**request).result,
    ]
    for report in reports:
        assert codes_of(report) == ["unknown-labels"]
        assert "as '1.0' where the model has '1'" in report["findings"][0]["message"]
    tune = run_here("thresholds", "numbers", "--method", "sto", *floats, store=place.store)
    assert tune.returncode == 2 and "expected rows with labels of the model" in tune.stderr
    with pytest.raises(XylemError, match="expected rows with labels of the model, found none"):
        place.jobs.do(
            "threshold-tuning", {"model": "numbers", "method": "sto", "data": "floats.jsonl"}
        )


def test_other_fields_are_ignored_where_rows_are_predicted(place: Place, run_here: Run) -> None:
    file = place.data / "documents.jsonl"
    lines = file.read_text()
    rows = [json.loads(line) for line in lines.splitlines()]

    async def served() -> list[str]:
        async with serving(place.jobs.desk.settings) as (_, client):
            single = await client.post("/v1/models/documents/predict", json={"instances": rows})
            headers = {"content-type": "application/x-ndjson"}
            url = "/v1/models/documents/batch"
            batch = await client.post(url, content=lines, headers=headers)
        # a request is no file: there a field that is not known is a fault of its program
        assert single.status_code == 422 and "instances[0].document_id" in single.text
        assert batch.status_code == 200, batch.text
        return [json.loads(line)["labels"][0]["label"] for line in batch.text.splitlines()]

    frame = pd.DataFrame(rows)  # in Python, mappings are features by name
    model = xylem.load(place.store, "documents")
    answers = [row[0].label for row in model.predict(frame, text_column="text", top_r=1)]
    by_file = run_here("predict", "documents", "--data", file, store=place.store)
    by_input = run_here("predict", "documents", "--data", "-", store=place.store, input=lines)
    job = place.jobs.batch(model="documents", data="documents.jsonl")
    others = [
        asyncio.run(served()),
        *(
            [json.loads(line)["labels"][0]["label"] for line in done.stdout.splitlines()]
            for done in (by_file, by_input)
        ),
        [row["labels"][0]["label"] for row in place.jobs.predictions(job)],
    ]
    assert len(answers) == 240 and all(other == answers for other in others)


def test_deprecated_labels_are_measured_and_never_answered(
    place: Place, run_here: Run, tmp_path: Path
) -> None:
    texts, labels = texts_and_labels(place.data / "others.jsonl")

    async def served() -> float:
        async with serving(place.jobs.desk.settings) as (_, client):
            body = {"instances": [{"text": text} for text in texts], "top_r": 1}
            answer = await client.post("/v1/models/retired/predict", json=body)
        first = [row["labels"][0]["label"] for row in answer.json()["predictions"]]
        return 100 * sum(a in ls for a, ls in zip(first, labels, strict=True)) / len(labels)

    rows = ("--data", place.data / "others.jsonl", "--json")
    evaluate = run_here("evaluate", "retired", *rows, store=place.store)
    files = ("--data", place.data / "uris.jsonl", "--valid", place.data / "others.jsonl")
    info = ("--label-info", place.data / "retired.ttl")
    train = run_here(*TRAIN, *files, *info, "--model", "m", store=tmp_path)
    request = {"model": "retired", "data": "uris.jsonl", "valid": "others.jsonl"}
    reports = [
        json.loads(evaluate.stdout.splitlines()[-1]),
        json.loads(train.stdout.splitlines()[-1]),
        xylem.load(place.store, "retired").evaluate(texts, labels, progress=False),
        place.jobs.train(**request).result,
    ]
    assert asyncio.run(served()) < reports[0]["P@1"]
    for report in reports:
        assert codes_of(report) == ["labels-never-answered"]
        assert "found 2 of 8" in report["findings"][0]["message"]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_vocabulary_is_read_alike_by_every_door(
    name: str, place: Place, run_here: Run, tmp_path: Path
) -> None:
    file = place.data / name
    code = VOCABULARIES[name][1]
    rows = ("--data", place.data / "uris.jsonl", "--model")
    vocabulary = ("--vocabulary", file, "--language", "en")
    for arguments in (
        (*TRAIN, *rows, "m", "--label-info", file),
        ("models", "label-info", "m", file),
        ("combine", "--member", "m", *vocabulary, *rows, "c"),
        ("models", "vocabulary", "c", "--set", file),
        ("models", "label-info", "c", "--json"),
    ):
        done = run_here(*arguments, store=tmp_path)
        assert done.returncode == 0, done.stderr
        is_read = file in arguments
        assert ("concepts-without-type" in done.stderr) == bool(code and is_read), done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["subjects"] == 8
    combined = xylem.combine(
        [xylem.load(place.store, "uris")], file, TEXTS, URIS, language="en", progress=False
    )
    codes = [code] if code else []
    assert codes_of(combined.report) == codes and "urn:x:sea" in combined.label_names
    request = {"model": f"c-{name[0]}", "vocabulary": name, "language": "en"}
    rows_and_members = {"members": ["uris@1"], "data": "uris.jsonl"}
    assert codes_of(place.jobs.do("combine", {**request, **rows_and_members}).result) == codes
    assert codes_of(place.jobs.do("vocabulary", request).result) == codes
