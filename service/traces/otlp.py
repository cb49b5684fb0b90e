"""Spans as the bytes of OpenTelemetry's protocol: an ExportTraceServiceRequest of opentelemetry-proto 1.

The SDK's encoder makes a message of Python objects for each span and attribute first, which is most of what a
sampled request costs. The fields are written in the order of their numbers, as the SDK writes them; what
spans have in common that are alike is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from struct import Struct

from service.traces.tracer import EndedTrace, SpanShape

_KINDS = {"internal": 1, "server": 2, "consumer": 5}
_FAILED = b"z\2\x18\2"  # 15: a status, whose code, 3, is that of an error
_FINE = b"z\0"
_SPAN = b"\x12"  # 2 of the scope's spans
_IDS = Struct(">2s16s2sQ")  # 1: the trace's id; 2: the span's
_PARENT = Struct(">2sQ")  # 4: the parent's
_TIMES = Struct("<cQcQ")  # 7 and 8: when it began and ended, behind 6: the kind
_FLAGS = Struct("<2sI")  # 16: whether it is known if the parent is another process's, and if it is
_IS_BEGUN, _IS_CONTINUED = (_FLAGS.pack(b"\x85\x01", flags) for flags in (0x100, 0x300))
_PART_END = _FINE + _IS_BEGUN
_VARINT_MASK = (1 << 64) - 1
_SHAPES_KEPT = 1024


def encode_request(resource: bytes, scope: bytes, traces: Iterable[EndedTrace]) -> bytes:
    """Return the body of a request that sends spans; their resource and their scope are encoded already."""
    of_scope = b"".join((_field(b"\n", scope), *(span for trace in traces for span in _spans(trace))))
    of_resource = _field(b"\n", resource) + _field(b"\x12", of_scope)
    return _field(b"\n", of_resource)


def _spans(trace: EndedTrace) -> Iterator[bytes]:
    """Yield the spans of `trace.spans()`."""
    own, parent, state, (shape, attributes, began, parts), ended, since = trace
    trace_id = own.trace_id.to_bytes(16, "big")
    of_state = _field(b"\x1a", state.encode()) if state else b""
    beneath = _PARENT.pack(b'"\x08', own.span_id)
    for span_id, (part, start, end) in zip(trace.part_ids(), parts, strict=True):
        ids = _IDS.pack(b"\n\x10", trace_id, b"\x12\x08", span_id)
        times = _TIMES.pack(b"9", start + since, b"A", end + since)
        yield _field(_SPAN, b"".join((ids, of_state, beneath, _part(part), times, _PART_END)))
    front, alike, status = _shape(shape)
    yield _field(
        _SPAN,
        b"".join(
            (
                _IDS.pack(b"\n\x10", trace_id, b"\x12\x08", own.span_id),
                of_state,
                b"" if parent is None else _PARENT.pack(b'"\x08', parent.span_id),
                front,
                _TIMES.pack(b"9", began + since, b"A", ended + since),
                alike,
                *(_attribute(name, value) for name, value in attributes),
                status,
                _IS_BEGUN if parent is None else _IS_CONTINUED,
            )
        ),
    )


@lru_cache(_SHAPES_KEPT)
def _part(name: str) -> bytes:
    """Return the name and the kind of a part."""
    return _name(name) + b"0%c" % _KINDS["internal"]


@lru_cache(_SHAPES_KEPT)
def _shape(shape: SpanShape) -> tuple[bytes, bytes, bytes]:
    """Return what stands before the times of a span, its attributes, and its status, as far as alike."""
    front = _name(shape.name) + b"0%c" % _KINDS[shape.kind]
    attributes = b"".join(_attribute(name, value) for name, value in shape.said)
    return front, attributes, _FINE if shape.fault is None else _FAILED


def _name(name: str) -> bytes:
    return _field(b"*", name.encode(errors="replace"))


def _attribute(key: str, value: str | int) -> bytes:
    if isinstance(value, int):
        said = b"\x18" + _varint(value & _VARINT_MASK)
    else:
        said = _field(b"\n", value.encode(errors="replace"))
    return _field(b"J", _field(b"\n", key.encode()) + _field(b"\x12", said))


def _field(tag: bytes, value: bytes) -> bytes:
    """Return a field whose value has a length."""
    return b"%b%b%b" % (tag, _varint(len(value)), value)


def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; each but the last has its eighth bit set."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
