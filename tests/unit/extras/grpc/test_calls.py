"""Calls become requests, answers become messages, and every refusal has its status code."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.helpers.checkout import ROOT
from tests.helpers.grpc_calls import typed
from tests.helpers.oip_requests import packed

from xylem.base.errors import BadRequest
from xylem.extras.grpc.calls import METHODS, read_call, write_answer
from xylem.extras.grpc.messages import message_class
from xylem.extras.grpc.server import STATUS_CODES
from xylem.serving.problems import PROBLEMS

OF_NAME = {method.name: method for method in METHODS}
INFER = OF_NAME["ModelInfer"]
TEXTS = ["a text", "é"]


def read(**fields: Any) -> tuple[str, dict[str, Any], bytes]:
    """The path, the JSON and the binary data of a ModelInferRequest's request."""
    call = message_class("ModelInferRequest")(**{"model_name": "m", **fields})
    path, headers, body = read_call(call.SerializeToString(), INFER)
    n_json = int(dict(headers)[b"Inference-Header-Content-Length".lower()])
    return path, orjson.loads(body[:n_json]), body[n_json:]


def raw(name: str, data: list[Any]) -> tuple[dict[str, Any], bytes]:
    """An input without contents, and its raw contents."""
    tensor = typed(name, data)
    del tensor["contents"]
    return tensor, packed({"datatype": tensor["datatype"], "data": data})


@pytest.mark.parametrize(
    ("name", "data"),
    [("text", TEXTS), ("indptr", [0, 2**40]), ("indices", [5, 0]), ("values", [0.1, -2.0])],
)
def test_typed_and_raw_contents_are_the_same_request(name: str, data: list[Any]) -> None:
    tensor, content = raw(name, data)
    path, of_typed, binary = read(inputs=[typed(name, data)])
    _, of_raw, raw_binary = read(inputs=[tensor], raw_input_contents=[content])
    assert path == "/v2/models/m/infer"
    assert binary == raw_binary == content
    assert of_typed["inputs"] == of_raw["inputs"]
    assert of_typed["inputs"][0]["parameters"] == {"binary_data_size": len(content)}
    is_binary = [one["parameters"].pop("binary_data_output") for one in (of_typed, of_raw)]
    assert is_binary == [False, True] and of_typed == of_raw


def test_parameters_have_the_values_that_they_say() -> None:
    parameters = {
        "top_r": {"int64_param": 7},
        "beam_width": {"uint64_param": 9},
        "exact": {"bool_param": True},
        "threshold": {"double_param": 0.25},
        "allow_labels": {"string_param": '["a", "b"]'},
        "label_weights": {"string_param": "propensity"},
        "deny_labels": {},
        "binary_data_output": {"bool_param": True},
    }
    _, request, _ = read(inputs=[typed("text", TEXTS)], parameters=parameters, id="x")
    assert request["parameters"] == {
        "top_r": 7,
        "beam_width": 9,
        "exact": True,
        "threshold": 0.25,
        "allow_labels": ["a", "b"],
        "label_weights": "propensity",
        "deny_labels": None,
        "binary_data_output": False,
    }
    assert request["id"] == "x"


BOTH = [raw("text", TEXTS)[1]]
INT32_AS_INT64 = typed("indices", [1]) | {"contents": {"int64_contents": [1]}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"model_name": ""}, "model_name: expected the name of a model, found none"),
    (
        {"inputs": [typed("text", TEXTS)], "raw_input_contents": BOTH},
        "inputs[0].contents: expected contents or raw_input_contents, found both",
    ),
    (
        {"inputs": [raw("text", TEXTS)[0]], "raw_input_contents": BOTH * 2},
        "raw_input_contents: expected 1 elements, one for each of the inputs, found 2",
    ),
    (
        {"inputs": [typed("text", TEXTS, shape=[3])]},
        "inputs[0].contents.bytes_contents: expected 3 elements, as the shape says, found 2",
    ),
    (
        {"inputs": [INT32_AS_INT64]},
        "inputs[0].contents.int_contents: expected 1 elements, as the shape says, found 0",
    ),
    (
        {"inputs": [raw("text", TEXTS)[0]]},
        "inputs[0].contents.bytes_contents: expected 2 elements, as the shape says, found 0",
    ),
    (
        {"parameters": {"threshold": {"double_param": float("nan")}}},
        "parameters.threshold: expected a finite number, found nan",
    ),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_what_only_a_message_can_have_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(**fields)
    assert f"{refused.value.path}: {refused.value}" == message


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x02\xff\xfe"], ids=["bytes", "no UTF-8"])
def test_bytes_that_are_no_message_are_refused(content: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^expected a ModelInferRequest, found other bytes: "):
        read_call(content, INFER)


@pytest.mark.parametrize(
    ("name", "fields", "path"),
    [
        ("ModelReady", {"name": "m"}, "/v2/models/m/ready"),
        ("ModelReady", {"name": "m", "version": "3"}, "/v2/models/m/versions/3/ready"),
        ("ModelMetadata", {"name": "../x/y"}, "/v2/models/..%2Fx%2Fy"),
        ("ModelInfer", {"model_name": "m", "model_version": "3/infer?"}, None),
        ("ServerMetadata", {}, "/v2"),
        ("RepositoryModelLoad", {"model_name": "m"}, "/v2/repository/models/m/load"),
    ],
)
def test_a_call_names_the_path_of_its_request(
    name: str, fields: dict[str, Any], path: str | None
) -> None:
    call = message_class(f"{name}Request")(**fields)
    expected = path or "/v2/models/m/versions/3%2Finfer%3F/infer"
    assert read_call(call.SerializeToString(), OF_NAME[name])[0] == expected


def test_the_index_asks_for_open_models_and_lists_them() -> None:
    method = OF_NAME["RepositoryIndex"]
    call = message_class("RepositoryIndexRequest")(ready=True)
    assert read_call(call.SerializeToString(), method)[2] == b'{"ready":true}'
    row = {"name": "m", "version": "3", "state": "READY", "reason": ""}
    message = message_class("RepositoryIndexResponse").FromString(
        write_answer(orjson.dumps([row, row]), method, None)
    )
    assert [(one.name, one.version, one.state) for one in message.models] == [
        ("m", "3", "READY")
    ] * 2


def test_every_problem_has_a_status_code_and_the_page_says_which() -> None:
    assert {problem.status for problem in PROBLEMS.values()} <= STATUS_CODES.keys()
    page = Path(ROOT / "docs" / "grpc.md").read_text()
    rows = re.findall(r"^\| ([\d, ]+) \| `([A-Z_]+)` \|", page, re.MULTILINE)
    documented = {int(status): name for statuses, name in rows for status in statuses.split(", ")}
    assert documented == {status: code.name for status, code in STATUS_CODES.items()}
