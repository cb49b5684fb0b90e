"""`xylem combine` and `xylem models vocabulary`, on texts whose words name their labels."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.combined_models import NAMES, documents
from tests.helpers.datasets_helpers import write_lines
from tests.unit.cli.conftest import Cli

import xylem
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of six labels, of which l5 is in none to train on, and names of labels."""
    home = tmp_path_factory.mktemp("combine")
    write_lines(
        home / "train.jsonl", [row for row in documents(300, 1) if "l5" not in str(row["labels"])]
    )
    write_lines(home / "valid.jsonl", documents(120, 2))
    write_lines(home / "few.jsonl", documents(29, 3))
    for file, numbers in (("names.tsv", range(6)), ("others.tsv", range(1, 7))):
        (home / file).write_text("".join(f"<l{i}>\t{NAMES[i]}\n" for i in numbers))
    (home / "strange.tsv").write_text("<none>\tnobody\n")
    return home


@pytest.fixture(scope="module")
def facts(files: Path) -> dict[str, Any]:
    """What is told of `both`, made of two members and names."""
    store = Store(files / "store")
    for model, kind in (("words", "tfidf"), ("chars", "chars")):
        request = TrainRequest(
            trainer="label-tree", data=files / "train.jsonl", parameters=(f"features.kind={kind}",)
        )
        train_and_publish(store, model, request)
    members = [("words", "latest"), ("chars", 1)]
    wanted = CombineRequest(members, files / "valid.jsonl", files / "names.tsv")
    return combine_and_publish(store, "both", wanted)


@pytest.fixture
def store(files: Path, facts: dict[str, Any]) -> Path:
    return files / "store"


def ask(cli: Cli, model: str, text: str) -> dict[str, dict[str, Any]]:
    line = json.dumps({"text": text})
    (found,) = cli.lines("predict", model, "--data", "-", "--language", "und", input=line)
    return {one["label"]: one for one in found["labels"]}


def test_names_and_members_are_better_than_each_member(facts: dict[str, Any]) -> None:
    assert (facts["rows"], facts["labels"], facts["ranker"]) == (117, 6, "boosted")
    assert facts["members"].keys() == {"words@1", "chars@1"}
    for alone in facts["members"].values():
        assert facts["combined"]["F1@5"] > alone["F1@5"] + 2


def test_the_command_says_what_the_chosen_beam_is_worth(
    cli: Cli, files: Path, facts: dict[str, Any]
) -> None:
    # of six labels a beam of 3 misses as few as one of 1,000
    assert [beam["beam_width"] for beam in facts["beams"]] == [1000, 3]
    said = cli.says(
        "combine", "--member", "words", "--data", files / "valid.jsonl", "--model", "said"
    )
    assert "beam width" in said and "3 (1,000: F1@5" in said.replace("│", "")


def test_a_combined_version_is_shown_with_its_members(cli: Cli) -> None:
    shown = cli.answers("models", "show", "both@1")
    members = [(one["model"], one["trainer"]["name"]) for one in shown["members"]]
    assert members == [("words", "label-tree"), ("chars", "label-tree")]
    table = cli.says("models", "show", "both@1")
    (line,) = (line for line in table.splitlines() if line.startswith("│ members "))
    assert "words@1, chars@1" in line and "ArrayInfo" not in table


def test_a_concept_without_training_rows_is_answered_and_says_so(cli: Cli) -> None:
    found = ask(cli, "both", "a snow owl and a honey bee")
    assert set(list(found)[:2]) == {"l3", "l5"}
    assert found["l5"]["learned"] is False
    assert "learned" not in found["l3"]


def test_every_reader_of_a_text_explains_members_and_names(cli: Cli, tmp_path: Path) -> None:
    text = "a snow owl and a honey bee"
    (expected,) = xylem.load(cli.store, "both@1").explain(text, top_r=1)
    assert expected["explanation"]["names"][0]["words"] == ["honey", "bee"]
    assert expected["explanation"]["members"][0]["rank"] == 1
    rows = write_lines(tmp_path / "rows.jsonl", [{"text": text}, {"text": text, "id": 1}])
    predict = ("predict", "both@1", "--top-r", 1, "--explain")
    answers = cli.lines(*predict, text) + cli.lines(*predict, "--data", rows)
    cli.says(*predict, "--data", rows, "--out", tmp_path / "out")
    parts = (tmp_path / "out" / "part-000000.jsonl").read_text().splitlines()
    answers += map(json.loads, parts)
    assert [answer["labels"] for answer in answers] == [[expected]] * 5


def test_people_read_names_beside_labels(cli: Cli, tmp_path: Path) -> None:
    """The model's label info has them; without a language asked they are in its default."""
    assert "snow owl (l5)" in cli.says("predict", "both@1", "a snow owl")
    (tmp_path / "a.txt").write_text("a snow owl")
    cli.says("predict", "both@1", "--data", tmp_path)
    label, _, name = (tmp_path / "a.labels").read_text().splitlines()[0].split("\t")
    assert (label, name) == ("l5", "snow owl")
    (line,) = cli.lines("predict", "both@1", input='{"text": "a snow owl"}\n')
    assert "name" not in line["labels"][0]  # lines for programs are as they were


def test_another_vocabulary_needs_no_training(cli: Cli, files: Path) -> None:
    told = cli.answers("models", "vocabulary", "both@1", "--set", files / "others.tsv")
    assert (told["labels"], told["added"], told["removed"], told["parent"]) == (6, 1, 1, 1)
    found = ask(cli, f"both@{told['version']}", "an apple tree above a salt mine")
    assert "l0" not in found
    assert next(iter(found)) == "l6" and found["l6"]["learned"] is False
    before = ask(cli, "both@1", "an apple tree above a salt mine")
    assert next(iter(before)) == "l0" and "l6" not in before
    assert Store(cli.store).verify("both", told["version"]) is None


COMBINE = ("combine", "--model", "x", "--data")
MEMBER = (*COMBINE, "valid.jsonl", "--member")
SET, EXPLAIN = ("models", "vocabulary", "--set"), ("models", "explain", "both@1", "--label", "l1")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((*MEMBER, "none"), "expected a model, found none named 'none'"),
        ((*MEMBER, "both@1"), "expected a version of trees, found a combined one"),
        ((*COMBINE, "few.jsonl", "--member", "words"), "expected at least 30 labelled rows"),
        ((*MEMBER, "words", "--vocabulary", "train.jsonl"), "expected a file named *.tsv"),
        ((*MEMBER, "words", "--vocabulary", "strange.tsv"), "found none of their 5 labels"),
        ((*MEMBER, "words", "--ranker", "best"), "ranker: expected one of auto, boosted, linear"),
        ((*SET, "names.tsv", "words"), "expected a combined version with a vocabulary"),
        ((*SET, "strange.tsv", "both@1"), "expected concepts of both@1, found none"),
        (
            ("evaluate", "both@1", "--data", "valid.jsonl", "--trees", "1"),
            "found both@1, a combined one",
        ),
        (
            EXPLAIN,
            "both@1: expected a model whose labels have weights of features, found a combined one",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    cli: Cli, files: Path, arguments: tuple[str, ...], fault: str
) -> None:
    cli.refuses(fault, *(files / one if (files / one).is_file() else one for one in arguments))
