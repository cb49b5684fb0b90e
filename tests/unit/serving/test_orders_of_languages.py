"""Names of labels in an order of languages."""

from typing import Any

import pytest

from xylem.base.errors import BadRequest
from xylem.serving.label_info import PATH_MAX, LabelFacts, LiveLabelInfo
from xylem_store.label_info import Subject, build_label_info
from xylem_store.names import build_names

COLOURS = [
    Subject("a", None, {"fi": "sininen", "sv": "blå", "en": "blue"}),
    Subject("b", None, {"sv": "röd", "en": "red"}),
    Subject("c", None, {"de": "grün", "und": "viridis"}),
    Subject("d", None, {}),
]


def facts_of(subjects: list[Subject], language: str | None = None) -> LabelFacts:
    live = LiveLabelInfo("m", build_names([subject.uri for subject in subjects]))
    live.follow(build_label_info(subjects, language=language))
    assert live.current is not None
    return live.current


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("fi", ["sininen", "röd", "viridis", None]),
        ("fi,*", ["sininen", "röd", "viridis", None]),
        ("EN, fi", ["blue", "red", None, None]),
        ("sv,de", ["blå", "röd", "grün", None]),
        ("no,de,*,fi", ["blå", "röd", "grün", None]),
        ("*", ["blå", "röd", "viridis", None]),
        (None, ["blå", "röd", "viridis", None]),
    ],
)
def test_the_first_language_that_has_a_name_counts(
    order: str | None, names: list[str | None]
) -> None:
    facts = facts_of(COLOURS, language="sv")
    languages = facts.languages_in(order)
    assert [facts.name(label, languages) for label in range(4)] == names
    assert len(set(languages)) == len(languages) <= 5


@pytest.mark.parametrize("order", ["no", "no,da", "", "fi,,sv", "fi sv", "fi,**", "zh_tw"])
def test_an_order_without_a_language_is_refused(order: str) -> None:
    with pytest.raises(BadRequest, match=r"a language of the label info \(fi, sv, en, de, und\)"):
        facts_of(COLOURS).languages_in(order, BadRequest)


def test_the_path_of_broader_concepts_ends() -> None:
    chain = [Subject(f"{i}", None, {"en": f"name {i}"}, [f"{i + 1}"]) for i in range(50)]
    facts = facts_of(
        [*chain, Subject("50", None, {"fi": "loppu"}), Subject("own", None, {}, ["own"])]
    )

    def path(label: int, languages: tuple[str, ...] | None = None) -> list[tuple[Any, Any]]:
        return [(one["uri"], one["name"]) for one in facts.broader_path(label, languages)]

    assert path(48) == [("50", "loppu"), ("49", "name 49")]
    assert path(48, ("en",)) == [("50", None), ("49", "name 49")]
    assert [uri for uri, _ in path(0)] == [f"{i}" for i in range(PATH_MAX, 0, -1)]
    assert path(50) == path(51) == []
    circle = facts_of([Subject(f"{i}", None, {}, [f"{(i + 1) % 3}"]) for i in range(3)])
    assert [one["uri"] for one in circle.broader_path(1, None)] == ["0", "2"]


def test_subjects_without_names_have_no_language() -> None:
    facts = facts_of([Subject("d", "1", {})])
    assert facts.languages_in(None) == facts.languages_in("*") == ()
