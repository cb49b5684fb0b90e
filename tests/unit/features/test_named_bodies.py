"""Whatever the kernel takes for a body of named features is what the general way makes of it, to the bit."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import BadInput
from service.features import Featurizer, load_featurizer, parameters_of
from service.features.hashing import HashingFeaturizer
from service.features.named import fit_named
from service.features.parameters import HashingParameters, NamedParameters
from service.features.sparse_request import BodyForms, SparseBodies
from service.serving.parse import parse_predict
from service.serving.rows import to_rows
from service.serving.schemas.predict import Options
from service.settings import Limits

NAME_BYTES_MAX = 12
ROWS_MAX, FEATURES_MAX = 3, 10
FORMS = BodyForms(ROWS_MAX, FEATURES_MAX, 0, 0, NAME_BYTES_MAX, Options().top_r, Options().beam_width)
LIMITS = Limits(name_bytes_max=NAME_BYTES_MAX)
NAMES = ["a", "b", "colour=red", "Größe", "語", "😀", 'q"\\', "tab\u00e9", "x" * NAME_BYTES_MAX]
KINDS = ["named", "hashing", "few hashes"]


@cache
def featurizer_of(kind: str) -> Featurizer:
    if kind == "named":
        return fit_named([dict.fromkeys(NAMES, 1.0)], NamedParameters(norm="l2"))[0]
    config = {"kind": "hashing", "n_features": 256 if kind == "few hashes" else 1 << 14}
    parameters = parameters_of(config)
    assert isinstance(parameters, HashingParameters)
    return HashingFeaturizer(parameters)


def is_the_same(body: bytes, kind: str, before: bytes = b"before") -> bool:
    """Compare the two; return whether the kernel took the body."""
    featurizer = featurizer_of(kind)
    bodies = SparseBodies(FORMS, featurizer)
    bodies.read(b'{"instances":[{"features":{"a":1,"b":3}}],"top_r":9}', 0)  # leaves nothing behind
    found = bodies.read_rows(before + body, len(before))
    if found is None:
        return False
    try:
        query = parse_predict(body, LIMITS)
    except BadInput as error:
        raise AssertionError(f"{body!r} was taken") from error
    rows, asked, _ = found
    assert (asked.top_r, asked.beam_width) == (query.top_r, query.beam_width)
    for mine, theirs in zip(rows[:3], to_rows(query.instances, featurizer)[:3], strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes()
    return True


names = st.sampled_from(NAMES) | st.text(max_size=5) | st.integers(0, 999).map(str)
numbers = st.integers(-9, 9) | st.floats(width=32, allow_nan=False, allow_infinity=False)
instances = st.dictionaries(names, numbers, max_size=6).map(lambda features: {"features": features})


@settings(deadline=None, max_examples=400)
@given(st.lists(instances, max_size=4), st.sampled_from(KINDS), st.booleans(), st.booleans())
def test_named_features_become_the_rows_of_the_general_way(
    found: list[dict[str, Any]], kind: str, is_ascii: bool, tight: bool
) -> None:
    request = {"instances": found, "beam_width": 7}
    body = json.dumps(request, ensure_ascii=is_ascii, separators=(",", ":") if tight else None)
    is_the_same(body.encode(errors="surrogatepass"), kind)


PLAIN = '{"instances":[{"features":{"Gr\\u00f6ße":1.5,"a":-2}},{"features" : { "b":1 }}],"top_r":3}'.encode()
CHANGES = b'0d8D\\"u{}[]:, \n\x00\x1f\x7f\x80\xbf\xc0\xc3\xe0\xed\xa0\xf0\xf4\x90\xffab1.-e'


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_changed_bodies_are_never_taken_for_others(data: st.DataObject) -> None:
    body = PLAIN
    for _ in range(data.draw(st.integers(1, 4))):
        at, more = data.draw(st.integers(0, len(body))), data.draw(st.sampled_from(CHANGES))
        body = body[:at] + bytes([more]) + body[at + data.draw(st.integers(0, 2)) :]
    is_the_same(body, data.draw(st.sampled_from(["named", "hashing"])))


def body_of(features: str) -> bytes:
    return b'{"instances":[{"features":' + features.encode(errors="surrogatepass") + b"}]}"


@pytest.mark.parametrize("kind", ["named", "hashing"])
@pytest.mark.parametrize(
    "features",
    [
        '{"a":1}',
        '{"a" : -0.5 , "b":2e3}',
        '{"Gr\\u00f6\\u00dfe":1,"語":2,"q\\"\\\\":3}',
        '{"nobody knows":1,"a":0}',
    ],
)
def test_what_is_taken(features: str, kind: str) -> None:
    assert is_the_same(body_of(features), kind)


@pytest.mark.parametrize(
    "features",
    [
        *(
            "",
            "{",
            "{}",
            '{"a"}',
            '{"a":}',
            '{"a":1,}',
            '{"a":1',
            '{"a":"1"}',
            '{"a":true}',
            '{"a":null}',
            "[1]",
        ),
        *('{"a":1e39}', '{"nobody knows":1e39,"a":1}', '{"a":NaN}', '{"a":01}', '{"a":1 2}', "{a:1}"),
        *('{"a":1,"a":2}', '{"b":1,"\\u0062":2}'),  # the last one counts
        *('{"a\\x":1}', '{"\\ud83d":1}', '{"a\x00":1}', '{"\ud800":1}'),
        '{"' + "x" * (NAME_BYTES_MAX + 1) + '":1,"a":1}',
    ],
)
def test_what_is_not(features: str) -> None:
    assert not is_the_same(body_of(features), "named")
    if "nobody" not in features:
        assert not is_the_same(body_of(features), "hashing")


def test_names_that_the_model_does_not_know_are_left_out_and_rows_of_them_alone_are_told() -> None:
    assert not is_the_same(body_of('{"nobody knows":1}'), "named")
    assert not is_the_same(b'{"instances":[{"features":{"a":1}},{"features":{}}]}', "named")


@pytest.mark.parametrize(
    ("n_rows", "n_features", "is_taken"), [(3, 3, True), (4, 1, False), (1, 10, True), (1, 11, False)]
)
def test_buffers_that_are_full_and_one_more(n_rows: int, n_features: int, is_taken: bool) -> None:
    features = {"a": 1} | {f"other{i}": 1 for i in range(n_features - 1)}
    body = json.dumps({"instances": [{"features": features}] * n_rows}).encode()
    assert is_the_same(body, "named") == is_taken
    assert is_the_same(body, "hashing") == is_taken


OTHERS = [b'{"indices":[1],"values":[1]}', b'{"text":"a"}', b'{"features":{"a":1},"id":2}', b"{}", b""]


@pytest.mark.parametrize("other", OTHERS)
def test_instances_beside_it_that_are_others(other: bytes) -> None:
    body = body_of('{"a":1}')
    assert not is_the_same(body[:-2] + b"," + other + body[-2:], "named")


def test_models_without_names_leave_them_unread() -> None:
    bodies = SparseBodies(FORMS, load_featurizer({"kind": "raw", "norm": "l2"}, {}, 40))
    assert bodies.read(PLAIN, 0).n_rows == 0


def test_the_work_is_bounded_by_the_first_thing_that_is_not_as_expected() -> None:
    bodies = SparseBodies(FORMS, featurizer_of("named"))
    _, indices, values, _ = bodies.arrays
    indices[:], values[:] = -1, np.nan
    assert bodies.read(body_of('{"a":"' + "1," * 40 + '"}'), 0).n_rows == 0
    assert np.count_nonzero(indices != -1) <= 1
