"""The Open Inference Protocol over gRPC, with real processes and sockets: predict's answers, the
door of HTTP, and its refusals.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests.helpers.grpc_calls import (
    SECONDS,
    Refusal,
    ask,
    channel_to,
    method,
    refusal,
    refusal_of,
    typed,
)
from tests.helpers.oip_requests import csr, elements_of, packed, predictions_of
from tests.helpers.otlp import Receiver
from tests.helpers.served_models import TEXTS
from tests.helpers.servers import KEY, ServerProcess, wait_for

from xylem.extras.grpc.messages import SERVICE, message_class

Code = grpc.StatusCode
ROWS = [
    {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]},
    {"indices": [], "values": []},
    {"indices": [7], "values": [3]},
]
INFER = "ModelInfer"


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    limits = {"text_bytes_max": 64, "instances_max": 2000, "body_bytes_max": 1 << 20}
    with ServerProcess(shared_store, grpc_port=0, threads_max=1, **limits) as process:
        yield process


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with channel_to(server) as opened:
        yield opened


def text_call(texts: list[str], **changes: Any) -> dict[str, Any]:
    return {"model_name": "text", "inputs": [typed("text", texts)], **changes}


def row_call(rows: list[Any], *, is_raw: bool = False, **changes: Any) -> dict[str, Any]:
    """The fields of a call for sparse rows."""
    tensors = csr(rows)
    inputs = [typed(one["name"], one["data"]) for one in tensors]
    call = {"model_name": "raw", "inputs": inputs, **changes}
    if is_raw:
        for tensor in inputs:
            del tensor["contents"]
        call["raw_input_contents"] = [packed(one) for one in tensors]
    return call


def outputs_of(response: Any) -> dict[str, Any]:
    """The outputs of a response by name, each as rows."""
    outputs: dict[str, Any] = {}
    for i, output in enumerate(response.outputs):
        if response.raw_output_contents:
            data = elements_of(response.raw_output_contents[i], output.datatype)
        else:
            ((_, contents),) = output.contents.ListFields()
            data = [one.decode() if isinstance(one, bytes) else one for one in contents]
        rows = np.array(data, object).reshape(tuple(output.shape))
        outputs[output.name] = rows.tolist()
    return outputs


def expected_of(server: ServerProcess, model: str, instances: list[Any], options: Any) -> Any:
    """What predict answers over HTTP: (name, id, score) of each row's labels."""
    body = {"instances": instances, **options}
    status, answer = server.ask("POST", f"/v1/models/{model}/predict", body)
    assert status == 200, answer
    return [
        [(one["label"], one["id"], np.float32(one["score"])) for one in row["labels"]]
        for row in answer["predictions"]
    ]


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"top_r": 3, "threshold": 0.2}, {"top_r": ("int64", 3), "threshold": ("double", 0.2)}),
    ({"exact": True, "beam_width": 4}, {"exact": ("bool", True), "beam_width": ("uint64", 4)}),
    (
        {"allow_labels": ["label::1", "label::3"], "deadline_ms": 20_000},
        {
            "allow_labels": ("string", '["label::1", "label::3"]'),
            "deadline_ms": ("string", "20000"),
        },
    ),
]
"""Options over HTTP, and the same as parameters of a message: the kind of each, and its value."""


@pytest.mark.parametrize("is_raw", [True, False])
@pytest.mark.parametrize(("options", "kinds"), OPTIONS)
def test_answers_are_those_of_predict(
    server: ServerProcess, channel: grpc.Channel, options: Any, kinds: Any, is_raw: bool
) -> None:
    parameters = {name: {f"{kind}_param": value} for name, (kind, value) in kinds.items()}
    response = ask(channel, INFER, **row_call(ROWS, is_raw=is_raw, parameters=parameters, id="a-7"))
    assert predictions_of(outputs_of(response)) == expected_of(server, "raw", ROWS, options)
    assert (len(response.raw_output_contents) > 0) == is_raw
    assert (response.model_name, response.model_version, response.id) == ("raw", "2", "a-7")
    assert response.parameters["version"].int64_param == 2
    if not is_raw:
        response = ask(channel, INFER, **text_call(TEXTS[:3], parameters=parameters))
        texts = [{"text": text} for text in TEXTS[:3]]
        assert predictions_of(outputs_of(response)) == expected_of(server, "text", texts, options)


def test_many_rows_are_answered_by_a_thread(server: ServerProcess, channel: grpc.Channel) -> None:
    rows = ROWS * 300
    response = ask(channel, INFER, **row_call(rows, model_version="1"))
    expected = expected_of(server, "raw/versions/1", rows, {})
    assert predictions_of(outputs_of(response)) == expected
    assert response.model_version == "1"


