"""`Model.predict` with lists of labels: those of a predict request, in Python."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.combined_models import publish_combined

import xylem
from xylem.base.errors import BadInput, UnknownLabel
from xylem.python.model import Model
from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store

WORDS = ("car", "boat", "tree", "bird", "moss")
VEHICLES = {"under": "vehicles"}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of five labels; two are vehicles, and one of them has a name."""
    root = tmp_path_factory.mktemp("store")
    model = xylem.train([*WORDS] * 8, [[word] for word in WORDS] * 8, trees=1)
    model.save(root, "m")
    subjects = [Subject("top", None, {"en": "vehicles"})]
    subjects += [Subject(word, None, {"fi": "auto"}, ["top"]) for word in ("car", "boat")]
    subjects[2].names["fi"] = "vene"
    Store(root).put_label_info("m", build_label_info(subjects))
    return xylem.load(root, "m")


def labels_of(model: Model, **options: Any) -> set[str]:
    (row,) = model.predict(["car boat tree"], top_r=9, **options)
    return {label for label, _ in row}


def test_lists_are_labels_names_and_branches(loaded: Model) -> None:
    every = set(WORDS)
    assert labels_of(loaded) == labels_of(loaded, deny_labels=[]) == every
    assert labels_of(loaded, allow_labels=[]) == set()
    assert labels_of(loaded, allow_labels=["vene", "tree"]) == {"boat", "tree"}
    assert labels_of(loaded, allow_labels=[VEHICLES]) == {"car", "boat"}
    assert labels_of(loaded, allow_labels=(VEHICLES,), deny_labels=("auto",)) == {"boat"}
    assert labels_of(loaded, deny_labels=[{"under": "top"}]) == every - {"car", "boat"}
    chunks = labels_of(loaded, chunk_characters=500, allow_labels=[VEHICLES])
    assert chunks == {"car", "boat"}


def test_scores_are_those_without_lists(loaded: Model) -> None:
    (row,) = loaded.predict(["car boat tree"], top_r=9)
    (allowed,) = loaded.predict(["car boat tree"], top_r=9, allow_labels=[VEHICLES])
    assert allowed == [one for one in row if one.label in ("car", "boat")]


@pytest.mark.parametrize(
    ("lists", "error", "fault"),
    [
        (
            {"allow_labels": ["car", "vvne"]},
            UnknownLabel,
            r"allow_labels\[1\].*did you mean 'vene'",
        ),
        ({"deny_labels": [{"under": "ships"}]}, UnknownLabel, "expected a concept of the label"),
        ({"allow_labels": "car"}, BadInput, "allow_labels: expected a"),
        ({"allow_labels": VEHICLES}, BadInput, "allow_labels: expected an array, found an object"),
        ({"allow_labels": 3}, BadInput, "allow_labels: expected an array, found 3"),
        ({"deny_labels": ["car", 3]}, BadInput, r"deny_labels\[1\]: expected a string, found"),
        ({"deny_labels": [{"above": "car"}]}, BadInput, r"deny_labels\[0\]: expected a string"),
        ({"allow_label": ["car"]}, TypeError, "allow_label"),
        ({"beam_width": 3}, TypeError, "beam_width"),
    ],
)
def test_a_wrong_list_is_refused(
    loaded: Model, lists: dict[str, Any], error: type[Exception], fault: str
) -> None:
    with pytest.raises(error, match=fault):
        labels_of(loaded, **lists)


def test_a_trained_model_has_lists_of_its_labels() -> None:
    model = xylem.train([*WORDS] * 8, [[word] for word in WORDS] * 8, trees=1)
    assert labels_of(model, allow_labels=["car"]) == {"car"}
    with pytest.raises(UnknownLabel, match="found 'vehicles'"):
        labels_of(model, allow_labels=[VEHICLES])


def test_a_combined_model_has_lists_for_its_members(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    store = publish_combined(tmp_path)
    model = xylem.load(store.root, "both")
    text = ["apple tree river boat snow owl"]
    (row,) = model.predict(text, top_r=7, allow_labels=["l1", {"under": "salt mine"}])
    assert {label for label, _ in row} <= {"l1", "l6"}
    (denied,) = model.predict(text, top_r=7, deny_labels=["apple tree"])
    assert "l0" not in {label for label, _ in denied} and denied
