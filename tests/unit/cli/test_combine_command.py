"""`xylem combine` and `xylem models vocabulary`, on texts whose words name their labels."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from service.workflows.combine import CombineRequest, combine_and_publish
from service.workflows.train import TrainRequest, train_and_publish
from tests.conftest import Run

NAMES = ["apple tree", "river boat", "steam engine", "honey bee", "paper mill", "snow owl", "salt mine"]
WORDS = ["old", "new", "small", "tall", "quiet", "loud", "early", "late", "green", "brown", "near", "far"]


def rows(n: int, seed: int, labels: int) -> str:
    """Return rows of texts that have the names of their labels, among other words."""
    draw = random.Random(seed)
    lines = []
    for _ in range(n):
        true = draw.sample(range(labels), 2)
        words = [word for label in true for word in NAMES[label].split()] + draw.sample(WORDS, 6)
        row = {"text": " ".join(words), "labels": [f"http://example.org/{label}" for label in true]}
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"


def vocabulary(names: list[str], first: int = 0) -> str:
    return "".join(f"<http://example.org/{first + i}>\t{name}\n" for i, name in enumerate(names))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("combine")
    (home / "train.jsonl").write_text(rows(200, 1, labels=5))  # two labels are never true there
    (home / "valid.jsonl").write_text(rows(120, 2, labels=6))
    (home / "few.jsonl").write_text(rows(29, 3, labels=6))
    (home / "names.tsv").write_text(vocabulary(NAMES[:6]))
    (home / "others.tsv").write_text(vocabulary(NAMES[1:], first=1))
    (home / "strange.tsv").write_text("<http://example.org/none>\tnobody\n")
    return home


@pytest.fixture(scope="module")
def combined(files: Path) -> tuple[Path, dict[str, Any]]:
    store = Store(files / "store")
    for model, kind in (("words", "tfidf"), ("chars", "chars")):
        parameters = (f"features.kind={kind}",)
        train_and_publish(
            store, model, TrainRequest("label-tree", files / "train.jsonl", parameters=parameters)
        )
    members = [("words", "latest"), ("chars", 1)]
    wanted = CombineRequest(members, files / "valid.jsonl", files / "names.tsv")
    return store.root, combine_and_publish(store, "both", wanted)


def ask(run_here: Run, store: Path, model: str, text: str) -> dict[str, dict[str, Any]]:
    done = run_here(
        "predict", model, "--data", "-", "--language", "und", store=store, input=json.dumps({"text": text})
    )
    assert done.returncode == 0, done.stderr
    return {one["label"]: one for one in json.loads(done.stdout)["labels"]}


def test_names_and_members_are_better_than_each_member(combined: tuple[Path, dict[str, Any]]) -> None:
    _, facts = combined
    assert facts["rows"] == 120 and facts["labels"] == 6 and facts["ranker"] == "boosted"
    assert facts["members"].keys() == {"words@1", "chars@1"}
    for alone in facts["members"].values():
        assert facts["combined"]["F1@5"] > alone["F1@5"] + 2


def test_a_combined_version_is_shown_with_its_members(
    combined: tuple[Path, dict[str, Any]], run_here: Run
) -> None:
    shown = json.loads(run_here("models", "show", "both@1", "--json", store=combined[0]).stdout)
    assert [(one["model"], one["trainer"]["name"]) for one in shown["members"]] == [
        ("words", "label-tree"),
        ("chars", "label-tree"),
    ]
    table = run_here("models", "show", "both@1", store=combined[0]).stdout
    (line,) = (line for line in table.splitlines() if line.startswith("│ members "))
    assert "words@1, chars@1" in line and "ArrayInfo" not in table


@pytest.mark.parametrize("command", [("evaluate", "--trees", 1), ("models", "explain", "--label", "x")])
def test_what_only_trees_have_is_refused_of_a_combined_version(
    combined: tuple[Path, dict[str, Any]], files: Path, run_here: Run, command: tuple[Any, ...]
) -> None:
    data = ("--data", files / "valid.jsonl") if command[0] == "evaluate" else ()
    done = run_here(*command, "both", *data, store=combined[0])
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "both@1" in done.stderr and "a combined one" in done.stderr


def test_a_concept_without_training_rows_is_answered_and_says_so(
    combined: tuple[Path, dict[str, Any]], run_here: Run
) -> None:
    store, _ = combined
    found = ask(run_here, store, "both", "a snow owl and a honey bee")
    assert list(found)[:2] == ["http://example.org/3", "http://example.org/5"] or set(list(found)[:2]) == {
        "http://example.org/3",
        "http://example.org/5",
    }
    assert found["http://example.org/5"]["learned"] is False
    assert "learned" not in found["http://example.org/3"]


def test_another_vocabulary_needs_no_training(
    combined: tuple[Path, dict[str, Any]], files: Path, run_here: Run
) -> None:
    store, _ = combined
    done = run_here("models", "vocabulary", "both@1", "--set", files / "others.tsv", "--json", store=store)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["labels"], told["added"], told["removed"], told["parent"]) == (6, 1, 1, 1)
    found = ask(run_here, store, f"both@{told['version']}", "an apple tree above a salt mine")
    assert "http://example.org/0" not in found
    assert next(iter(found)) == "http://example.org/6" and found["http://example.org/6"]["learned"] is False
    before = ask(run_here, store, "both@1", "an apple tree above a salt mine")
    assert next(iter(before)) == "http://example.org/0" and "http://example.org/6" not in before
    assert Store(store).verify("both", told["version"]) is None


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--member", "none"), "expected a model, found none named 'none'"),
        (("--member", "both@1"), "expected a version of trees, found a combined one"),
        (("--member", "words", "--data", "few.jsonl"), "expected at least 30 labelled rows"),
        (("--member", "words", "--vocabulary", "train.jsonl"), "expected a file named *.tsv"),
        (("--member", "words", "--vocabulary", "strange.tsv"), "found none of their 5 labels"),
        (("--member", "words", "--ranker", "best"), "ranker: expected one of auto, boosted, linear"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    combined: tuple[Path, dict[str, Any]], files: Path, run_here: Run, arguments: tuple[str, ...], fault: str
) -> None:
    store, _ = combined
    said = ("--data", "valid.jsonl", *arguments) if "--data" not in arguments else arguments
    full = [files / one if "." in one and "@" not in one else one for one in said]
    done = run_here("combine", *full, "--model", "x", store=store)
    assert done.returncode == 2 and fault in done.stderr


@pytest.mark.parametrize(
    ("model", "file", "fault"),
    [
        ("words", "names.tsv", "expected a combined version with a vocabulary"),
        ("both@1", "strange.tsv", "expected concepts of both@1, found none"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    combined: tuple[Path, dict[str, Any]], files: Path, run_here: Run, model: str, file: str, fault: str
) -> None:
    store, _ = combined
    done = run_here("models", "vocabulary", model, "--set", files / file, store=store)
    assert done.returncode == 2 and fault in done.stderr