def test_outputs_are_those_that_are_asked_for(channel: grpc.Channel) -> None:
    outputs = [{"name": "scores"}, {"name": "label_ids"}]
    response = ask(channel, INFER, **row_call(ROWS, outputs=outputs))
    assert [output.name for output in response.outputs] == ["scores", "label_ids"]


def test_server_and_models_say_what_they_are(channel: grpc.Channel) -> None:
    assert ask(channel, "ServerLive").live and ask(channel, "ServerReady").ready
    metadata = ask(channel, "ServerMetadata")
    assert (metadata.name, list(metadata.extensions)) == ("xylem", ["binary_tensor_data"])
    assert ask(channel, "ModelReady", name="raw", version="1").ready
    model = ask(channel, "ModelMetadata", name="raw")
    assert (model.name, list(model.versions)) == ("raw", ["1", "2"])
    assert [(one.name, one.datatype, list(one.shape)) for one in model.inputs] == [
        ("indptr", "INT64", [-1]),
        ("indices", "INT32", [-1]),
        ("values", "FP32", [-1]),
    ]


def test_models_are_closed_and_opened_by_calls(shared_store: Path) -> None:
    admin = [("authorization", f"Bearer {KEY}")]
    with (
        ServerProcess(shared_store, grpc_port=0, admin_key=KEY) as server,
        channel_to(server) as channel,
    ):

        def open_models() -> set[str]:
            index = ask(channel, "RepositoryIndex", metadata=admin, ready=True)
            return {entry.name for entry in index.models}

        assert {"raw", "text"} <= open_models()
        ask(channel, "RepositoryModelUnload", metadata=admin, model_name="raw")
        assert "raw" not in open_models()
        ask(channel, "RepositoryModelLoad", metadata=admin, model_name="raw")
        assert "raw" in open_models()
        refused = refusal(channel, "RepositoryModelLoad", metadata=admin, model_name="no")
        assert refused.status == Code.NOT_FOUND
        assert refusal(channel, "RepositoryIndex").status == Code.UNAUTHENTICATED


def changed(call: dict[str, Any], index: int, **changes: Any) -> dict[str, Any]:
    """A call, one of whose inputs is changed."""
    inputs = list(call["inputs"])
    inputs[index] = {**inputs[index], **changes}
    return {**call, "inputs": inputs}


def cut(call: dict[str, Any]) -> dict[str, Any]:
    """A call with raw contents, the second of which is too short."""
    contents = list(call["raw_input_contents"])
    return {**call, "raw_input_contents": [contents[0], contents[1][:-1], contents[2]]}


GOOD = row_call(ROWS)
BAD = [
    (Code.NOT_FOUND, "model-not-found", "expected one of the store", {**GOOD, "model_name": "no"}),
    (Code.NOT_FOUND, "version-not-found", "", {**GOOD, "model_version": "77"}),
    (Code.NOT_FOUND, "version-not-found", "a number", {**GOOD, "model_version": "1/infer"}),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        "inputs[2].name: expected one of text, ",
        changed(GOOD, 2, name="weights"),
    ),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        'inputs[2].datatype: expected FP32, found "FP64"',
        changed(GOOD, 2, datatype="FP64"),
    ),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        "inputs[1].shape: expected a shape [n] or [n, 1], found [2, 2]",
        changed(GOOD, 1, shape=[2, 2]),
    ),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        "inputs[0].shape[0]: expected at least 0, found -4",
        changed(GOOD, 0, shape=[-4]),
    ),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        "inputs[1]: expected 16 bytes, 4 for each of 4 elements, found 15",
        cut(row_call(ROWS, is_raw=True)),
    ),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        "inputs[0].contents: expected contents or raw_input_contents, found both",
        {**GOOD, "raw_input_contents": row_call(ROWS, is_raw=True)["raw_input_contents"]},
    ),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        "inputs[0].data[1]: expected UTF-8, found byte 0xff at 1",
        changed(text_call(["a", "b"]), 0, contents={"bytes_contents": [b"a", b"b\xff"]}),
    ),
    (Code.INVALID_ARGUMENT, "limit-exceeded", "text_bytes_max", text_call(["a" * 65])),
    (
        Code.INVALID_ARGUMENT,
        "bad-request",
        "parameters.deadline_ms: expected null or an integer of at least 1, found 0",
        {**GOOD, "parameters": {"deadline_ms": {"int64_param": 0}}},
    ),
    (
        Code.INVALID_ARGUMENT,
        "unsupported-option",
        "parameters.explain",
        {**GOOD, "parameters": {"explain": {"bool_param": True}}},
    ),
    (
        Code.FAILED_PRECONDITION,
        "thresholds-not-tuned",
        "",
        {**GOOD, "parameters": {"threshold": {"string_param": "tuned"}}},
    ),
]


