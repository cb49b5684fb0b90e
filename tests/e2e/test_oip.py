"""The Open Inference Protocol over real sockets: predict's answers as
tensors, refusals of what is wrong.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.oip_requests import HEADER, binary_body, csr, infer, predictions_of, tensor
from tests.helpers.served_models import TEXTS
from tests.helpers.servers import ServerProcess

CLIENT = Path(__file__).resolve().parents[2] / ".venv-clients" / "bin" / "python"
ROWS = [
    {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]},
    {"indices": [], "values": []},
    {"indices": [7], "values": [3]},
]
INFER = "/v2/models/raw/infer"


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store, text_bytes_max=64, instances_max=101) as process:
        yield process


def request_of(**changes: Any) -> dict[str, Any]:
    return {"inputs": csr(ROWS), **changes}


def texts_of(data: list[Any], **changes: Any) -> dict[str, Any]:
    return {"inputs": [tensor("text", data, **changes)]}


def expected_of(
    server: ServerProcess, model: str, instances: list[Any], options: Any
) -> tuple[Any, ...]:
    """What predict answers: (name, id, score) of each row's labels, and whether each is exact."""
    status, answer = server.ask(
        "POST", f"/v1/models/{model}/predict", {"instances": instances, **options}
    )
    assert status == 200, answer
    rows = [
        [(one["label"], one["id"], np.float32(one["score"])) for one in row["labels"]]
        for row in answer["predictions"]
    ]
    return rows, [row["exact"] for row in answer["predictions"]]


def options_of(random: np.random.Generator) -> dict[str, Any]:
    """Options, some of them."""
    allowed = [f"label::{i}" for i in random.choice(11, 4, replace=False).tolist()]
    numbers = {"top_r": [1, 3, 7, 20], "threshold": [0.02, 0.2, 1.0], "beam_width": [1, 4, 200]}
    others = {
        "exact": [True, False],
        "allow_labels": [allowed],
        "label_weights": [{"label::3": 5.0}],
    }
    choices: dict[str, list[Any]] = {**numbers, **others, "deadline_ms": [20_000]}
    taken = [name for name in choices if random.random() < 0.4]
    return {name: choices[name][int(random.integers(len(choices[name])))] for name in taken}


def test_answers_are_those_of_predict(server: ServerProcess, seed: int) -> None:
    random = np.random.default_rng(seed)
    for turn in range(80):
        model = ("raw", "raw/versions/1", "text", "hashed", "named")[turn % 5]
        options = options_of(random)
        n = int(random.choice([1, 1, 2, 5, 40]))
        if model in ("text", "hashed") and random.random() < 0.7:
            texts = [TEXTS[i] for i in random.integers(len(TEXTS), size=n)]
            request, instances = texts_of(texts), [{"text": text} for text in texts]
        else:
            width = {"named": 3, "text": 20}.get(model, 34)
            instances = []
            for size in random.integers(20, size=n).tolist():
                values = random.normal(size=size).astype(np.float32).tolist()
                instances.append(
                    {"indices": random.integers(width, size=size).tolist(), "values": values}
                )
            request = {"inputs": csr(instances)}
        expected, exact = expected_of(server, model, instances, options)
        request["parameters"] = {**options, "binary_data_output": turn % 3 == 0}
        found = infer(server, f"/v2/models/{model}/infer", request, binary=turn % 2 == 0)
        assert predictions_of(found) == expected, request
        assert found["exact"] == exact
        name, _, version = model.partition("/versions/")
        assert found["model_name"] == name
        assert found["parameters"]["version"] == int(found["model_version"])
        assert version in ("", found["model_version"])
        assert {len(row) for row in found["labels"]} == {options.get("top_r", 5)}


def test_what_is_asked_for_is_answered_and_nothing_else(server: ServerProcess) -> None:
    outputs = [{"name": "scores", "parameters": {"binary_data": True}}, {"name": "label_ids"}]
    found = infer(server, INFER, request_of(id="a-7", outputs=outputs), binary=False)
    assert found.keys() == {
        "model_name",
        "model_version",
        "id",
        "parameters",
        "scores",
        "label_ids",
    }
    assert found["id"] == "a-7"
    full = infer(server, INFER, request_of(), binary=True)
    assert found["label_ids"] == full["label_ids"]
    assert np.array_equal(np.float32(found["scores"]), np.float32(full["scores"]))


