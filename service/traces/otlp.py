"""Spans as messages of OpenTelemetry's protocol (opentelemetry-proto 1), made of what has ended.

The SDK makes an object of its own for each span and each attribute first, and takes seven times as long.
"""

from functools import lru_cache
from itertools import pairwise

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status
from opentelemetry.trace import TraceState

from service.traces.context import SPAN_ID
from service.traces.tracer import REQUEST_ID, EndedTrace, SpanShape

_KINDS = {"server": Span.SPAN_KIND_SERVER, "consumer": Span.SPAN_KIND_CONSUMER}
_IS_BEGUN, _IS_CONTINUED = 0x100, 0x300
"""Flags: that it is known whether the span above is another process's; and that it is."""

_IDS = (1 << 64) - 1
"""So many ids of spans there are; 0 is none."""

_KEPT = 256
"""Shapes of spans, and values of `tracestate`, that are remembered: a caller's requests have few."""


def add_spans(ended: EndedTrace, spans: ScopeSpans) -> None:
    """Add the spans of the parts, and then that of the whole. The id of a part follows that before it."""
    trace, since = ended.trace, ended.since
    trace_id, span_id, part_id = bytes.fromhex(trace.id), trace.span_id.to_bytes(8, "big"), trace.span_id
    state = _checked(trace.state) if trace.state else ""
    for names, at in ended.stretches:
        for name, (began, end) in zip(names, pairwise(at), strict=True):
            if end != began:
                part_id = part_id % _IDS + 1
                spans.spans.add(
                    trace_id=trace_id,
                    span_id=part_id.to_bytes(8, "big"),
                    trace_state=state,
                    parent_span_id=span_id,
                    name=name,
                    kind=Span.SPAN_KIND_INTERNAL,
                    start_time_unix_nano=began + since,
                    end_time_unix_nano=end + since,
                    flags=_IS_BEGUN,
                )
    whole = spans.spans.add(
        trace_id=trace_id,
        span_id=span_id,
        trace_state=state,
        parent_span_id=bytes.fromhex(trace.parent[SPAN_ID]),
        start_time_unix_nano=ended.began + since,
        end_time_unix_nano=ended.ended + since,
        flags=_IS_CONTINUED if trace.parent else _IS_BEGUN,
    )
    whole.MergeFrom(_alike(ended.shape))
    if ended.request_id is not None:
        whole.attributes.append(_attribute(REQUEST_ID, ended.request_id))


@lru_cache(_KEPT)
def _alike(shape: SpanShape) -> Span:
    """Return what spans of a shape have in common."""
    attributes = [_attribute(*each) for each in shape.attributes]
    span = Span(name=shape.name, kind=_KINDS[shape.kind], attributes=attributes)
    if shape.fault is not None:
        span.attributes.append(_attribute("error.type", shape.fault))
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _attribute(name: str, value: str | int) -> KeyValue:
    said = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=name, value=said)


@lru_cache(_KEPT)
def _checked(state: str) -> str:
    """Return a `tracestate` without what breaks the standard's rules."""
    return TraceState.from_header([state]).to_header()
