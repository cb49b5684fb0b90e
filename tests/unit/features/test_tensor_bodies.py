"""Whatever the kernel takes for a body of tensors is what the models of requests make of it, to the bit."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.base.errors import BadInput
from service.features.tensor_request import TensorBodies
from service.inference.prediction_json import form_of
from service.kernels.search.call import NO_THRESHOLD, NUMBER, TUNED
from service.kernels.text.tensors import FIRST_OUTPUT, IDENTITY, IDENTITY_END, N_OUTPUTS, PLACES
from service.serving.oip import parse_infer
from service.serving.schemas.predict import Options
from tests.datasets_helpers import assert_same_bits
from tests.oip_requests import HEADER, binary_body, changed, csr
from tests.unit.features.test_sparse_bodies import (
    FORMS,
    LIMITS,
    featurizer_of,
    instances,
)

ROWS = [{"indices": [3, 17], "values": [0.5, 1]}, {"indices": [], "values": []}]
BEFORE = b"before"


def assert_the_same(body: bytes, n_json: int | None = None, norm: str = "none") -> bool:
    """Compare the two; return whether the kernel took the body."""
    bodies = TensorBodies(FORMS, featurizer_of(norm))
    for other in (binary_body({"inputs": csr(ROWS)})[0], json.dumps({"inputs": csr(ROWS)}).encode()):
        bodies.rows_read(bodies.read_infer(other, (0, len(other))))  # leaves nothing behind
    end = len(body) if n_json is None else n_json
    message = BEFORE + body
    found = bodies.rows_read(bodies.read_infer(message, (len(BEFORE), len(BEFORE) + end)))
    assert bodies.arrays[0][0] == 0
    if found is None:
        return False
    rows, asked, number = found
    query = parse_infer(body, None if n_json is None else str(n_json), LIMITS)
    assert query.csr is not None
    assert_same_bits(rows, featurizer_of(norm).transform_csr(*query.csr))
    options = query.options
    assert (asked.n_rows, asked.top_r, asked.beam_width) == (query.n_rows, options.top_r, options.beam_width)
    assert bool(asked.is_exact) == options.exact
    if asked.threshold == NUMBER:
        assert isinstance(options.threshold, float)
        assert number == np.float32(options.threshold)
    else:
        assert options.threshold == {NO_THRESHOLD: None, TUNED: "tuned"}[asked.threshold]
    told = {"top_r", "beam_width", "exact", "threshold", "binary_data_output"}
    assert options.model_dump(exclude=told) == Options().model_dump(exclude=told)
    form, expected_form = bodies.form, form_of(options.top_r, query.outputs)
    last = FIRST_OUTPUT + expected_form[N_OUTPUTS]
    assert form[PLACES] == expected_form[PLACES]
    assert form[N_OUTPUTS:last].tolist() == expected_form[N_OUTPUTS:last].tolist()
    identity = None if not form[IDENTITY] else message[form[IDENTITY] : form[IDENTITY_END]].decode()
    assert identity == query.identity
    return True


binary_or_not = st.fixed_dictionaries({}, optional={"binary_data": st.sampled_from([True, False, None])})
outputs = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["labels", "label_ids", "scores", "lengths", "exact", "none"])},
        optional={"parameters": binary_or_not},
    ),
    max_size=6,
)
parameters = st.fixed_dictionaries(
    {},
    optional={
        "top_r": st.integers(0, 12),
        "beam_width": st.integers(0, 1200),
        "threshold": st.sampled_from(["tuned", "tune", 0, 1, None]) | st.floats(0, 1),
        "exact": st.sampled_from([True, False, 1]),
        "binary_data_output": st.sampled_from([True, False, 0]),
        "deadline_ms": st.just(20),
    },
)
members = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["", "a-7", 'a"b', "é", "\x7f", 7, None]),
        "parameters": parameters,
        "outputs": outputs,
    },
)


def taken(request: dict[str, Any], norm: str = "none", *, binary: bool = False, **style: Any) -> bool:
    """Compare for a request; return whether the kernel took it. One that is refused it must not take."""
    body, n_json = json.dumps(request, **style).encode(), None
    if binary:
        body, headers = binary_body(request)
        n_json = int(headers[HEADER])
    try:
        parse_infer(body, None if n_json is None else str(n_json), LIMITS)
    except BadInput:
        is_refused = True
    else:
        is_refused = False
    is_taken = assert_the_same(body, n_json, norm) if not is_refused else not_taken(body, n_json)
    assert not (is_taken and is_refused)
    return is_taken


def not_taken(body: bytes, n_json: int | None) -> bool:
    bodies = TensorBodies(FORMS, featurizer_of())
    span = 0, len(body) if n_json is None else n_json
    assert bodies.rows_read(bodies.read_infer(body, span)) is None, body
    return False


@given(
    st.lists(instances, min_size=1, max_size=5),
    members,
    st.permutations(range(3)),
    st.sampled_from(["l2", "l1", "none"]),
    st.sampled_from(["tight", "loose", "sorted", "binary"]),
)
def test_bodies_become_what_the_models_make_of_them(
    rows: list[dict[str, Any]], more: dict[str, Any], order: list[int], norm: str, style: str
) -> None:
    inputs = csr(rows)
    request = {"inputs": [inputs[i] for i in order], **more}
    styles: dict[str, dict[str, Any]] = {"tight": {"separators": (",", ":")}, "sorted": {"sort_keys": True}}
    with np.errstate(over="ignore"):  # of numbers that binary data cannot hold
        taken(request, norm, binary=style == "binary", **styles.get(style, {}))


@given(st.data())
def test_changed_bodies_are_never_taken_for_others(data: st.DataObject) -> None:
    request = {"id": "a", "inputs": csr(ROWS), "outputs": [{"name": "scores"}], "parameters": {"top_r": 3}}
    body, headers = binary_body(request)
    n_json: int | None = int(headers[HEADER])
    if data.draw(st.booleans()):
        body, n_json = json.dumps(request, separators=(",", ":")).encode(), None
    body, n_json = changed(data, body, n_json, b'0123456789.,-+eE[]{}" :\n\tx\xff\x00tbif')
    try:
        parse_infer(body, None if n_json is None else str(n_json), LIMITS)
    except BadInput:
        not_taken(body, n_json)
    else:
        try:
            assert_the_same(body, n_json)
        except BadInput:  # of the rows, which the kernel must have refused as well
            not_taken(body, n_json)


def test_what_is_plain() -> None:
    options = {"top_r": 3, "beam_width": 4, "threshold": 0.25, "exact": True, "binary_data_output": True}
    for more in (
        {},
        {"id": "abc", "parameters": {}, "outputs": []},
        {"parameters": options, "outputs": [{"name": "scores", "parameters": {}}, {"name": "labels"}]},
        {
            "parameters": {"threshold": "tuned"},
            "outputs": [{"name": "exact", "parameters": {"binary_data": True}}],
        },
    ):
        for binary in (False, True):
            assert taken({"inputs": csr(ROWS), **more}, "l2", binary=binary)
    unsorted = [{"indices": [5, 1, 5], "values": [1, 2, 3]}]
    assert taken({"inputs": csr(unsorted)}, binary=True)
    mixed, headers = binary_body({"inputs": csr(ROWS)})  # whose values only are in the JSON
    n_json = int(headers[HEADER])
    head = json.loads(mixed[:n_json])
    head["inputs"][2] = csr(ROWS)[2]
    text = json.dumps(head).encode()
    assert assert_the_same(text + mixed[n_json : -4 * 2], len(text))
    blank = [{"indices": [32, 9], "values": [1, 2]}]  # whose binary data begin as blanks do
    assert taken({"inputs": [csr(blank)[i] for i in (1, 2, 0)]}, binary=True)


def test_rows_beyond_the_buffers_and_odd_ones_are_left_to_others() -> None:
    for rows, is_taken in (
        ([{"indices": [1], "values": [1]}] * 4, True),
        ([{"indices": [1], "values": [1]}] * 5, False),
        ([{"indices": [1] * 20, "values": [1] * 20}], True),
        ([{"indices": [1] * 21, "values": [1] * 21}], False),
        ([{"indices": [3, 3], "values": [3e38, 3e38]}], False),
        ([{"indices": [40], "values": [1]}], False),
    ):
        for binary in (False, True):
            request = {"inputs": csr(rows)}
            body, headers = binary_body(request) if binary else (json.dumps(request).encode(), {})
            n_json = int(headers[HEADER]) if binary else len(body)
            bodies = TensorBodies(FORMS, featurizer_of())
            assert (bodies.rows_read(bodies.read_infer(body, (0, n_json))) is not None) == is_taken


@pytest.mark.parametrize("values", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_left_to_others(values: float) -> None:
    body, headers = binary_body({"inputs": csr([{"indices": [1], "values": [values]}])})
    not_taken(body, int(headers[HEADER]))