def test_a_head_seen_before_changes_no_answer(server: ServerProcess) -> None:
    """The first request goes by the route, those after it by their
    bytes (docs/adr/0007): all are alike.
    """
    binary = binary_body(request_of(parameters={"binary_data_output": True, "top_r": 7}))
    wrong = json.dumps(request_of(parameters={"top_r": 0})).encode()
    for body, given in (binary, (json.dumps(request_of(id="same")).encode(), {}), (wrong, {})):
        answers = []
        for number in range(4):
            path = "/v2/models/raw/versions/1/infer"
            headers = {"connection": "keep-alive", "x-request-id": f"same-{number}", **given}
            status, found, content = server.exchange("POST", path, body, **headers)
            assert found.pop("x-request-id") == f"same-{number}"
            found.pop("date")
            answers.append((status, found, content.replace(b"same-%d" % number, b"")))
        assert answers[1:] == answers[:1] * 3
    logged = server.requests([f"same-{number}" for number in range(4)])
    route = "/v2/models/{model}/versions/{version}/infer"
    assert {(each["route"], each["model"], each["version"]) for each in logged} == {
        (route, "raw", 1)
    }


MLSERVER_TEXTS = """
{"id": null, "parameters": {"content_type": "str", "headers": null}, "inputs": [{"name": "text",
"shape": [2, 1], "datatype": "BYTES", "parameters": {"content_type": "str", "headers": null},
"data": ["a text editor", "a game"]}], "outputs": null}
"""
MLSERVER_ROWS = """
{"parameters":null,"inputs":[{"name":"indptr","shape":[3,1],"datatype":"INT64",
"parameters":{"content_type":"np"},"data":[0,2,3]},{"name":"indices","shape":[3,1],"datatype":
"INT32","parameters":{"content_type":"np"},"data":[1,5,7]},{"name":"values","shape":[3,1],
"datatype":"FP32","parameters":{"content_type":"np"},"data":[1.0,0.5,3.0]}],"outputs":[{"name":
"label_ids","parameters":{"content_type":"np","headers":null}},{"name":"scores","parameters":null}]}
"""
"""What StringCodec and NumpyCodec of mlserver 1.7.1 wrote, also with null for fields that are
not set. It asks for older libraries than other clients (requirements-clients.txt).
"""


def test_requests_of_mlserver_and_any_parameter_are_taken(server: ServerProcess) -> None:
    texts, rows = json.loads(MLSERVER_TEXTS), json.loads(MLSERVER_ROWS)
    expected = infer(
        server, "/v2/models/text/infer", texts_of(["a text editor", "a game"]), binary=False
    )
    others = {"content_type": "str", "timeout": 5, "sequence_id": "a", "topr": [1], "x": None}
    assert infer(server, "/v2/models/text/infer", texts, binary=False) == expected
    texts["parameters"], texts["inputs"][0]["parameters"] = others, others
    for binary in (False, True):
        assert infer(server, "/v2/models/text/infer", texts, binary=binary) == expected
    given = [{"indices": [1, 5], "values": [1, 0.5]}, {"indices": [7], "values": [3]}]
    expected = infer(server, INFER, {"inputs": csr(given)}, binary=False)
    for binary in (False, True):
        found = infer(server, INFER, rows, binary=binary)
        assert found["label_ids"] == expected["label_ids"]
        assert found["scores"] == expected["scores"]
    column = {
        **rows,
        "inputs": [dict(one, data=[[x] for x in one["data"]]) for one in rows["inputs"]],
    }
    assert infer(server, INFER, column, binary=False) == infer(server, INFER, rows, binary=False)


def test_texts_may_stand_in_a_column(server: ServerProcess) -> None:
    path = "/v2/models/text/infer"
    flat = infer(server, path, texts_of(TEXTS[:2]), binary=False)
    column = texts_of([[text] for text in TEXTS[:2]], shape=[2, 1])
    assert infer(server, path, column, binary=False) == flat
    assert infer(server, path, texts_of(TEXTS[:2], shape=[2, 1]), binary=True) == flat


def changed(i: int, **changes: Any) -> dict[str, Any]:
    """A request whose tensor i is another one."""
    inputs = csr(ROWS)
    inputs[i] = {key: value for key, value in {**inputs[i], **changes}.items() if value is not None}
    return {"inputs": inputs}


