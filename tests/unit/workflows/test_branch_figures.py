"""Figures of branches, and labels that are nearly right."""

from pathlib import Path

import numpy as np
import pytest
from tests.helpers.colour_texts import write
from tests.helpers.measured import evaluate

from xylem.base.errors import BadParameter, UnknownLabel
from xylem.base.rows import LabelRows
from xylem.evaluation.ranking import PredictedRows
from xylem.workflows.branch_figures import TOP_CONCEPTS_MAX, branch_groups, near_misses
from xylem_store.label_info import Subject, build_label_info
from xylem_store.names import build_names
from xylem_store.version import Model

LABELS = ["animal", "dog", "cat", "puppy", "oak", "plain"]
TREE = build_label_info(
    [
        Subject("animal", None, {"en": "animals"}),
        Subject("dog", None, {}, ["animal"]),
        Subject("cat", None, {}, ["animal"]),
        Subject("puppy", None, {}, ["dog"]),
        Subject("plant", None, {"en": "plants"}),
        Subject("oak", None, {}, ["plant"]),
        Subject("empty", None, {}),
        Subject("of no label", None, {}, ["empty"]),
    ]
)


def rows_of(rows: list[list[str]]) -> PredictedRows:
    labels = np.array([LABELS.index(label) for row in rows for label in row], np.int32)
    return PredictedRows(np.cumsum([0, *map(len, rows)]), labels)


@pytest.mark.parametrize(
    ("predicted", "true", "kind"),
    [
        ("animal", ["dog"], "broader"),
        ("animal", ["puppy"], None),  # two steps
        ("puppy", ["dog"], "narrower"),
        ("cat", ["dog"], "sibling"),
        ("dog", ["animal", "puppy", "cat"], "broader"),
        ("dog", ["dog", "puppy"], None),  # it is true
        ("oak", ["dog"], None),
        ("plain", ["dog"], None),
        ("dog", ["plain"], None),
        ("dog", [], None),
    ],
)
def test_a_label_that_is_not_true_may_be_near(
    predicted: str, true: list[str], kind: str | None
) -> None:
    truth = LabelRows(*rows_of([sorted(true, key=LABELS.index), ["oak"]]), len(LABELS))
    ranked = rows_of([["oak", predicted], ["oak"]])
    figures = near_misses(ranked, truth, build_names(LABELS), TREE)
    expected = dict.fromkeys(figures, 0.0)
    if kind is not None:  # at the second place of one of two rows
        expected |= {f"{kind}@3": 100 / 6, f"{kind}@5": 100 / 10}
    assert figures == pytest.approx(expected) and len(figures) == 9


def test_branches_have_a_name_and_their_labels() -> None:
    table = build_names(LABELS)

    def members(*concepts: str) -> list[tuple[str, list[str]]]:
        groups = branch_groups(table, TREE, concepts)
        return [(name, [LABELS[i] for i in np.flatnonzero(mask)]) for name, mask in groups]

    animals = ["animal", "dog", "cat", "puppy"]
    assert members("*") == [("animals", animals), ("plants", ["oak"])]
    assert members("dog", "plants", "*") == [
        ("dog", ["dog", "puppy"]),
        ("plants", ["oak"]),
        ("animals", animals),
        ("plants", ["oak"]),
    ]
    assert members("empty") == members() == []
    with pytest.raises(UnknownLabel, match="a concept of the label info, found 'dgo'"):
        members("dgo")


def test_of_many_top_concepts_the_largest_count() -> None:
    subjects = [
        Subject(f"{i}.{j}" if j else f"{i}", None, {}, [f"{i}"] if j else [])
        for i in range(TOP_CONCEPTS_MAX + 9)
        for j in range(3 if i >= 9 else 2)
    ]
    table = build_names(subject.uri for subject in subjects)
    groups = branch_groups(table, build_label_info(subjects), ["*"])
    assert [name for name, _ in groups] == [f"{i}" for i in range(9, TOP_CONCEPTS_MAX + 9)]


def test_an_evaluation_has_figures_of_branches(model: Model, tmp_path: Path) -> None:
    """The version knows red, green and blue; a text with one of them has this label first."""
    file = write(tmp_path / "rows.jsonl", [("red", ["red"]), ("red", ["green"]), ("blue", ["red"])])
    warm = [Subject(name, None, {}, ["warm"]) for name in ("red", "green")]
    info = build_label_info(
        [Subject("warm", None, {"en": "warm"}), *warm, Subject("blue", None, {})]
    )
    report = evaluate(model, file, info=info, concepts=["*", "blue"])
    assert report["sibling@1"] == pytest.approx(100 / 3) and report["broader@1"] == 0
    second, first = report["branches"]
    assert (first["branch"], first["labels"], first["support"]) == ("warm", 2, 3)
    assert (first["P@1"], first["R@5"]) == (50, 100)
    assert (second["branch"], second["support"], second["P@1"], second["R@5"]) == (
        "blue",
        0,
        0,
        None,
    )
    plain = evaluate(model, file)
    assert plain["branches"] == [] and "sibling@1" not in plain
    with pytest.raises(BadParameter, match="under: expected a model with label info"):
        evaluate(model, file, concepts=["blue"])
