"""Items of arrays and objects are counted as Python counts them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.features.json_items import items_of

texts = st.text('ab,[]{}"\\\n é', max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=30,
)


def counted(value: Any) -> tuple[int, int]:
    if not isinstance(value, list | dict):
        return 1, 0
    within = [counted(item) for item in (value.values() if isinstance(value, dict) else value)]
    return max([1, len(value), *(most for most, _ in within)]), 1 + sum(n for _, n in within)


@settings(deadline=None)
@given(values, st.booleans())
def test_as_python_counts(value: Any, is_ascii: bool) -> None:
    for separators in ((",", ":"), (" ,\n", " : ")):
        body = json.dumps(value, separators=separators, ensure_ascii=is_ascii).encode()
        assert items_of(body) == counted(value)


@pytest.mark.parametrize(
    ("body", "most", "n"),
    [
        (b"", 1, 0),
        (b"]}],,", 3, 0),
        (b'"[1,2,3', 1, 0),
        (b'"\\', 1, 0),
        (b"[" * 100_000 + b"1,1", 1, 1024),
        (b"[" * 1000 + b"1,1,1" + b"]" * 1000, 3, 1000),
        (b"[[1,2],[1,2,3],1]", 3, 3),
        (b"\xff,\xff", 2, 0),
    ],
)
def test_of_what_is_no_json_too(body: bytes, most: int, n: int) -> None:
    assert items_of(body) == (most, n)
