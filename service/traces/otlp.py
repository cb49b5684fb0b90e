"""Spans as the bytes of OpenTelemetry's protocol: an ExportTraceServiceRequest of opentelemetry-proto 1.

The SDK's encoder makes a message of Python objects for each span and attribute first, which is most of what a
sampled request costs. The fields are written in the order of their numbers, as the SDK writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from service.traces.tracer import EndedSpan

_KINDS = {"internal": 1, "server": 2, "consumer": 5}
_FAILED = b"z\2\x18\2"  # 15: a status, whose code, 3, is that of an error
_FINE = b"z\0"
_HAS_REMOTE, _IS_REMOTE = 0x100, 0x200  # of the flags
_IDS = Struct(">2s16s2sQ")  # 1: the trace's id; 2: the span's
_PARENT = Struct(">2sQ")  # 4: the parent's
_END = Struct("<2scQcQ")  # 6: the kind; 7 and 8: when it began and ended
_FLAGS = Struct("<2sI")  # 16
_VARINT_MASK = (1 << 64) - 1
_ATTRIBUTES_KEPT = 1024


def encode_request(resource: bytes, scope: bytes, spans: Iterable[EndedSpan]) -> bytes:
    """Return the body of a request that sends spans; their resource and their scope are encoded already."""
    of_scope = b"".join((_field(b"\n", scope), *(_field(b"\x12", _span(span)) for span in spans)))
    of_resource = _field(b"\n", resource) + _field(b"\x12", of_scope)
    return _field(b"\n", of_resource)


def _span(span: EndedSpan) -> bytes:
    attributes = [_attribute(key, value) for key, value in span.attributes.items()]
    if span.fault is not None:
        attributes.append(_attribute("error.type", span.fault))
    flags = _HAS_REMOTE | (_IS_REMOTE if span.is_parent_remote else 0)
    return b"".join(
        (
            _IDS.pack(b"\n\x10", span.own.trace_id.to_bytes(16), b"\x12\x08", span.own.span_id),
            _field(b"\x1a", span.state.encode()) if span.state else b"",
            b"" if span.parent_id is None else _PARENT.pack(b'"\x08', span.parent_id),
            _name(span.name),
            _END.pack(b"0%c" % _KINDS[span.kind], b"9", span.began, b"A", span.ended),
            *attributes,
            _FINE if span.fault is None else _FAILED,
            _FLAGS.pack(b"\x85\x01", flags),
        )
    )


@lru_cache(_ATTRIBUTES_KEPT)
def _name(name: str) -> bytes:
    return _field(b"*", name.encode(errors="replace"))


@lru_cache(_ATTRIBUTES_KEPT, typed=True)
def _attribute(key: str, value: str | int | bool) -> bytes:
    """Return an attribute, most of which are those of other spans, too."""
    if isinstance(value, bool):
        said = b"\x10%c" % value
    elif isinstance(value, int):
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