@pytest.mark.parametrize(("status", "code", "detail", "call"), BAD)
def test_what_is_wrong_is_refused(
    channel: grpc.Channel, status: grpc.StatusCode, code: str, detail: str, call: dict[str, Any]
) -> None:
    refused = refusal(channel, INFER, **call)
    assert refused[:2] == (status, code) and detail in refused.detail, refused


def test_a_message_is_as_long_as_a_body_may_be(
    server: ServerProcess, channel: grpc.Channel
) -> None:
    """Also one that is short because it is compressed."""
    ends = {"name": "text", "datatype": "BYTES", "shape": [1]}

    def call_of(n: int) -> dict[str, Any]:
        return {"model_name": "text", "inputs": [ends], "raw_input_contents": [b"\0" * n]}

    assert refusal(channel, INFER, **call_of((1 << 20) - 100)).status is Code.INVALID_ARGUMENT
    for compression in (None, grpc.Compression.Gzip):
        request = message_class("ModelInferRequest")(**call_of(1 << 20))
        with pytest.raises(grpc.RpcError) as refused:
            method(channel, INFER)(request, timeout=SECONDS, compression=compression)
        assert refusal_of(refused.value).status is Code.RESOURCE_EXHAUSTED
    assert ask(channel, "ServerReady").ready


