"""Limits on fields: what is counted, at which value it is too much, and what is said then."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from service.base.settings import Limits
from service.serving.schemas.limits import LIMIT, AtMost, longest, utf8_length


@pytest.mark.parametrize("text", ["", "abc", "é", "€uro", "𝄞", "a\0b", "e\u0301"])
def test_the_bytes_of_a_text_are_those_of_its_utf8(text: str) -> None:
    assert utf8_length(text) == len(text.encode("utf-8"))


def test_the_longest_of_no_names_has_no_bytes() -> None:
    assert longest([]) == 0
    assert longest(["aaa", "éé", ""]) == 4
    assert longest({"ab": 1}) == 2


@pytest.mark.parametrize(
    ("kind", "limit", "value", "found"),
    [
        (int, AtMost("top_r_max", "top_r"), 5, 5),
        (list[int], AtMost("features_max", "features"), [1, 2, 3], 3),
        (str, AtMost("text_bytes_max", "bytes of text", utf8_length), "éa", 3),
        (list[str], AtMost("name_bytes_max", "bytes of a name", longest), ["a", "éé"], 4),
    ],
)
def test_a_value_at_its_limit_and_beyond(kind: Any, limit: AtMost, value: Any, found: int) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[kind, limit])
    assert adapter.validate_python(value) == value  # no settings, no limits
    assert adapter.validate_python(value, context=Limits(**{limit.limit: found})) == value
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(value, context=Limits(**{limit.limit: found - 1}))
    (fault,) = caught.value.errors()
    assert fault["type"] == LIMIT
    assert fault["msg"] == f"expected at most {found - 1} {limit.what} (limit {limit.limit}), found {found}"
    assert str(value) not in fault["msg"] or kind is int


def test_a_value_of_another_type_is_not_measured() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[list[str], AtMost("features_max", "features", longest)])
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python([1], context=Limits())
    assert caught.value.errors()[0]["type"] == "string_type"
