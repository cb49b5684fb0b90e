"""Long JSON: what it holds is counted as Python counts, and what is
read in pieces is what orjson reads.
"""

import json
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from xylem.serving.long_json import JsonSize, load_in_pieces, size_of

texts = st.text('ab,[]{}"\\\n é', max_size=6)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=30,
)


def counted(value: Any, *, is_outer: bool = True) -> JsonSize:
    if isinstance(value, str):
        return JsonSize(0, 0, 1, 0, len(value.encode()))
    if not isinstance(value, list | dict):
        return JsonSize(0, 0, 1, 0, 0)
    is_object = isinstance(value, dict)
    within = [counted(item, is_outer=False) for item in (value.values() if is_object else value)]
    within += [counted(name) for name in value] if is_object else []
    is_outer = is_outer and is_object
    return JsonSize(
        1 + sum(size.containers for size in within),
        1 + max((size.depth for size in within), default=0),
        max([1, 0 if is_outer else len(value), *(size.items for size in within)]),
        max(1, len(value)) if is_outer else 0,
        max([0, *(size.string_bytes for size in within)]),
    )


@given(values)
def test_as_python_counts(value: Any) -> None:
    size = counted(value)
    for separators in ((",", ":"), (" ,\n", " : ")):
        assert (
            size_of(json.dumps(value, separators=separators, ensure_ascii=False).encode()) == size
        )
        escaped = size_of(json.dumps(value, separators=separators).encode())
        assert escaped[:4] == size[:4]
        assert escaped.string_bytes <= size.string_bytes


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b"", (0, 0, 1, 0, 0)),
        (b"]}],,", (0, 0, 3, 0, 0)),
        (b'"[1,2,3', (0, 0, 1, 0, 6)),
        (b'"\\', (0, 0, 1, 0, 1)),
        (b'"\\u', (0, 0, 1, 0, 1)),
        (b'["\\u00e9\\"\\\\e",1]', (1, 1, 2, 0, 4)),
        (b"[" * 100_000 + b"1,1", (1024, 1024, 1, 0, 0)),
        (b"[" * 1000 + b"1,1,1" + b"]" * 1000, (1000, 1000, 3, 0, 0)),
        (b"[[1,2],[1,2,3],1]", (3, 2, 3, 0, 0)),
        (b'{"a":1,"b":[1,2,3],"c":{"d":1,"e":2}},1', (3, 2, 3, 3, 1)),
        (b"{", (1, 1, 1, 1, 0)),
        (b"\xff,\xff", (0, 0, 2, 0, 0)),
    ],
)
def test_of_what_is_no_json_too(body: bytes, size: tuple[int, ...]) -> None:
    assert size_of(body) == size


def read(load: Any, body: bytes) -> Any:
    try:
        return load(body)
    except orjson.JSONDecodeError:
        return "not JSON"


def large(value: Any, n: int) -> Any:
    """Return a value whose arrays and objects have some more items,
    which make their pieces of any length.
    """
    more = '\\]}"é,' * (n % 400)
    if isinstance(value, list):
        return [large(item, n + 97) for item in value] + [more] * (n % 7)
    if isinstance(value, dict):
        return {name: large(item, n + 61) for name, item in value.items()} | {f"{more}{n}": more}
    return value


@given(values, st.integers(0, 1000), st.booleans())
def test_what_is_read_in_pieces_is_what_is_read_at_once(value: Any, n: int, is_ascii: bool) -> None:
    values = [large(value, n)] * (n % 9)
    for separators in ((",", ":"), (" ,\n", " : ")):
        body = json.dumps(values, separators=separators, ensure_ascii=is_ascii).encode()
        for piece_bytes in (1, 16, 1000):
            assert load_in_pieces(body, piece_bytes) == orjson.loads(body)


_ROWS = json.dumps(
    {"a": 1, "rows": [{"features": {f"f{i}": 0.5 for i in range(4000)}}, [1.5] * 9000] * 2}
)


@settings(max_examples=300)
@given(st.integers(0, len(_ROWS)), st.integers(0, 2), st.text('[]{},:" \\1\x00é', max_size=2))
def test_what_is_no_json_is_refused_as_orjson_refuses_it(at: int, n_cut: int, more: str) -> None:
    body = (_ROWS[:at] + more + _ROWS[at + n_cut :]).encode()
    assert read(partial(load_in_pieces, piece_bytes=200), body) == read(orjson.loads, body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * 40_000 + b"]",
        b"[" + b"1," * 40_000 + b" \n ]",
        b"[" + b"1," * 40_000 + b"1}",
        b"[" + b"1," * 40_000 + b"1]]",
        b"[" + b"1," * 40_000 + b"1] 1",
        b"{" + b'"a":1,' * 40_000 + b'"b":1]',
        b'{"a" ' + b'"b":' * 10_000 + b"1}",
        b'{"a":[' + b"1," * 40_000 + b'1]:1,"b":2}',
        b'{"a" "b":[' + b"1," * 40_000 + b"1]}",
        b'{x"a":[' + b"1," * 40_000 + b"1]}",
        b"x[" + b"1," * 40_000 + b"1]",
        b"[" + b"1," * 40_000,
        b'["' + b"a" * 80_000,
        b"[" + b"1," * 40_000 + b'"\\',
        b" " * 80_000,
        b"\x00" * 80_000,
        b"[1]" + b" " * 80_000 + b"x",
    ],
)
def test_faults_in_long_json(body: bytes) -> None:
    assert read(orjson.loads, body) == "not JSON"
    assert read(load_in_pieces, body) == "not JSON"


@pytest.mark.parametrize(
    "body",
    [
        b" \n" * 40_000 + b"[1]",
        b"[1]" + b" \n" * 40_000,
        b" [" + b"1," * 40_000 + b"1]\n",
        b'\t{ "a\\u0062" : [' + b"1," * 40_000 + b'1] , "ab":2}\n',
        b'{"a":1,"b":[' + b"1," * 40_000 + b'1],"a":2}',
        b'"' + b"a" * 80_000 + b'"',
        b'{"' + b"a" * 80_000 + b'":1}',
        b"[" + b" " * 80_000 + b"]",
    ],
)
def test_long_json_that_is_right(body: bytes) -> None:
    assert load_in_pieces(body) == orjson.loads(body)