def test_what_is_no_message_and_unknown_methods_are_refused(channel: grpc.Channel) -> None:
    """No message at all is an empty one."""
    for name, content, status in (
        (INFER, b"\xff\xff", Code.INVALID_ARGUMENT),
        (INFER, b"\x0a\x02\xff\xfe", Code.INVALID_ARGUMENT),
        ("ModelStreamInfer", b"", Code.UNIMPLEMENTED),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(f"/{SERVICE}/{name}")(content, timeout=SECONDS)
        assert refused.value.code() is status
    stream = channel.stream_unary(f"/{SERVICE}/{INFER}")
    with pytest.raises(grpc.RpcError) as refused:
        stream(iter(()), timeout=SECONDS)
    assert refused.value.details() == "model_name: expected the name of a model, found none"


def test_a_deadline_cancels_also_what_waits(server: ServerProcess, channel: grpc.Channel) -> None:
    """One thread has much to do; what is cancelled is logged as 499, and leaves the queue."""
    infer = method(channel, INFER)
    parameters = {"exact": {"bool_param": True}, "top_r": {"int64_param": 50}}
    long = message_class("ModelInferRequest")(**row_call(ROWS * 600, parameters=parameters))
    ids = [f"cancelled-{i}" for i in range(20)]
    with pytest.raises(grpc.RpcError) as refused:
        infer(long, timeout=0)
    assert refused.value.code() is Code.DEADLINE_EXCEEDED
    calls = [infer.future(long, timeout=SECONDS, metadata=[("x-request-id", i)]) for i in ids]
    wait_for(lambda: waiting(server) > 10)
    for call in calls:
        call.cancel()
    statuses = {event["status"] for event in server.requests(ids)}
    assert 499 in statuses <= {200, 499}
    wait_for(lambda: waiting(server) == 0)
    assert ask(channel, INFER, **row_call(ROWS * 30)).model_name == "raw"


def waiting(server: ServerProcess) -> float:
    """How many predictions wait for a thread."""
    page = server.ask("GET", "/metrics")[1].decode()
    (line,) = (one for one in page.splitlines() if one.startswith('xylem_queue_depth{queue="pred'))
    return float(line.rpartition(" ")[2])


def test_a_call_is_counted_logged_and_traced(
    shared_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_id, span_id = "1" * 32, "2" * 16
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with ServerProcess(shared_store, grpc_port=0, traces=1) as server:
            with channel_to(server) as channel:
                metadata = [
                    ("x-request-id", "call-1"),
                    ("traceparent", f"00-{trace_id}-{span_id}-01"),
                ]
                request = message_class("ModelInferRequest")(**GOOD)
                _, call = method(channel, INFER).with_call(request, metadata=metadata)
                assert ("x-request-id", "call-1") in call.trailing_metadata()
            (event,) = server.requests(["call-1"])
            assert event["route"] == "/v2/models/{model}/infer"
            assert (event["path"], event["status"]) == ("/v2/models/raw/infer", 200)
            assert (event["model"], event["version"], event["trace_id"]) == ("raw", 2, trace_id)
            page = server.ask("GET", "/metrics")[1].decode()
            labels = 'model="raw",route="/v2/models/{model}/infer",status="200",version="2"'
            assert f"xylem_requests_total{{{labels}}} 1.0" in sorted_labels(page)
            assert 'xylem_rows_total{model="raw"} 3.0' in page
            wait_for(lambda: len(receiver.of_trace(trace_id)) > 0)
            span = next(one for one in receiver.of_trace(trace_id) if one.parent_id == span_id)
            assert span.attributes["http.route"] == "/v2/models/{model}/infer"


def sorted_labels(page: str) -> list[str]:
    """The lines of a page of figures, with labels in the order of their names."""
    lines = []
    for line in page.splitlines():
        name, brace, rest = line.partition("{")
        labels, _, value = rest.partition("} ")
        lines.append(f"{name}{{{','.join(sorted(labels.split(',')))}}} {value}" if brace else line)
    return lines


def test_keys_are_those_of_http(shared_store: Path) -> None:
    """Probes need none; a scope that is missing is a permission that is denied."""
    with (
        ServerProcess(shared_store, grpc_port=0, admin_key=KEY, open_scopes="none") as server,
        channel_to(server) as channel,
    ):
        assert ask(channel, "ServerReady").ready
        assert refusal(channel, INFER, **GOOD)[:2] == (Code.UNAUTHENTICATED, "unauthorized")
        reader = server.admin("POST", "/keys", {"name": "reader", "scopes": ["metrics"]})[1]
        for key, expected in (
            (KEY, None),
            ("wrong", (Code.UNAUTHENTICATED, "unauthorized")),
            (reader["key"], (Code.PERMISSION_DENIED, "scope-missing")),
        ):
            call = {**GOOD, "metadata": [("authorization", f"Bearer {key}")]}
            if expected is None:
                assert ask(channel, INFER, **call).model_name == "raw"
            else:
                assert refusal(channel, INFER, **call)[:2] == expected


def test_what_is_too_much_is_refused_until_when(shared_store: Path) -> None:
    """A call whose message is awaited takes the only place: the next one takes that from it. One
    whose message does not come is ended.
    """
    with (
        ServerProcess(
            shared_store, grpc_port=0, requests_max=1, body_seconds_max=5, drain_seconds=0
        ) as server,
        channel_to(server) as channel,
    ):
        stream = channel.stream_unary(f"/{SERVICE}/{INFER}")
        ends = threading.Event()

        def wait() -> Iterator[bytes]:
            ends.wait(SECONDS)
            yield b""

        held = stream.future(wait(), timeout=SECONDS)
        with channel_to(server) as other:  # a connection has as many calls as may be in flight
            wait_for(lambda: ask(other, INFER, **GOOD).model_name == "raw" and held.done())
        error = held.exception()
        assert refusal_of(error)[:2] == (Code.UNAVAILABLE, "overloaded")
        metadata = dict(error.trailing_metadata())
        assert (metadata["retry-after"], metadata["grpc-retry-pushback-ms"]) == ("1", "1000")
        assert metadata["x-request-id"]
        slow = refusal_of(stream.future(wait(), timeout=SECONDS).exception())
        assert slow == Refusal(
            Code.DEADLINE_EXCEEDED, "body-timeout", "expected the whole body within 5 seconds"
        )
        ends.set()
        assert server.terminate() == 0


def test_changed_bytes_of_messages_are_answered_or_refused(
    server: ServerProcess, channel: grpc.Channel, seed: int
) -> None:
    """Whatever they say, the service does not fail."""
    random = np.random.default_rng(seed)
    calls = [GOOD, row_call(ROWS, is_raw=True, id="7"), text_call(TEXTS[:2])]
    messages = [message_class("ModelInferRequest")(**call).SerializeToString() for call in calls]
    infer = channel.unary_unary(f"/{SERVICE}/{INFER}")
    seen = set()
    for turn in range(600):
        message = bytearray(messages[turn % 3])
        for _ in range(random.integers(1, 4)):
            message[random.integers(len(message))] = random.integers(256)
        try:
            infer(bytes(message), timeout=SECONDS)
            seen.add(Code.OK)
        except grpc.RpcError as error:
            seen.add(refusal_of(error).status)
    assert {Code.OK, Code.INVALID_ARGUMENT} <= seen
    assert seen <= {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION}
    assert server.events("failure") == []
