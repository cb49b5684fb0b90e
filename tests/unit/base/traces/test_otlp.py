"""Spans as a receiver gets them, and what waits in how much room."""

import os

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the packages of the extra otel are not installed")

from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status
from tests.helpers.otlp import Receiver
from tests.helpers.servers import wait_for

from xylem.base.errors import BadParameter
from xylem.base.traces.otel import STRETCHES_A_PLACE, OtlpSender, add_spans, queue_limits
from xylem.base.traces.tracer import EndedTrace, Sampling, SpanShape, Trace, Tracer


@pytest.mark.parametrize("span_id", [1, 7, (1 << 64) - 3, (1 << 64) - 1])
def test_the_parts_have_ids_of_their_own(span_id: int) -> None:
    """Those that follow the span's: the last is followed by 1, as 0 is none."""
    trace, shape = Trace(f"{1:032x}", span_id), SpanShape("GET /x", "server", ())
    stretches = [(("read", "search"), (1, 2, 3)), (("write",), (3, 5))]
    found = ScopeSpans()
    add_spans(EndedTrace(trace, shape, None, 0, 6, 0, stretches), found)
    *parts, whole = found.spans
    assert whole.span_id == span_id.to_bytes(8, "big")
    assert {part.parent_span_id for part in parts} == {whole.span_id}
    assert len({span.span_id for span in found.spans} - {bytes(8)}) == 4


@pytest.mark.parametrize("is_continued", [True, False])
def test_what_a_span_says(is_continued: bool) -> None:
    """Flags: bit 8 says that it is known whether the parent is another process's, bit
    9 that it is.
    """
    trace = Trace(f"{5:032x}", 6, f"00-{5:032x}-{4:016x}-01" if is_continued else "")
    shape = SpanShape("job training", "consumer", (("n", -1),))
    found = ScopeSpans()
    add_spans(
        EndedTrace(trace, shape, None, 5, 12, 1000, [(("read", "features"), (5, 7, 7))]), found
    )
    part, whole = found.spans
    assert (part.kind, whole.kind) == (Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CONSUMER)
    assert (part.flags, whole.flags) == (0x100, 0x300 if is_continued else 0x100)
    assert whole.parent_span_id == ((4).to_bytes(8, "big") if is_continued else b"")
    assert (part.start_time_unix_nano, part.end_time_unix_nano) == (1005, 1007)
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (1005, 1012)
    assert whole.status.code == Status.STATUS_CODE_UNSET
    assert [(each.key, each.value.int_value) for each in whole.attributes] == [("n", -1)]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return made


@pytest.mark.parametrize(("state", "sent"), [("a=1,c=3", "a=1,c=3"), ("a=1,b==,\u00e9=2", "")])
def test_spans_are_received_as_they_ended(receiver: Receiver, state: str, sent: str) -> None:
    shape = SpanShape("GET /x", "server", (("n", 1),), "overloaded")
    trace = Trace(f"{5:032x}", 6, f"00-{5:032x}-{4:016x}-01", state)
    stretch = ("read", "features"), (100, 150, 150)
    with receiver:
        sender = OtlpSender("serve", os.environ)
        sender.send(EndedTrace(trace, shape, "x", 100, 200, 1000, [stretch]))
        sender.close()
    assert receiver.n_requests == 1
    read, whole = receiver.spans
    assert (read.name, read.began, read.ended, read.parent_id) == (
        "read",
        1100,
        1150,
        whole.span_id,
    )
    assert (whole.name, whole.began, whole.ended, whole.is_failed) == ("GET /x", 1100, 1200, True)
    assert whole.attributes == {"n": 1, "xylem.request_id": "x", "error.type": "overloaded"}
    assert (whole.parent_id, whole.trace_id) == (f"{4:016x}", f"{5:032x}")
    assert read.state == whole.state == sent
    assert whole.resource["service.name"] == "xylem"


def end(sender: OtlpSender, name: str, n_parts: int) -> None:
    tracer = Tracer(Sampling(1 << 64, True), sender.send, sender.close)
    trace = tracer.begin()
    tracer.end(trace, SpanShape(name, "server", ()), 0, [(("read",), (1, 2))] * n_parts)


def test_a_long_stream_takes_several_places(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four places it takes three: one more request finds room, the next ones do not."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    with receiver:
        sender = OtlpSender("serve", os.environ)
        sender.close()  # nothing is taken from the queue any more
    end(sender, "long", 3 * STRETCHES_A_PLACE - 1)
    for _ in range(3):
        end(sender, "short", 1)
    assert len(sender._waiting) == 4
    assert sender.n_dropped == 2


def test_a_full_batch_is_sent_before_its_time(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with receiver:
        sender = OtlpSender("serve", os.environ)
        for _ in range(8):
            end(sender, "one", 2)
        wait_for(lambda: len(receiver.spans) == 24)
        sender.close()
    assert {span.resource["xylem.part"] for span in receiver.spans} == {"serve"}


def test_an_exporter_without_what_sends_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """An exporter of another release."""

    monkeypatch.setattr("xylem.base.traces.otel.OTLPSpanExporter", Other)
    with pytest.raises(
        BadParameter, match=r"expected OpenTelemetry 1\.45, whose exporter .* found \d+\."
    ):
        OtlpSender("serve", {})


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "10000001", "9" * 30, "\u0663"])
@pytest.mark.parametrize("name", ["MAX_QUEUE_SIZE", "SCHEDULE_DELAY", "MAX_EXPORT_BATCH_SIZE"])
def test_a_queue_that_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(
        BadParameter, match=f"OTEL_BSP_{name}: expected a whole number from 1 to 10000000"
    ):
        queue_limits({f"OTEL_BSP_{name}": value})


def test_a_batch_is_not_larger_than_the_queue() -> None:
    assert queue_limits({}) == (2048, 5.0, 512)
    assert queue_limits({"OTEL_BSP_MAX_QUEUE_SIZE": " 16 ", "OTEL_BSP_SCHEDULE_DELAY": ""}) == (
        16,
        5.0,
        16,
    )
