"""Spans as bytes: what the SDK's own encoder writes of them, and what waits in how much room."""

import os
from typing import Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.sdk", reason="the packages of the extra otel are not installed")

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from service.base.errors import BadParameter
from service.base.stages import Stretch
from service.traces.context import Sampling
from service.traces.otel import STRETCHES_A_PLACE, Exporter, OtlpSender, queue_limits
from service.traces.otlp import encode_request
from service.traces.tracer import EndedTrace, SpanShape, Trace, Tracer
from tests.otlp import Receiver
from tests.servers import wait_for

NANOSECONDS = st.integers(0, 1 << 62)
IDS = st.integers(1, (1 << 64) - 1)
VALUES = st.one_of(st.text(max_size=300), st.integers(-(1 << 63), (1 << 63) - 1))
STATES = st.sampled_from(["", "a=1", "vendor=x,other=y z", "k=" + "v" * 200])


@st.composite
def traces(draw: st.DrawFn) -> EndedTrace:
    """Ended traces, each attribute with a name of its own."""
    names = draw(st.lists(st.text(min_size=1, max_size=20), max_size=6, unique=True))
    attributes = tuple((name, draw(VALUES)) for name in names)
    kind: Literal["server", "consumer"] = draw(st.sampled_from(("server", "consumer")))
    fault = draw(st.none() | st.text(max_size=20))
    shape = SpanShape(draw(st.text(max_size=200)), kind, attributes, fault)
    trace_id = f"{draw(st.integers(1, (1 << 128) - 1)):032x}"
    span_id, parent_id = draw(IDS), draw(st.none() | IDS)
    assume(parent_id != span_id)
    parent = "" if parent_id is None else f"00-{trace_id}-{parent_id:016x}-01"
    trace = Trace(trace_id, span_id, parent, draw(STATES))
    request_id = draw(st.none() | st.text(max_size=200))
    times = draw(NANOSECONDS), draw(NANOSECONDS), draw(NANOSECONDS)
    return EndedTrace(trace, shape, request_id, *times, draw(st.lists(stretches(), max_size=3)))


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    """Parts that follow each other; some take no time."""
    names = draw(st.lists(st.text(max_size=200), max_size=4))
    at = draw(st.lists(NANOSECONDS, min_size=len(names) + 1, max_size=len(names) + 1))
    for i in draw(st.sets(st.integers(1, len(names)))) if names else ():
        at[i] = at[i - 1]
    return tuple(names), at


@pytest.fixture(scope="module")
def exporter() -> Exporter:
    return Exporter(Resource({"service.name": "x", "process.pid": 7}))


@settings(max_examples=50)
@given(ended=st.lists(traces(), max_size=3))
def test_they_are_what_the_sdk_writes(exporter: Exporter, ended: list[EndedTrace]) -> None:
    ours = ExportTraceServiceRequest.FromString(encode_request(*exporter.encoded, ended))
    theirs = encode_spans([exporter.readable(span, {}) for trace in ended for span in trace.spans()])
    if ended:
        assert ours == theirs
    else:
        assert [list(of.scope_spans[0].spans) for of in ours.resource_spans] == [[]]


@pytest.mark.parametrize("span_id", [1, 7, (1 << 64) - 3, (1 << 64) - 1])
def test_the_parts_have_ids_of_their_own(span_id: int) -> None:
    """Those that follow the span's: the last is followed by 1, as 0 is none."""
    trace = Trace(f"{1:032x}", span_id)
    stretches = [(("read", "search"), (1, 2, 3)), (("write",), (3, 5))]
    *parts, whole = EndedTrace(trace, SpanShape("GET /x", "server", ()), None, 0, 6, 0, stretches).spans()
    ids = [part.span_id for part in parts]
    assert whole.span_id == span_id
    assert len({span_id, *ids}) == 4
    assert all(0 < each < 1 << 64 for each in ids)


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
    shape = SpanShape("GET /x", "server", (("n", 1),), "overloaded")
    trace = Trace(f"{5:032x}", 6, f"00-{5:032x}-{4:016x}-01", state)
    stretch = ("read", "features"), (100, 150, 150)
    ended = EndedTrace(trace, shape, "x", 100, 200, 1000, [stretch])
    with receiver:
        exporter.export([ended])
        exporter.export([])
        assert receiver.n_requests == 1
    read, whole = receiver.spans
    assert (read.name, read.began, read.ended, read.parent_id) == ("read", 1100, 1150, whole.span_id)
    assert (whole.name, whole.began, whole.ended, whole.is_failed) == ("GET /x", 1100, 1200, True)
    assert whole.attributes == {"n": 1, "xylem.request_id": "x", "error.type": "overloaded"}
    assert (whole.parent_id, whole.trace_id) == (f"{4:016x}", f"{5:032x}")
    assert read.state == whole.state == sent


def end(tracer: Tracer, name: str, n_parts: int) -> None:
    trace = tracer.begin()
    assert trace is not None
    tracer.end(trace, SpanShape(name, "server", ()), 0, [(("read",), (1, 2))] * n_parts)


def test_a_long_stream_takes_several_places(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four places it takes three: one more request finds room, the next ones do not."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    with receiver:
        sender = OtlpSender("serve", os.environ)
        tracer = Tracer(Sampling(1 << 64, True), sender.send, sender.close)
        sender.close()  # nothing is taken from the queue any more
    end(tracer, "long", 3 * STRETCHES_A_PLACE - 1)
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
        sender = OtlpSender("serve", os.environ)
        tracer = Tracer(Sampling(1 << 64, True), sender.send, sender.close)
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
