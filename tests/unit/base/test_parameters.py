"""What is declared once of a parameter is what every way to give it goes by."""

from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import Field, ValidationError, model_validator

from xylem.base.errors import BadParameter
from xylem.base.faults import TEXT_CHARACTERS_MAX, fault, shortened, what_is
from xylem.base.parameters import FAULTS_MAX, Parameters, expected_of


class Sample(Parameters):
    name_prefix = "sample."

    size: Annotated[int, Field(ge=1, le=9, description="how many")] = 3
    rate: Annotated[float, Field(ge=0, le=1e6, description="how fast")] = 0.5
    least: Annotated[int, Field(ge=2)] = 2
    most: Annotated[float, Field(le=7.5)] = 1.0
    above: Annotated[float, Field(gt=0)] = 1.0
    between: Annotated[float, Field(ge=0, lt=1)] = 0.0
    even: Annotated[int, Field(multiple_of=2)] = 2
    name: str = "x"
    kind: Literal["plain", "wide"] = "plain"
    fast: bool = False
    room: Annotated[int, Field(ge=1, le=5)] | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.kind == "wide" and self.size > 5:
            raise fault("expected at most 5 with kind=wide", "size")
        return self


def faults_of(**values: Any) -> list[tuple[str, str]]:
    with pytest.raises(BadParameter) as caught:
        Sample.from_json(values)
    return [tuple(told) for told in caught.value.faults]


def test_the_schema_in_words() -> None:
    assert {name: expected_of(Sample, name) for name in Sample.model_fields} == {
        "size": "an integer from 1 to 9",
        "rate": "a number from 0 to 1e+06",
        "least": "an integer of at least 2",
        "most": "a number of at most 7.5",
        "above": "a number of more than 0",
        "between": "a number of at least 0 and less than 1",
        "even": None,
        "name": "a string",
        "kind": "one of plain, wide",
        "fast": "true or false",
        "room": "null or an integer from 1 to 5",
    }


@pytest.mark.parametrize(
    "size", [0, 10, 2.0, True, "3", None, [1], {"a": 1}, 10**400, float("nan")]
)
def test_a_command_line_and_json_are_refused_in_the_same_words(size: Any) -> None:
    ((name, message),) = faults_of(size=size)
    assert name == "sample.size" and message.startswith("expected an integer from 1 to 9, found ")
    assert len(message) < 10_000
    if type(size) in (int, float):
        with pytest.raises(BadParameter) as caught:
            Sample.parse([f"size={size}"])
        assert caught.value.faults == ((name, message),)


def test_all_faults_are_told_at_once() -> None:
    assert faults_of(size=0, rate=float("inf"), fats=True, kind="high", room=0, above=0) == [
        ("sample.size", "expected an integer from 1 to 9, found 0"),
        ("sample.rate", "expected a number from 0 to 1e+06, found inf"),
        ("sample.above", "expected a number of more than 0, found 0"),
        ("sample.kind", 'expected one of plain, wide, found "high"'),
        ("sample.room", "expected null or an integer from 1 to 5, found 0"),
        (
            "sample.fats",
            "expected only size, rate, least, most, above, between, even, name, kind, fast, "
            "room, found "
            "another parameter; did you mean fast?",
        ),
    ]


def test_values_that_are_right_alone_may_not_fit_together() -> None:
    assert Sample(size=5, kind="wide").size == 5
    assert faults_of(size=6, kind="wide") == [("sample.size", "expected at most 5 with kind=wide")]


def test_items_that_are_no_pairs_and_keys_given_twice() -> None:
    with pytest.raises(BadParameter) as caught:
        Sample.parse(["size", "rate=1", "rate=2"])
    assert [told.name for told in caught.value.faults] == ["", "rate"]
    assert str(caught.value) == "expected key=value, found 'size'; rate: expected once, found twice"


def test_a_text_that_looks_like_a_number_is_a_text() -> None:
    expected = Sample(name="5", size=5, fast=True, room=None, rate=1.0)
    assert Sample.parse(["name=5", "size=5", "fast=true", "room=null", "rate=1"]) == expected
    assert Sample.parse(["name=a=b"]).name == "a=b"
    assert faults_of(name=5) == [("sample.name", "expected a string, found 5")]


def test_only_an_object_has_parameters_and_they_never_change() -> None:
    for value in (None, [], "x", 1):
        with pytest.raises(BadParameter, match="expected an object, found"):
            Sample.from_json(value)
    with pytest.raises(ValidationError):
        Sample().size = 4  # type: ignore[misc]
    assert hash(Sample()) == hash(Sample(size=3))


def test_no_more_is_told_than_anyone_reads() -> None:
    told = faults_of(**{f"size{i}": 1 for i in range(FAULTS_MAX)}, size=0)
    assert (len(told), told[0][0]) == (FAULTS_MAX, "sample.size")
    ((name, message),) = faults_of(**{"k" * 5000: 1})
    assert len(name) < 100 and len(message) < 300
    ((_, message),) = faults_of(size="9" * 5000)
    assert len(message) < 200


def test_a_json_value_is_shown_but_not_at_length() -> None:
    for value, words in (
        *((None, "null"), (True, "true"), (False, "false"), ("", '""'), ("null", '"null"')),
        *((0, "0"), (1, "1"), (1.0, "1.0"), (float("nan"), "nan")),
        *(([], "an array of 0"), ([[1]] * 3, "an array of 3"), ({"a": {}}, "an object of 1")),
    ):
        assert what_is(value) == words
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert what_is(deep) == "an array of 1"
    for value in ("x" * 10**6, ["x" * 10**6], {"x" * 10**6: "x" * 10**6}):
        assert len(what_is(value)) < TEXT_CHARACTERS_MAX + 10
    assert shortened("é" * TEXT_CHARACTERS_MAX) == "é" * TEXT_CHARACTERS_MAX
    assert shortened("é" * (TEXT_CHARACTERS_MAX + 1)) == "é" * TEXT_CHARACTERS_MAX + "…"