MANY = {"inputs": csr([ROWS[1]] * 101)}
LONG_ROW = {"indices": [1] * 100_001, "values": [1.0] * 100_001}
BAD = {
    "no tensors": ({"inputs": []}, "inputs"),
    "unknown field": (request_of(foo=1), "foo"),
    "parameters": (request_of(parameters=[]), "parameters"),
    "binary_data_output": (
        request_of(parameters={"timeout": 1, "binary_data_output": 1}),
        "parameters.binary_data_output",
    ),
    "binary_data": (
        request_of(outputs=[{"name": "scores", "parameters": {"n": 1, "binary_data": 1}}]),
        "outputs[0].parameters.binary_data",
    ),
    "binary_data_size": (
        changed(1, parameters={"content_type": "np", "binary_data_size": "1"}),
        "inputs[1].parameters.binary_data_size",
    ),
    "top_r": (request_of(parameters={"top_r": 0}), "parameters.top_r"),
    "top_r is text": (request_of(parameters={"top_r": "5"}), "parameters.top_r"),
    "unknown output": (request_of(outputs=[{"name": "logits"}]), "outputs[0].name"),
    "an output twice": (request_of(outputs=[{"name": "scores"}] * 2), "outputs[1].name"),
    "unknown tensor": (changed(2, name="weights"), "inputs[2].name"),
    "tensor twice": (changed(2, name="indices", datatype="INT32"), "inputs[2].name"),
    "a tensor too few": ({"inputs": csr(ROWS)[:2]}, "inputs"),
    "texts beside rows": ({"inputs": [*csr(ROWS), tensor("text", ["a"])]}, "inputs"),
    "type": (changed(0, datatype="INT32"), "inputs[0].datatype"),
    "shape": (changed(1, shape=[9]), "inputs[1].data"),
    "negative shape": (changed(1, shape=[-1]), "inputs[1].shape[0]"),
    "three dimensions": (changed(1, shape=[1, 1, 4]), "inputs[1].shape"),
    "two columns of ids": (changed(1, shape=[2, 2]), "inputs[1].shape"),
    "neither data nor a size": (changed(1, data=None), "inputs[1]"),
    "both": (changed(1, parameters={"binary_data_size": 16}), "inputs[1]"),
    "a text among ids": (changed(1, data=[1, "5", 33, 7]), "inputs[1].data[1]"),
    "true among ids": (changed(1, data=[1, True, 33, 7]), "inputs[1].data[1]"),
    "an id beyond 32 bits": (changed(1, data=[1, 2**31, 33, 7]), "inputs[1].data"),
    "an offset beyond 64 bits": (changed(0, data=[0, 2**63, 3, 4]), "inputs[0].data"),
    "indptr begins later": (changed(0, data=[1, 3, 3, 4]), "inputs[0]"),
    "indptr ends early": (changed(0, data=[0, 3, 3, 3]), "inputs[0]"),
    "indptr goes back": (changed(0, data=[0, 4, 3, 4]), "inputs[0]"),
    "indptr jumps": (changed(0, data=[0, 2**62, -(2**62), 4]), "inputs[0]"),
    "no rows": (changed(0, data=[0], shape=[1]), "inputs"),
    "no offsets": (changed(0, data=[], shape=[0]), "inputs"),
    "fewer values": (changed(2, data=[1.0], shape=[1]), "inputs[2].shape"),
    "a ragged column": (texts_of([["a", "b"], []], shape=[2, 1]), "inputs[0].data[0]"),
}
"""Requests that are refused as bad-request, and the place that is told."""

OTHERWISE_BAD = {
    "explain": (
        request_of(parameters={"explain": True}),
        "unsupported-option",
        "parameters.explain",
    ),
    "an id too high": (changed(1, data=[1, 5, 10**6, 7]), "bad-instance", "inputs"),
    "an id below 0": (changed(1, data=[1, 5, -1, 7]), "bad-instance", "inputs"),
    "a value beyond 32 bits": (changed(2, data=[1, 5, 1e39, 7]), "bad-instance", "rows[0]"),
    "a text for a model of rows": (texts_of(["a"]), "bad-instance", "inputs[0]"),
    "labels in all": (
        {**MANY, "parameters": {"top_r": 1000}},
        "limit-exceeded",
        "parameters.top_r",
    ),
    "too many rows": ({"inputs": csr([ROWS[1]] * 102)}, "limit-exceeded", "inputs"),
    "too many features": ({"inputs": csr([ROWS[0], LONG_ROW])}, "limit-exceeded", "rows[1]"),
    "too long a text": (texts_of(["a", "b" * 65]), "limit-exceeded", "inputs[0].data[1]"),
}


