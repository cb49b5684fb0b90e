"""Words for values: short whatever the value is, and never another value's."""

from __future__ import annotations

from typing import Any

import pytest

from service.base.faults import SHOWN, shortened, what_is


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (1, "1"),
        (1.0, "1.0"),
        (float("nan"), "nan"),
        ("", '""'),
        ("null", '"null"'),
        ([], "an array of 0"),
        ([[1]] * 3, "an array of 3"),
        ({"a": {}}, "an object of 1"),
    ],
)
def test_each_json_value(value: Any, words: str) -> None:
    assert what_is(value) == words


def test_no_value_is_shown_at_length() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert what_is(deep) == "an array of 1"
    for value in ("x" * 10**6, ["x" * 10**6], {"x" * 10**6: "x" * 10**6}):
        assert len(what_is(value)) < SHOWN + 10


def test_a_text_is_cut_after_the_last_character_that_is_shown() -> None:
    assert shortened("é" * SHOWN) == "é" * SHOWN
    assert shortened("é" * (SHOWN + 1)) == "é" * SHOWN + "…"
