"""Tensors of texts that the kernel takes have the rows that the general way makes of them, to the bit."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.errors import BadInput
from service.features.tensor_request import TensorBodies
from service.kernels.text.texts import TEXTS
from service.serving.oip import parse_infer
from tests.datasets_helpers import assert_same_bits
from tests.oip_requests import HEADER, binary_body, changed, csr, tensor
from tests.unit.features.test_text_bodies import FORMS, KINDS, LIMITS, NO_TEXTS, featurizer_of, fitted, texts

BEFORE = b"before"
ROWS = [{"indices": [3], "values": [0.5]}]


def is_the_same(body: bytes, n_json: int | None = None, kind: str = "words") -> bool:
    """Compare the two; return whether the kernel took the body."""
    featurizer = featurizer_of(kind)
    bodies = TensorBodies(FORMS, featurizer)
    other = json.dumps({"inputs": [tensor("text", ["leaves nothing behind"])]}).encode()
    bodies.rows_read(bodies.read_infer(other, (0, len(other))))
    end = len(body) if n_json is None else n_json
    asked = bodies.read_infer(BEFORE + body, (len(BEFORE), len(BEFORE) + end))
    if asked.n_rows == 0:
        return False
    try:
        query = parse_infer(body, None if n_json is None else str(n_json), LIMITS)
    except BadInput as error:
        raise AssertionError(f"{body!r} was taken") from error
    if asked.n_values != TEXTS:
        return True
    assert query.texts is not None
    expected, found = featurizer.transform_texts(query.texts), bodies.rows_read(asked)
    if found is None:
        assert np.diff(expected.indptr).min() == 0
        return False
    assert (asked.n_rows, asked.top_r) == (query.n_rows, query.options.top_r)
    assert_same_bits(found[0], expected)
    return True


def both_ways(request: dict[str, Any], kind: str = "words", **style: Any) -> tuple[bool, bool]:
    """Whether it is taken in JSON, and as binary tensors."""
    body, headers = binary_body(request)
    in_json = is_the_same(json.dumps(request, **style).encode(errors="surrogatepass"), None, kind)
    return in_json, is_the_same(body, int(headers[HEADER]), kind)


@settings(max_examples=300)
@given(st.lists(texts, max_size=5), st.sampled_from(sorted(KINDS)), st.booleans(), st.booleans())
def test_texts_become_the_rows_of_the_general_way(
    found: list[str], kind: str, is_ascii: bool, is_wide: bool
) -> None:
    shape = [len(found), 1] if is_wide else [len(found)]
    request = {"inputs": [tensor("text", found, shape=shape)], "parameters": {"top_r": 3}}
    both_ways(request, kind, ensure_ascii=is_ascii)


@settings(max_examples=400)
@given(st.data())
def test_changed_bodies_are_never_taken_for_others(data: st.DataObject) -> None:
    request = {"inputs": [tensor("text", ['Café "editor"\x01', "debug\tit 😀"])]}
    body, n_json = json.dumps(request, ensure_ascii=False).encode(), None
    if data.draw(st.booleans()):
        body, headers = binary_body(request)
        n_json = int(headers[HEADER])
    letters = b'01248D\\"u{}[]:, \n\x00\x1f\x7f\x80\xbf\xc0\xc3\xe0\xed\xa0\xf0\xf4\xff'
    is_the_same(*changed(data, body, n_json, letters))


def test_what_is_taken() -> None:
    for kind in KINDS:
        for shape in ([2], [2, 1]):
            request = {"inputs": [tensor("text", ["debug é😀", 'debug \\" \x7f'], shape=shape)], "id": "a"}
            assert both_ways(request, kind) == (True, True)


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [tensor("text", [])],
        [tensor("text", ["debug"] * 5)],
        [tensor("text", ["debug"], shape=[2])],
        [tensor("text", ["debug"], shape=[1, 2])],
        [tensor("text", ["debug"], shape=[1, 1, 1])],
        [tensor("text", ["debug"], shape=[])],
        [tensor("text", ["debug"], datatype="INT64")],
        [tensor("text", ["debug e\u0301"])],
        [tensor("text", ["debug " + "x" * 60])],
        [tensor("text", ["debug"]), tensor("text", ["debug"])],
        [tensor("text", ["debug"]), *csr(ROWS)],
        [*csr(ROWS)[:2], tensor("text", ["debug"])],
    ],
    ids=str,
)
def test_what_is_not(inputs: list[dict[str, Any]]) -> None:
    body = json.dumps({"inputs": inputs}).encode()
    assert not is_the_same(body)
    if all(given["datatype"] == {"text": "BYTES"}.get(given["name"], given["datatype"]) for given in inputs):
        body, headers = binary_body({"inputs": inputs})
        assert not is_the_same(body, int(headers[HEADER]))


def test_elements_that_are_cut_too_long_or_no_utf8() -> None:
    right = b"\x05\x00\x00\x00debug"
    for data in (right[:-1], right + b"x", right[:3], b"\xff\xff\xff\xff", right[:-1] + b"\xff", b""):
        inputs = [{**tensor("text", [""]), "parameters": {"binary_data_size": len(data)}}]
        del inputs[0]["data"]
        head = json.dumps({"inputs": inputs}).encode()
        assert not is_the_same(head + data, len(head))


@pytest.mark.parametrize("config", NO_TEXTS, ids=str)
def test_models_whose_texts_are_not_for_kernels_leave_them_unread(config: dict[str, Any]) -> None:
    request = {"inputs": [tensor("text", ["debug"])]}
    body = json.dumps(request).encode()
    bodies = TensorBodies(FORMS, fitted(config))
    assert bodies.rows_read(bodies.read_infer(body, (0, len(body)))) is None
    body, headers = binary_body(request)
    assert bodies.rows_read(bodies.read_infer(body, (0, int(headers[HEADER])))) is None
