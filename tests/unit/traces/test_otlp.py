"""Spans as bytes: what the SDK's own encoder writes of them, and what waits in how much room."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.sdk", reason="the packages of the extra otel are not installed")

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from service.errors import BadParameter
from service.traces.context import Sampling, TraceContext
from service.traces.otel import PARTS_A_PLACE, Exporter, OtlpSender, queue_limits
from service.traces.otlp import encode_request
from service.traces.tracer import EndedSpan, EndedTrace, SpanFacts, Trace, Tracer
from tests.otlp import Receiver
from tests.servers import wait_for

NANOSECONDS = st.integers(0, (1 << 64) - 1)
IDS = st.integers(1, (1 << 64) - 1)
VALUES = st.one_of(st.text(max_size=300), st.integers(-(1 << 63), (1 << 63) - 1), st.booleans())
STATES = st.sampled_from(["", "a=1", "vendor=x,other=y z", "k=" + "v" * 200])
SPANS = st.builds(
    EndedSpan,
    st.builds(TraceContext, st.integers(1, (1 << 128) - 1), IDS, st.just(True)),
    st.none() | IDS,
    st.booleans(),
    STATES,
    st.text(max_size=200),
    st.sampled_from(["server", "consumer", "internal"]),
    NANOSECONDS,
    NANOSECONDS,
    st.dictionaries(st.text(min_size=1, max_size=20), VALUES, max_size=6),
    st.none() | st.text(max_size=20),
).map(lambda span: span._replace(is_parent_remote=span.is_parent_remote and span.parent_id is not None))


@pytest.fixture(scope="module")
def exporter() -> Exporter:
    return Exporter(Resource({"service.name": "x", "process.pid": 7}))


@settings(deadline=None, max_examples=50)
@given(spans=st.lists(SPANS, max_size=5))
def test_they_are_what_the_sdk_writes(exporter: Exporter, spans: list[EndedSpan]) -> None:
    ours = ExportTraceServiceRequest.FromString(encode_request(*exporter.encoded, spans))
    theirs = encode_spans([exporter.readable(span, {}) for span in spans])
    if spans:
        assert ours == theirs
    else:
        assert [list(of.scope_spans[0].spans) for of in ours.resource_spans] == [[]]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return made


@pytest.mark.parametrize("is_quick", [True, False])
@pytest.mark.parametrize(("state", "sent"), [("a=1,c=3", "a=1,c=3"), ("a=1,b==,\u00e9=2", "")])
def test_they_are_sent_by_an_exporter_that_takes_no_bytes_too(
    receiver: Receiver, is_quick: bool, state: str, sent: str
) -> None:
    exporter = Exporter(Resource({"service.name": "x"}))
    assert exporter.is_quick
    exporter.is_quick = is_quick
    trace = Trace(TraceContext(5, 6, True), TraceContext(5, 4, True), state)
    facts = SpanFacts("GET /x", "server", 100, {"n": 1, "is": True}, [("read", 100, 150)], "overloaded")
    with receiver:
        exporter.export([EndedTrace(trace, facts, 200, 1000)])
        exporter.export([])
        assert receiver.n_requests == 1
    read, whole = receiver.spans
    assert (read.name, read.began, read.ended, read.parent_id) == ("read", 1100, 1150, whole.span_id)
    assert (whole.name, whole.began, whole.ended, whole.is_failed) == ("GET /x", 1100, 1200, True)
    assert whole.attributes == {"n": 1, "is": True, "error.type": "overloaded"}
    assert (whole.parent_id, whole.trace_id) == (f"{4:016x}", f"{5:032x}")
    assert read.state == whole.state == sent


def end(tracer: Tracer, name: str, n_parts: int) -> None:
    trace = tracer.begin()
    assert trace is not None
    tracer.end(trace, SpanFacts(name, "server", 0, {}, [("read", 1, 2)] * n_parts))


def test_a_long_stream_takes_several_places(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four places it takes three: one more request finds room, the next ones do not."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    with receiver:
        tracer = Tracer(Sampling(1 << 64, True), sender := OtlpSender("serve", os.environ))
        sender.close()  # nothing is taken from the queue any more
    end(tracer, "long", 3 * PARTS_A_PLACE - 1)
    for _ in range(3):
        end(tracer, "short", 1)
    assert sender.n_waiting == 4
    assert sender.n_dropped == 2


def test_a_batch_that_is_full_is_sent_before_its_time(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with receiver:
        tracer = Tracer(Sampling(1 << 64, True), sender := OtlpSender("serve", os.environ))
        for _ in range(8):
            end(tracer, "one", 2)
        wait_for(lambda: len(receiver.spans) == 24)
        sender.close()
    assert {span.resource["xylem.part"] for span in receiver.spans} == {"serve"}


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "10000001", "9" * 30, "\u0663"])
@pytest.mark.parametrize("name", ["MAX_QUEUE_SIZE", "SCHEDULE_DELAY", "MAX_EXPORT_BATCH_SIZE"])
def test_a_queue_that_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadParameter, match=f"OTEL_BSP_{name}: expected a whole number from 1 to 10000000"):
        queue_limits({f"OTEL_BSP_{name}": value})


def test_a_batch_is_not_larger_than_the_queue() -> None:
    assert queue_limits({}) == (2048, 5.0, 512)
    assert queue_limits({"OTEL_BSP_MAX_QUEUE_SIZE": " 16 ", "OTEL_BSP_SCHEDULE_DELAY": ""}) == (16, 5.0, 16)
