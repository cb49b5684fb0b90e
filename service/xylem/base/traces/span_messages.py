"""Spans as messages of OpenTelemetry's protocol."""

from functools import lru_cache
from itertools import pairwise

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status
from opentelemetry.trace import TraceState

from xylem.base.traces.trace_context import SPAN_ID
from xylem.base.traces.tracer import REQUEST_ID, EndedTrace, SpanShape

_KINDS = {"server": Span.SPAN_KIND_SERVER, "consumer": Span.SPAN_KIND_CONSUMER}
# Flags of a span: that it is known whether its parent is remote; and that it is remote.
_IS_BEGUN = 0x100
_IS_CONTINUED = 0x300

_IDS = (1 << 64) - 1  # the number of valid span ids; 0 is none
# cached shapes of spans, and values of `tracestate`: a caller's requests have few different ones
_CACHE_SIZE = 256


def add_spans(ended: EndedTrace, spans: ScopeSpans) -> None:
    """Add the spans of the stages of a trace, and then the span of the whole request or job.

    The id of each stage is that of the previous span plus one.
    """
    trace = ended.trace
    clock_offset = ended.clock_offset
    trace_id = bytes.fromhex(trace.id)
    span_id = trace.span_id.to_bytes(8, "big")
    part_id = trace.span_id
    state = _checked(trace.state) if trace.state else ""
    for names, times in ended.stretches:
        for name, (began, end) in zip(names, pairwise(times), strict=True):
            if end != began:
                part_id = part_id % _IDS + 1
                spans.spans.add(
                    trace_id=trace_id,
                    span_id=part_id.to_bytes(8, "big"),
                    trace_state=state,
                    parent_span_id=span_id,
                    name=name,
                    kind=Span.SPAN_KIND_INTERNAL,
                    start_time_unix_nano=began + clock_offset,
                    end_time_unix_nano=end + clock_offset,
                    flags=_IS_BEGUN,
                )
    main_span = spans.spans.add(
        trace_id=trace_id,
        span_id=span_id,
        trace_state=state,
        parent_span_id=bytes.fromhex(trace.parent[SPAN_ID]),
        start_time_unix_nano=ended.began + clock_offset,
        end_time_unix_nano=ended.ended + clock_offset,
        flags=_IS_CONTINUED if trace.parent else _IS_BEGUN,
    )
    main_span.MergeFrom(_alike(ended.shape))
    if ended.request_id is not None:
        main_span.attributes.append(_attribute(REQUEST_ID, ended.request_id))


@lru_cache(_CACHE_SIZE)
def _alike(shape: SpanShape) -> Span:
    """Return the common part of all spans of a shape."""
    span = Span(
        name=shape.name,
        kind=_KINDS[shape.kind],
        attributes=[_attribute(*attribute) for attribute in shape.attributes],
    )
    if shape.fault is not None:
        span.attributes.append(_attribute("error.type", shape.fault))
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _attribute(name: str, value: str | int) -> KeyValue:
    return KeyValue(
        key=name,
        value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value),
    )


@lru_cache(_CACHE_SIZE)
def _checked(state: str) -> str:
    """Return a `tracestate` without the entries that break the standard's rules."""
    return TraceState.from_header([state]).to_header()
