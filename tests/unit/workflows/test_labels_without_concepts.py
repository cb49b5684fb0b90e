"""Labels of rows that a vocabulary lacks, and resources that it does not say to be concepts."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Command
from tests.helpers.combined_models import NAMES, documents
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import Place
from tests.helpers.recipes import recipe_in

import xylem
from xylem.base.data_report import Finding
from xylem.base.db.of_store import opened_database
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.vocabulary.concepts import read_concepts
from xylem.vocabulary.label_info import read_label_info
from xylem.workflows.learn import LearnRequest, learn_and_publish
from xylem_store.origin import read_report
from xylem_store.store import Store

PREFIXES = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
WITHOUT_CONCEPT = "labels-without-concept"
WITHOUT_TYPE = "concepts-without-type"
NEVER_ANSWERED = "labels-never-answered"


def turtle(n: int, n_typed: int, first: str = "http://x/") -> str:
    """Return concepts with names, the first of which have the type of concepts."""
    types = ["a skos:Concept ; "] * n_typed + [""] * (n - n_typed)
    return PREFIXES + "".join(
        f'<{first}l{i}> {types[i]}skos:prefLabel "{NAMES[i]}"@en .\n' for i in range(n)
    )


def table(n: int) -> str:
    return "uri,label_en\n" + "".join(f"l{i},{NAMES[i]}\n" for i in range(n))


def rows_of(prefix: str, seed: int = 1) -> list[dict[str, Any]]:
    """Return rows whose labels are the numbers of concepts behind a prefix."""
    rows: list[dict[str, Any]] = [*documents(60, seed)]
    for row in rows:
        row["labels"] = [name.replace("l", prefix) for name in row["labels"]]
    return rows


def findings_of(report: dict[str, Any], code: str) -> list[str]:
    return [one["message"] for one in report["findings"] if one["code"] == code]


def test_resources_without_a_type_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "half.ttl"
    file.write_text(turtle(6, 3))
    (finding,) = read_concepts(file, "en").findings
    assert finding.code == WITHOUT_TYPE and "found 3 of 6" in finding.message
    assert "<http://x/l3>" in finding.message
    findings: list[Finding] = []
    assert read_label_info(file, on_finding=findings.append).head.n_subjects == 6
    assert findings == [finding]
    file.write_text(turtle(6, 6))
    assert read_concepts(file, "en").findings == ()
    blank = '_:b skos:prefLabel "blank"@en . [] skos:prefLabel "blank"@en, "two"@en .\n'
    file.write_text(turtle(6, 3, "urn:x:") + blank)
    concepts = read_concepts(file, "en")
    assert concepts.keys == [f"urn:x:l{i}" for i in range(6)]
    assert "<urn:x:l3>" in concepts.findings[0].message
    other = '<http://x/g> a skos:Collection ; skos:prefLabel "one"@en, "two"@en .\n'
    file.write_text(turtle(6, 6) + other)
    assert read_concepts(file, "en").findings == (), "what has another type is no concept"


def test_each_command_tells_of_resources_without_a_type(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "half.ttl"
    file.write_text(turtle(6, 3))
    data = write_lines(tmp_path / "rows.jsonl", rows_of("http://x/l"))
    train = ("train", "label-tree", "--data", data, "--model", "m", "-p", "trees=1")
    vocabulary = ("--vocabulary", file, "--language", "en")
    for arguments in (
        (*train, "--label-info", file),
        ("models", "label-info", "m", file),
        ("combine", "--member", "m", *vocabulary, "--data", data, "--model", "c"),
        ("models", "vocabulary", "c", "--set", file),
    ):
        status, _, err = command(*arguments)
        assert status == 0 and f"({WITHOUT_TYPE})" in err, (arguments, err)
        assert WITHOUT_CONCEPT not in err
        assert "found 3 of 6 that have a skos:prefLabel and no type, as <http://x/l3>" in err
    status, _, err = command(*arguments[:-1], tmp_path / "none.ttl")
    assert status == 2 and "none.ttl" in err


@pytest.mark.parametrize(
    "stream", [(), ("--stream", "-p", "solver=sgd")], ids=["in-memory", "stream"]
)
def test_a_training_tells_of_labels_that_label_info_lacks(
    tmp_path: Path, command: Command, stream: tuple[str, ...]
) -> None:
    data = write_lines(tmp_path / "rows.jsonl", documents(60, 1))
    names = tmp_path / "names.csv"
    names.write_text(table(4))
    train = ("train", "plt", "--data", data, "--model", "m", "-p", "trees=1", *stream)
    label_info = ("--label-info", names)
    status, _, err = command(*train, *label_info, "--strict")
    assert status == 2 and err.endswith(f"({WITHOUT_CONCEPT})\n")
    assert "found 2 of 6 that are none, as 'l4', 'l5'" in err
    assert Store(tmp_path / "store").versions("m") == ()
    for more in (label_info, ()):  # then the model has it
        status, out, err = command(*train, *more, "--json")
        assert status == 0 and f"({WITHOUT_CONCEPT})" in err
        assert findings_of(json.loads(out.splitlines()[-1]), WITHOUT_CONCEPT)
    names.write_text(table(7))
    status, out, err = command(*train, *label_info, "--json")
    assert (status, err) == (0, "") and json.loads(out.splitlines()[-1])["findings"] == []


def test_no_label_of_the_rows_has_a_concept(tmp_path: Path, command: Command) -> None:
    data = write_lines(tmp_path / "rows.jsonl", documents(60, 1))
    (tmp_path / "names.csv").write_text("uri,label_en\nhttp://x/1,one\n")
    train = ("train", "label-tree", "--data", data, "--model", "m", "-p", "trees=1")
    status, _, err = command(*train, "--label-info", tmp_path / "names.csv")
    assert status == 0 and "found 6 of 6 that are none" in err
    assert "no label info: m: expected labels" in err
    assert Store(tmp_path / "store").label_info("m") is None


def test_a_combination_tells_of_labels_that_are_no_concepts(
    tmp_path: Path, command: Command
) -> None:
    store = Store(tmp_path / "store")
    names = tmp_path / "four.ttl"
    retired = "<http://x/l4> a skos:Concept ; <http://www.w3.org/2002/07/owl#deprecated> true ; "
    names.write_text(turtle(4, 4) + retired + 'skos:prefLabel "retired"@en .\n')
    rows = rows_of("http://x/l")
    data = write_lines(tmp_path / "rows.jsonl", rows)
    train = ("train", "label-tree", "--data", data, "--model", "m", "-p", "trees=1")
    assert command(*train)[0] == 0
    combine = ("combine", "--member", "m", "--vocabulary", names, "--language", "en")
    combine = (*combine, "--data", data, "--model", "c")
    status, _, err = command(*combine)
    assert status == 0 and f"({WITHOUT_CONCEPT})" in err
    assert "found 1 of 6 that are none, as 'http://x/l5'" in err, "a retired concept is one"
    assert findings_of(read_report(store.open("c", 1).arrays), WITHOUT_CONCEPT)
    status, _, err = command(*combine, "--strict")
    assert status == 2 and f"({WITHOUT_CONCEPT})" in err and store.versions("c") == (1,)
    texts, labels = [row["text"] for row in rows], [row["labels"] for row in rows]
    member = xylem.load(store.root, "m")
    combined = xylem.combine([member], names, texts, labels, language="en", progress=False)
    assert findings_of(combined.report, WITHOUT_CONCEPT)


def test_a_job_tells_of_labels_that_label_info_lacks(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.data / "names.csv").write_text("uri,label_en\nlabel0,zero\nlabel1,one\n")
    assert place.train().result["findings"] == []
    place.store.put_label_info("m", read_label_info(place.data / "names.csv"))
    (message,) = findings_of(place.train().result, WITHOUT_CONCEPT)
    assert "found 4 of 6 that are none, as 'label2', 'label3', 'label4'" in message
    combine = {"model": "both", "members": ["m@1"], "data": "valid.jsonl"}
    combined = place.do("combine", {**combine, "vocabulary": "names.csv", "language": "en"})
    assert findings_of(combined.result, WITHOUT_CONCEPT)


DEPRECATED = "<http://www.w3.org/2002/07/owl#deprecated>"
RETIRED = (
    "found 2 of 6 that are denied, deprecated or without a training row, as 'urn:l0', 'urn:l1'"
)


@pytest.mark.parametrize(
    "stream", [(), ("--stream", "-p", "solver=sgd")], ids=["in-memory", "stream"]
)
def test_figures_of_a_training_tell_of_deprecated_labels(
    tmp_path: Path, command: Command, stream: tuple[str, ...]
) -> None:
    data = write_lines(tmp_path / "rows.jsonl", rows_of("urn:l"))
    rows = write_lines(tmp_path / "valid.jsonl", rows_of("urn:l", 2))
    names = tmp_path / "names.ttl"
    names.write_text(turtle(6, 6, "urn:").replace("a skos", f"{DEPRECATED} true ; a skos", 2))
    train = ("train", "plt", "--data", data, "--model", "m", "-p", "trees=1", *stream)
    train = (*train, "--json", "--label-info", names)
    status, out, err = command(*train, "--valid", rows)
    assert status == 0 and f"({NEVER_ANSWERED})" in err
    (message,) = findings_of(json.loads(out.splitlines()[-1]), NEVER_ANSWERED)
    assert RETIRED in message
    status, _, err = command(*train)
    assert status == 0 and NEVER_ANSWERED not in err, "nothing was measured"
    status, _, err = command(*train, "--valid", rows, "--strict")
    assert status == 2 and err.endswith(f"({NEVER_ANSWERED})\n")
    model = xylem.load(tmp_path / "store", "m")
    report = model.evaluate(
        [row["text"] for row in rows_of("urn:l", 2)], [row["labels"] for row in rows_of("urn:l", 2)]
    )
    assert findings_of(report, NEVER_ANSWERED) == [message]


def test_a_vocabulary_job_tells_of_resources_without_a_type(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name, n_typed in (("half.ttl", 3), ("all.ttl", 6)):
        (place.data / name).write_text(turtle(6, n_typed, "urn:label"))
    write_lines(place.data / "rows.jsonl", rows_of("urn:labell"))
    place.train(data="rows.jsonl", valid="rows.jsonl")
    combine = {"model": "both", "members": ["m@1"], "data": "rows.jsonl", "language": "en"}
    place.do("combine", {**combine, "vocabulary": "all.ttl"})
    for name, n in (("half.ttl", 1), ("all.ttl", 0)):
        result = place.do("vocabulary", {"model": "both", "vocabulary": name}).result
        messages = findings_of(result, WITHOUT_TYPE)
        assert len(messages) == n and all("found 3 of 6" in message for message in messages)
        assert result["data"]["rows"] == 60, "the rest of the report is that of the rows"


def test_a_job_tells_of_deprecated_labels(tmp_path: Path) -> None:
    place = Place(tmp_path)
    write_lines(place.data / "rows.jsonl", rows_of("urn:l"))
    names = place.data / "names.ttl"
    names.write_text(turtle(6, 6, "urn:").replace("a skos", f"{DEPRECATED} true ; a skos", 2))
    request = {"data": "rows.jsonl", "valid": "rows.jsonl"}
    assert not findings_of(place.train(**request).result, NEVER_ANSWERED)
    place.store.put_label_info("m", read_label_info(names))
    (message,) = findings_of(place.train(**request).result, NEVER_ANSWERED)
    assert RETIRED in message


def test_a_recipe_tells_of_labels_that_its_vocabulary_lacks(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, 80)
    (tmp_path / "names.csv").write_text(table(5))
    store = Store(tmp_path / "store")
    request = LearnRequest(recipe, {name: Path(name) for name in recipe.files}, [], until=7.0)
    with opened_database(store.root, create=True) as database:
        learn_and_publish(store, "m", request, ThresholdDatabase(database))
    (message,) = findings_of(read_report(store.open("m", 1).arrays), WITHOUT_CONCEPT)
    assert "found 1 of 6 that are none, as 'l5'" in message
