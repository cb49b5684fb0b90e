"""Requests of tensors are read alike in JSON and as binary data, and odd ones are refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.bodies import LIMITS, ROWS, featurizer_of, instances, texts
from tests.helpers.datasets_helpers import assert_same_bits
from tests.helpers.oip_requests import HEADER, binary_body, changed, csr, tensor

from xylem.base.errors import BadInput, BadRequest, LimitExceeded
from xylem.base.settings import Limits
from xylem.serving.dialects.dialect import Body
from xylem.serving.dialects.tensors import reading
from xylem.serving.dialects.tensors.dialect import TENSORS, InferQuery

LETTERS = b'0123456789.,-+eE[]{}" :\n\tx\xff\x00tbif\\u\x80\xc3'


def parse_infer(body: bytes, header: str | None, limits: Limits) -> InferQuery:
    query = TENSORS.read(Body(b"head" + body, 4, header), limits)
    assert isinstance(query, InferQuery)
    return query


def read_binary(request: dict[str, Any]) -> InferQuery:
    body, headers = binary_body(request)
    return parse_infer(body, headers[HEADER], LIMITS)


def read_json(request: dict[str, Any]) -> InferQuery:
    return parse_infer(json.dumps(request).encode(), None, LIMITS)


@given(st.lists(instances, min_size=1, max_size=5), st.permutations(range(3)))
def test_sparse_rows_in_json_and_as_binary_data(
    rows: list[dict[str, Any]], order: list[int]
) -> None:
    inputs = csr(rows)
    request = {"inputs": [inputs[i] for i in order], "parameters": {"top_r": 3}, "id": "a"}
    with np.errstate(over="ignore"):  # of numbers that binary data cannot hold
        queries = read_json(request), read_binary(request), read_binary(request)
    for query in queries:
        assert (query.n_rows, query.options.top_r, query.plan.identity) == (len(rows), 3, "a")
    made = []
    for query in queries:
        try:
            made.append(query.to_rows(featurizer_of("l2")).rows)
        except BadInput as error:
            made.append(str(error))
    for other in made[1:]:
        if isinstance(made[0], str):
            assert other == made[0]
        else:
            assert_same_bits(other, made[0])


@given(st.lists(texts, min_size=1, max_size=5), st.booleans())
def test_texts_in_json_and_as_binary_data(some: list[str], is_wide: bool) -> None:
    shape = [len(some), 1] if is_wide else [len(some)]
    request = {"inputs": [tensor("text", [text[:9] for text in some], shape=shape)]}
    for query in (read_json(request), read_binary(request), read_binary(request)):
        assert query.instances.texts == [text[:9] for text in some]


def test_a_plan_is_cached_for_requests_of_one_json() -> None:
    for first, second in (([3, 17], [4, 18]), ([1, 2], [38, 39])):
        for ids in (first, second):
            request = {"inputs": csr([{"indices": ids, "values": [1, 2]}])}
            csr_read = read_binary(request).instances.csr
            assert csr_read is not None
            assert csr_read[1].tolist() == ids
    n_kept = len(reading._plans)
    body, headers = binary_body({"inputs": csr(ROWS)})
    for wrong in (body[:-1], body + b"x"):
        with pytest.raises(BadRequest):
            parse_infer(wrong, headers[HEADER], LIMITS)
    parse_infer(body, headers[HEADER], LIMITS)
    lower = LIMITS.model_copy(update={"instances_max": 1})
    with pytest.raises(LimitExceeded):
        parse_infer(body, headers[HEADER], lower)
    read_json({"inputs": csr(ROWS)})
    assert len(reading._plans) == n_kept + 1
    for i in range(2 * reading.PLANS_MAX):
        read_binary({"inputs": csr(ROWS), "id": str(i)})
    assert len(reading._plans) <= reading.PLANS_MAX
    long = {"inputs": csr(ROWS), "id": "x" * reading.PLAN_BYTES_MAX}
    read_binary(long)
    assert all(len(head) <= reading.PLAN_BYTES_MAX for head in reading._plans)


@pytest.mark.parametrize(
    "data",
    [
        b"\x05\x00\x00\x00debu",
        b"\x05\x00\x00\x00debugx",
        b"\x05\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x05\x00\x00\x00debu\xff",
        b"",
    ],
)
def test_elements_that_are_cut_too_long_or_no_utf8(data: bytes) -> None:
    inputs = [{**tensor("text", [""]), "parameters": {"binary_data_size": len(data)}}]
    del inputs[0]["data"]
    head = json.dumps({"inputs": inputs}).encode()
    for _ in range(2):
        with pytest.raises(BadRequest, match="expected"):
            parse_infer(head + data, str(len(head)), LIMITS)


@settings(max_examples=400)
@given(st.data(), st.booleans(), st.booleans())
def test_requests_that_were_changed_are_read_or_refused(
    data: st.DataObject, is_binary: bool, are_texts: bool
) -> None:
    """What is read of them makes rows within their bounds."""
    inputs = [tensor("text", ['Café "editor"', "debug\tit 😀"])] if are_texts else csr(ROWS)
    request = {"inputs": inputs, "outputs": [{"name": "scores"}], "parameters": {"top_r": 3}}
    body, n_json = json.dumps(request).encode(), None
    if is_binary:
        body, headers = binary_body(request)
        n_json = int(headers[HEADER])
    body, n_json = changed(data, body, n_json, LETTERS)
    featurizer = featurizer_of("words" if are_texts else "none")
    try:
        query = parse_infer(body, None if n_json is None else str(n_json), LIMITS)
        rows = query.to_rows(featurizer).rows
    except BadInput:
        return
    assert rows.n_rows == query.n_rows
    assert rows.indptr[-1] == len(rows.indices) == len(rows.values)
    assert not len(rows.indices) or 0 <= rows.indices.min() <= rows.indices.max() < rows.n_features
    assert np.isfinite(rows.values).all()
