"""Tensors in JSON become rows as the models of requests read them, or are left to these."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from tests.helpers.bodies import (
    FORMS,
    LIMITS,
    ROWS,
    SPARSE_FORMS,
    featurizer_of,
    instances,
    texts,
)
from tests.helpers.datasets_helpers import assert_same_bits
from tests.helpers.oip_requests import changed, csr, tensor

from xylem.base.errors import BadInput
from xylem.base.rows import SparseRows
from xylem.serving.dialects.dialect import Body
from xylem.serving.dialects.predict.kernels.request_bodies import BodyQuery, RequestBodies, data_of
from xylem.serving.dialects.tensors import reading
from xylem.serving.dialects.tensors.dialect import TENSORS, InferQuery
from xylem.serving.dialects.tensors.kernels.tensor_arrays import read_arrays
from xylem.serving.dialects.tensors.reading import PLAN_BYTES_MAX, PLANS_MAX, InferPlan, read_packed

LETTERS = b'0123456789.,-+eE[]{}" :\n\tx\xff\x00tbif\\u\x80\xc3'
ODD_ELEMENTS: list[Any] = [True, None, 1.0, -1, 2**31, 2**63, 10**400, 1e39, "1", [1], [], {}]
BODIES = {
    "words": RequestBodies(FORMS, featurizer_of("words")),
    "l2": RequestBodies(SPARSE_FORMS, featurizer_of("l2")),
}


def packed_rows(body: bytes, kind: str) -> tuple[InferPlan, SparseRows] | None:
    """The plan and the rows that msgspec and a kernel read; None: they leave the body to others."""
    request = read_packed(body, LIMITS)
    if request is None:
        return None
    bodies = BODIES[kind]
    arguments = bodies.constants, bodies.arrays[:3], request.form, bodies.texts_at
    fields = read_arrays(data_of(request.data), request.start, *arguments)
    rows = bodies.rows_read(BodyQuery(*fields))
    return None if rows is None else (request.plan, rows[0])


def check(body: bytes, kind: str) -> bool:
    """Compare a body's rows with what the models read; return whether there are any."""
    found = packed_rows(body, kind)
    if found is None:
        return False
    query = TENSORS.read(Body(body), LIMITS)  # which must not be refused
    assert isinstance(query, InferQuery)
    plan, rows = found
    slow = query.plan
    assert (plan.options, plan.outputs, plan.n_rows) == (slow.options, slow.outputs, slow.n_rows)
    assert plan.identity == slow.identity
    assert_same_bits(rows, query.to_rows(featurizer_of(kind)).rows)
    return True


@given(
    st.lists(instances, min_size=1, max_size=4),
    st.permutations(range(3)),
    st.none() | st.text(st.characters(codec="utf-8")),
    st.booleans(),
)
def test_sparse_rows(
    rows: list[dict[str, Any]], order: list[int], identity: str | None, is_tight: bool
) -> None:
    inputs = csr(rows)
    request = {"inputs": [inputs[i] for i in order], "parameters": {"top_r": 3}, "id": identity}
    for outputs in ({}, {"outputs": None}, {"outputs": [{"name": "scores"}]}):
        separators = (",", ":") if is_tight else None
        check(json.dumps({**request, **outputs}, separators=separators).encode(), "l2")


@given(st.lists(texts, min_size=1, max_size=4), st.booleans())
def test_texts(some: list[str], is_wide: bool) -> None:
    shape = [len(some), 1] if is_wide else [len(some)]
    check(json.dumps({"inputs": [tensor("text", some, shape=shape)]}).encode(), "words")


def test_usual_requests_are_read_here() -> None:
    for n in (1, 2, 3):
        sparse = {"inputs": csr([{"indices": [3, 1], "values": [0.5, 1]}] * n), "id": str(n)}
        assert check(json.dumps(sparse).encode(), "l2")
        texts_of = {"inputs": [tensor("text", ["editor debug"] * n)], "id": None}
        assert check(json.dumps(texts_of).encode(), "words")


@settings(max_examples=400)
@given(st.data(), st.booleans())
def test_requests_that_were_changed(data: st.DataObject, are_texts: bool) -> None:
    inputs = [tensor("text", ['Café "editor"', "debug\tit"])] if are_texts else csr(ROWS)
    request = {"inputs": inputs, "outputs": [{"name": "scores"}], "parameters": {"top_r": 3}}
    body, _ = changed(data, json.dumps(request).encode(), None, LETTERS)
    check(body, "words" if are_texts else "l2")


@given(
    st.sampled_from(["indptr", "indices", "values", "text"]),
    st.sampled_from(["data", "shape"]),
    st.integers(0, 2),
    st.sampled_from(ODD_ELEMENTS),
)
@example("indices", "data", 0, True)
@example("indptr", "shape", 0, True)
def test_an_odd_element(name: str, field: str, i: int, element: Any) -> None:
    inputs = [tensor("text", ["editor"])] if name == "text" else csr(ROWS)
    values = next(each for each in inputs if each["name"] == name)[field]
    values[i % len(values)] = element
    check(json.dumps({"inputs": inputs}).encode(), "words" if name == "text" else "l2")


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"id": 5},
        {"id": "é" * (LIMITS.name_bytes_max // 2 + 1)},
        {"parameters": {"explain": True}},
        {"parameters": {"top_r": 0}},
        {"outputs": [{"name": "scores"}, {"name": "scores"}]},
        {"inputs": []},
        {"inputs": [*csr(ROWS), *csr(ROWS)]},
        {"inputs": [{**tensor("text", ["a"]), "parameters": {"binary_data_size": 5}}]},
        {"inputs": [tensor("text", [["editor"]], shape=[1, 1])]},
        {"inputs": [tensor("text", ["editor"], shape=[])]},
        {"inputs": [tensor("text", ["editor"], datatype="INT64")]},
        {"parameters": json.loads("[" * 100 + "]" * 100)},
    ],
)
def test_what_is_left_to_the_models_of_requests(change: dict[str, Any]) -> None:
    for _ in range(2):
        assert read_packed(json.dumps({"inputs": csr(ROWS), **change}).encode(), LIMITS) is None


def test_deep_json_is_left_to_the_models_of_requests() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    body = json.dumps({"inputs": csr(ROWS)}).encode()[:-1] + b',"parameters":%b}' % deep
    assert read_packed(body, LIMITS) is None
    with pytest.raises(BadInput):
        TENSORS.read(Body(body), LIMITS)


def test_outlines_are_kept_without_elements_and_ids() -> None:
    reading._outlines.clear()
    for n in range(1, 9):
        row = {"indices": [*range(n)], "values": [1.0] * n}
        assert check(json.dumps({"inputs": csr([row]), "id": str(n)}).encode(), "l2")
    assert len(reading._outlines) == 1
    lower = LIMITS.model_copy(update={"top_r_max": 2})
    body = json.dumps({"inputs": csr(ROWS), "parameters": {"top_r": 3}}).encode()
    assert read_packed(body, LIMITS) is not None
    assert read_packed(body, lower) is None
    for top_r in range(1, 2 * PLANS_MAX):
        request = {"inputs": csr(ROWS), "parameters": {"top_r": top_r}}
        assert read_packed(json.dumps(request).encode(), LIMITS) is not None
    assert len(reading._outlines) <= PLANS_MAX
    long = {"inputs": csr(ROWS), "parameters": {"deny_labels": ["x" * PLAN_BYTES_MAX]}}
    read_packed(json.dumps(long).encode(), LIMITS)
    assert all(len(outline) <= PLAN_BYTES_MAX for outline in reading._outlines)
