"""Spans as the bytes of OpenTelemetry's protocol: an ExportTraceServiceRequest of opentelemetry-proto 1.

The SDK's encoder makes a message of Python objects for each span and attribute first, which is most of what a
sampled request costs. The fields are written in the order of their numbers, as the SDK writes them; what
spans have in common that are alike is encoded once.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct

from service.traces.context import SPAN_ID
from service.traces.tracer import REQUEST_ID, EndedTrace, SpanShape, id_after

_KINDS = {"internal": 1, "server": 2, "consumer": 5}
_FAILED = b"z\2\x18\2"  # 15: a status, whose code, 3, is that of an error
_FINE = b"z\0"
_SPAN = b"\x12"  # 2 of the scope's spans
_TRACE_ID, _ID = b"\n\x10", b"\x12\x08"  # 1 and 2
_STATE = b"\x1a"  # 3
_PARENT = b'"\x08'  # 4: its id
_KIND = b"0%c"  # 6
_BEGAN, _ENDED = b"9", b"A"  # 7 and 8
_FLAGS = Struct("<2sI")  # 16: whether it is known if the parent is another process's, and if it is
_IS_BEGUN, _IS_CONTINUED = (_FLAGS.pack(b"\x85\x01", flags) for flags in (0x100, 0x300))
_TRACE_ID_BYTES, _ID_BYTES = 16, 8
_TIMES = Struct("<sQsQ")
_VARINT_MASK = (1 << 64) - 1
_KEPT = 1024


def encode_request(resource: bytes, scope: bytes, traces: Iterable[EndedTrace]) -> bytes:
    """Return the body of a request that sends spans; their resource and their scope are encoded already."""
    of_scope = b"".join((_field(b"\n", scope), *(span for trace in traces for span in _spans(trace))))
    of_resource = _field(b"\n", resource) + _field(b"\x12", of_scope)
    return _field(b"\n", of_resource)


def _spans(ended: EndedTrace) -> list[bytes]:
    """Return the spans of `ended.spans()`."""
    (trace_id, span_id, parent, state), shape, request_id, began, end, since, stretches = ended
    of_trace, of_whole = bytes.fromhex(trace_id), span_id.to_bytes(_ID_BYTES, "big")
    front, alike, status = _shape(shape)
    whole = (
        _TRACE_ID,
        of_trace,
        _ID,
        of_whole,
        _field(_STATE, state.encode()) if state else b"",
        _PARENT + bytes.fromhex(parent[SPAN_ID]) if parent else b"",
        front,
        _TIMES.pack(_BEGAN, began + since, _ENDED, end + since),
        alike,
        b"" if request_id is None else _attribute(REQUEST_ID, request_id),
        status,
        _IS_CONTINUED if parent else _IS_BEGUN,
    )
    spans = []
    for names, at in stretches:
        first = at[0]
        for name, last in zip(names, at[1:], strict=True):
            if last != first:
                span_id = id_after(span_id)
                of_part, start, stop = span_id.to_bytes(_ID_BYTES, "big"), first + since, last + since
                pack, head, middle, before, back = _part_form(name, state)
                spans.append(
                    pack(head, of_trace, _ID, of_part, middle, of_whole, before, start, _ENDED, stop, back)
                )
            first = last
    spans.append(_field(_SPAN, b"".join(whole)))
    return spans


@lru_cache(_KEPT)
def _part_form(name: str, state: str) -> tuple[Callable[..., bytes], bytes, bytes, bytes, bytes]:
    """Return what packs the spans of parts that have a name, and a state: their ids and times, and bytes.

    These stand in front, between a part's id and that of the span above it, before its times, and behind.
    """
    middle = (_field(_STATE, state.encode()) if state else b"") + _PARENT
    before = _name(name) + _KIND % _KINDS["internal"] + _BEGAN
    back = _FINE + _IS_BEGUN
    behind = (
        f"{_TRACE_ID_BYTES}s{len(_ID)}s{_ID_BYTES}s{len(middle)}s{_ID_BYTES}s{len(before)}sQsQ{len(back)}s"
    )
    n_bytes = len(_TRACE_ID) + Struct("<" + behind).size
    front = _SPAN + _varint(n_bytes) + _TRACE_ID
    return Struct(f"<{len(front)}s{behind}").pack, front, middle, before, back


@lru_cache(_KEPT)
def _shape(shape: SpanShape) -> tuple[bytes, bytes, bytes]:
    """Return what stands before the times of a span, its attributes, and its status, as far as alike."""
    front = _name(shape.name) + _KIND % _KINDS[shape.kind]
    attributes = b"".join(_attribute(name, value) for name, value in shape.said)
    return front, attributes, _FINE if shape.fault is None else _FAILED


def _name(name: str) -> bytes:
    return _field(b"*", name.encode(errors="replace"))


def _attribute(key: str, value: str | int) -> bytes:
    if isinstance(value, int):
        said = b"\x18" + _varint(value & _VARINT_MASK)
        return _field(b"J", _field(b"\n", key.encode()) + _field(b"\x12", said))
    text = value.encode(errors="replace")
    return _before_text(key, len(text)) + text


@lru_cache(_KEPT)
def _before_text(key: str, n_bytes: int) -> bytes:
    """Return what stands before a value of so many bytes in an attribute."""
    value = b"\n" + _varint(n_bytes)
    said = _field(b"\n", key.encode()) + b"\x12" + _varint(len(value) + n_bytes) + value
    return b"J" + _varint(len(said) + n_bytes) + said


def _field(tag: bytes, value: bytes) -> bytes:
    """Return a field whose value has a length."""
    return b"%b%b%b" % (tag, _varint(len(value)), value)


@lru_cache(_KEPT)
def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; each but the last has its eighth bit set."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