def binary_faults() -> dict[str, tuple[bytes, dict[str, str], str]]:
    """Bodies with binary data that do not add up, by what is wrong."""
    body, headers = binary_body(request_of())
    n_json = int(headers[HEADER])
    head, data = json.loads(body[:n_json]), body[n_json:]

    def sized(i: int, size: int, tail: bytes = data) -> tuple[bytes, dict[str, str]]:
        inputs = [dict(given) for given in head["inputs"]]
        inputs[i]["parameters"] = {"binary_data_size": size}
        text = json.dumps({**head, "inputs": inputs}).encode()
        return text + tail, {**headers, HEADER: str(len(text))}

    nan = data[:-4] + np.array([np.nan], "<f4").tobytes()
    texts, of_texts = binary_body(texts_of(["ab", "c"]))
    bad_utf8 = texts.replace(b"ab", b"\xff\xfe")
    long_text = texts.replace(b"\x02\0\0\0ab", b"\xff\xff\xff\xffab")
    return {
        "cut off": (body[:-1], headers, "inputs[2].parameters.binary_data_size"),
        "a byte more": (body + b"\0", headers, "inputs"),
        "a size too large": (*sized(2, 1 << 40), "inputs[2].parameters.binary_data_size"),
        "a size not of the shape": (
            *sized(2, 12, data[:-4]),
            "inputs[2].parameters.binary_data_size",
        ),
        "a size below 0": (*sized(2, -16), "inputs[2].parameters.binary_data_size"),
        "not a number": (body[:n_json] + nan, headers, "rows[2]"),
        "a header that is none": (body, {**headers, HEADER: "x"}, HEADER.lower()),
        "a header below 0": (body, {**headers, HEADER: "-1"}, HEADER.lower()),
        "a header beyond the body": (body, {**headers, HEADER: str(len(body) + 1)}, HEADER.lower()),
        "no UTF-8": (bad_utf8, of_texts, "inputs[0].data[0]"),
        "a text beyond the data": (long_text, of_texts, "inputs[0].data"),
    }


def refusals() -> Iterator[Any]:
    """A body, its headers, the code and the place of its refusal."""
    for name, (request, path) in BAD.items():
        yield pytest.param(json.dumps(request).encode(), {}, "bad-request", path, id=name)
    for name, (request, code, path) in OTHERWISE_BAD.items():
        yield pytest.param(json.dumps(request).encode(), {}, code, path, id=name)
    for name, (body, headers, path) in binary_faults().items():
        code = "bad-instance" if path == "rows[2]" else "bad-request"
        yield pytest.param(body, headers, code, path, id=name)


@pytest.mark.parametrize(("body", "headers", "code", "path"), list(refusals()))
def test_what_is_wrong_is_refused_with_its_place(
    server: ServerProcess, body: bytes, headers: dict[str, str], code: str, path: str
) -> None:
    status, _, content = server.exchange("POST", INFER, body, **headers)
    problem = json.loads(content)
    assert (status, problem["code"], problem["errors"][0]["path"]) == (422, code, path), problem
    assert problem["error"] == problem["detail"]
    assert "expected" in problem["error"]


def test_a_header_that_cuts_the_json_is_refused(server: ServerProcess) -> None:
    body, headers = binary_body(request_of())
    status, _, content = server.exchange("POST", INFER, body, **{**headers, HEADER: "10"})
    assert (status, json.loads(content)["code"]) == (400, "malformed-json")


def test_a_body_says_that_it_is_json_or_binary_or_nothing(server: ServerProcess) -> None:
    body = json.dumps(request_of()).encode()
    for media, status in (("text/plain", 415), ("application/octet-stream", 200), ("", 200)):
        found, _, content = server.exchange("POST", INFER, body, **{"content-type": media})
        assert found == status, content


def test_health_and_metadata(server: ServerProcess) -> None:
    assert server.ask("GET", "/v2")[1]["extensions"] == ["binary_tensor_data"]
    assert server.ask("GET", "/v2/health/live") == (200, {"live": True})
    assert server.ask("GET", "/v2/health/ready") == (200, {"ready": True})
    assert server.ask("GET", "/v2/models/raw/versions/1/ready") == (
        200,
        {"name": "raw", "ready": True},
    )
    rows = ["indptr", "indices", "values"]
    inputs = {"raw": rows, "named": rows, "text": ["text", *rows], "hashed": ["text", *rows]}
    for model, names in inputs.items():
        told = server.ask("GET", f"/v2/models/{model}")[1]["inputs"]
        assert [one["name"] for one in told] == names, model
    for path in ("none", "raw/versions/9", "raw/versions/x", "none/ready", "raw/versions/9/ready"):
        status, problem = server.ask("GET", f"/v2/models/{path}")
        assert (status, problem["error"]) == (404, problem["detail"])


