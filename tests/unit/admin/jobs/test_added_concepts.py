"""Concepts that are added to a vocabulary by the command: what is refused, what is published."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Command, answer
from tests.helpers.recipes import recipe_in

from xylem.admin.jobs import model_learning
from xylem.admin.jobs.model_learning import ModelLearning
from xylem.base.db.of_store import opened_database
from xylem.base.db.tables import CONCEPTS
from xylem.base.errors import BadRequest, LimitExceeded
from xylem.base.settings import read_settings
from xylem.workflows.learning_rows import read_learning_rows
from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store

INFO = build_label_info(
    [Subject(f"l{i}", None, {"en": f"name {i}", "fi": f"nimi {i}"}) for i in range(3)]
)
NAMES = {"en": ["a new thing"]}


@pytest.fixture
def learning(versions_of_m: Store) -> Any:
    """How `m` learns, which has a vocabulary and a recipe; a new concept publishes nothing."""
    versions_of_m.put_label_info("m", INFO)
    with opened_database(versions_of_m.root, create=True) as database:
        of_store = ModelLearning.of_store(
            versions_of_m, database, read_settings(store=versions_of_m.root)
        )
        recipe = {"vocabulary": "v.csv", "language": "en", "sources": [{"file": "d.jsonl"}]}
        of_store.schedules.set_recipe("m", recipe)
        yield of_store._replace(publish=lambda model, recipe: None)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"key": "l1"}, "key: expected a key that the vocabulary does not have, found 'l1'"),
        ({"key": " "}, "key: expected a text, found an empty one"),
        ({"key": "a\0b"}, "names: name 0: expected"),
        ({"names": {}}, "names: expected a name in en, found none"),
        ({"names": {"fi": ["uusi"]}}, "names: expected a name in en, found fi"),
        ({"names": {"EN": ["new"]}}, "names: expected a language, as en or pt-br, found 'EN'"),
        ({"names": {"en": []}}, "names.en: expected a text, found an empty one"),
        ({"names": {"en": ["new", "\t"]}}, "names.en: expected a text, found an empty one"),
        ({"names": {"en": ["x" * 5000]}}, "names: name 0: expected at most 4096 bytes"),
        ({"broader": ["l0", "nothing"]}, "broader[1]: expected a concept of the vocabulary"),
        ({"examples": [""]}, "examples: expected a text, found an empty one"),
    ],
)
def test_a_concept_with_a_fault_is_refused(
    learning: ModelLearning, fields: dict[str, Any], fault: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        learning.add_concept("m", **{"key": "new", "names": NAMES, **fields})
    assert f"{refused.value.path}: {refused.value}".startswith(fault)
    assert learning.concepts("m") == []


def test_concepts_are_few_and_short(
    learning: ModelLearning, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LimitExceeded, match="expected at most 1000 concepts of at most 65536"):
        learning.add_concept("m", "new", NAMES, examples=["x" * 70_000])
    monkeypatch.setattr(model_learning, "CONCEPTS_MAX", 1)
    learning.add_concept("m", "new", NAMES)
    with pytest.raises(LimitExceeded, match="expected at most 1 concepts"):
        learning.add_concept("m", "newer", NAMES, ["new"])


def test_keys_are_names_or_notations_as_the_recipe_has_it(learning: ModelLearning) -> None:
    recipe = learning.schedules.recipe("m")["recipe"]
    learning.schedules.set_recipe("m", {**recipe, "key_kind": "en"})
    with pytest.raises(BadRequest, match="expected the first name in en, because labels are"):
        learning.add_concept("m", "new", NAMES)
    learning.add_concept("m", "a new thing", NAMES)
    (subject,) = learning.additions("m")["concepts"]
    assert (subject.names, subject.notation) == ({"en": "a new thing"}, None)
    learning.schedules.set_recipe("m", {**recipe, "key_kind": "notation"})
    (subject,) = learning.additions("m")["concepts"]
    assert subject.notation == "a new thing"


def test_a_failed_publication_leaves_what_there_was(learning: ModelLearning) -> None:
    def fail(*_: Any) -> None:
        raise BadRequest("no room")

    failing = learning._replace(publish=fail)
    with pytest.raises(BadRequest, match="no room"):
        failing.add_concept("m", "new", NAMES)
    assert learning.concepts("m") == []
    learning.add_concept("m", "new", NAMES, ["l0"], ["a text"])
    (stored,) = learning.concepts("m")
    with pytest.raises(BadRequest, match="no room"):
        failing.remove_concept("m", "new")
    assert learning.concepts("m") == [stored] and stored["version"] is None


def test_examples_add_a_label_to_their_texts(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    text = json.loads((tmp_path / "documents.jsonl").read_text().splitlines()[0])["text"]
    files = {name: Path(name) for name in recipe.files}
    examples = [(text.upper(), "new"), (text, "newer"), ("another text", "new")]
    rows = read_learning_rows(recipe, files, [], lambda *_: None, examples)
    documents = {row.text: row.labels for row in (*rows.documents, *rows.judges)}
    assert documents[text][-2:] == ["new", "newer"] and len(documents[text]) > 2
    assert documents["another text"] == ["new"] and rows.sources[-1]["rows"] == 3


def test_the_command_adds_lists_and_removes(tmp_path: Path, command: Command) -> None:
    store = Store(tmp_path / "store")
    file = tmp_path / "recipe.toml"
    file.write_text(recipe_in(tmp_path).as_toml)
    answer(command("learn", "m", "--recipe", file, "--store", store.root, "--json"))
    concepts = ("models", "concepts", "m", "--store", store.root)
    options = ("--name", "en=zeppelin", "--name", "en=airship", "--broader", "l0", "--example", "x")
    status, _, complaint = command(*concepts, *options)
    assert status == 2 and "expected --add with its options, or --remove" in complaint
    (concept,) = answer(command(*concepts, "--add", "new", *options, "--json"))["concepts"]
    assert (concept["names"], concept["version"]) == ({"en": ["zeppelin", "airship"]}, 2)
    status, printed, _ = command(*concepts)
    assert status == 0 and "zeppelin, airship" in printed
    vocabulary = ("models", "vocabulary", "m", "--set", tmp_path / "names.csv")
    answer(command(*vocabulary, "--store", store.root, "--json"))
    (concept,) = answer(command(*concepts, "--json"))["concepts"]
    assert concept["version"] == 2 and store.versions("m") == (1, 2, 3)
    status, printed, _ = command(*concepts, "--remove", "new")
    assert (status, printed.strip()) == (0, "No concepts were added to m")
    status, _, complaint = command(*concepts, "--remove", "new")
    assert status == 2 and "expected the key of a concept that was added to m" in complaint
    assert store.versions("m") == (1, 2, 3, 4)


def test_a_deleted_model_has_no_concepts(learning: ModelLearning, command: Command) -> None:
    learning.add_concept("m", "new", NAMES)
    answer(command("models", "delete", "m", "--all", "--store", learning.store.root, "--json"))
    with learning.database.read() as connection:
        assert connection.execute(CONCEPTS.select()).all() == []