def test_tuned_thresholds_name_their_epoch(own_store: Any) -> None:
    with ServerProcess(own_store.root) as server:
        request = request_of(parameters={"threshold": "tuned"})
        status, problem = server.ask("POST", INFER, request)
        assert (status, problem["code"]) == (409, "thresholds-not-tuned")
        event = {"event_id": "a", "instance": ROWS[0], "labels": ["label::1"]}
        assert server.ask("POST", "/v1/models/raw/feedback", event)[0] == 200
        options = {"threshold": "tuned", "top_r": 11}
        expected, _ = expected_of(server, "raw", ROWS, options)
        found = infer(server, INFER, request_of(parameters=options), binary=True)
        assert predictions_of(found) == expected
        predicted = server.ask("POST", "/v1/models/raw/predict", {"instances": ROWS, **options})[1]
        assert found["parameters"] == {
            "version": 2,
            "threshold_epoch": predicted["threshold_epoch"],
        }
        assert found["parameters"]["threshold_epoch"] >= 1


_FOREIGN = """
import json, sys
import numpy as np
import tritonclient.http as triton
port, texts = sys.argv[1], sys.argv[2:]
client = triton.InferenceServerClient(f"127.0.0.1:{port}")
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("text") and client.is_model_ready("raw", "1")
assert not client.is_model_ready("none")
assert client.get_server_metadata()["name"] == "xylem"
types = {one["name"]: one["datatype"] for one in client.get_model_metadata("text")["inputs"]}
rows = {"indptr": np.array([0, 2, 3]), "indices": np.array([1, 5, 7], np.int32)}
rows["values"] = np.array([1, 0.5, 3], np.float32)
answers, refused = [], None
for model, arrays in (("text", {"text": np.array(texts, object)}), ("raw", rows)):
    for is_binary in (True, False):
        inputs = [
            triton.InferInput(name, array.shape, types[name]) for name, array in arrays.items()
        ]
        for given, array in zip(inputs, arrays.values()):
            given.set_data_from_numpy(array, binary_data=is_binary)
        named = [
            triton.InferRequestedOutput(name, binary_data=False) for name in ("label_ids", "scores")
        ]
        outputs = None if is_binary else named
        found = client.infer(model, inputs, outputs=outputs, request_id="7",
            parameters={"top_r": 4})
        assert found.get_response()["id"] == "7"
        assert found.as_numpy("scores").dtype == np.float32
        assert not is_binary or found.as_numpy("labels").shape == (2, 4)
        answers.append([found.as_numpy("label_ids").tolist(), found.as_numpy("scores").tolist()])
try:
    client.infer("raw", inputs, parameters={"top_r": 0})
except triton.InferenceServerException as error:
    refused = [error.status(), error.message()]
print(json.dumps({"answers": answers, "refused": refused}))
"""


def test_the_client_of_another_server_predicts_and_is_refused(server: ServerProcess) -> None:
    if (
        not CLIENT.exists()
        or subprocess.run([CLIENT, "-c", "import tritonclient"], check=False).returncode
    ):
        pytest.skip("tritonclient is not installed (make test-system does)")
    command = [CLIENT, "-c", _FOREIGN, str(server.port), *TEXTS[:2]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    instances: dict[str, list[Any]] = {
        "text": [{"text": text} for text in TEXTS[:2]],
        "raw": [{"indices": [1, 5], "values": [1, 0.5]}, {"indices": [7], "values": [3]}],
    }
    for model, answers in (("text", found["answers"][:2]), ("raw", found["answers"][2:])):
        labels, _ = expected_of(server, model, instances[model], {"top_r": 4})
        for ids, scores in answers:
            assert ids == [[label for _, label, _ in row] for row in labels]
            assert np.array_equal(
                np.float32(scores), [[score for *_, score in row] for row in labels]
            )
    status, message = found["refused"]
    assert ("422" in status, message) == (True, "parameters.top_r: expected at least 1, found 0")
