"""Write predictions as JSON, with signed ids, without the interpreter's lock."""

import numpy as np

from xylem.serving.dialects.predict.kernels.float_json import (
    TEXT_BYTES_MAX,
    write_float32,
    write_integer,
)
from xylem.serving.kernels.blake2 import BLOCK_BYTES, MAC_BYTES, append_mac
from xylem.serving.kernels.sparse_json import CLOSE, COMMA
from xylem.serving.kernels.text_json import BACKSLASH, QUOTE
from xylem_store import F32, I32, I64, U8, U64, kernel, nonallocating_inlined

TOKEN_HEAD_BYTES = 29  # the bytes of a token before its labels: see `xylem.serving.feedback.tokens`

# The bytes that a token needs besides 4 bytes a label: it is padded to whole blocks and signed.
TOKEN_ROOM = TOKEN_HEAD_BYTES + BLOCK_BYTES + MAC_BYTES

_LABELS = np.frombuffer(b'{"labels":[', np.uint8)
_LABEL = np.frombuffer(b'{"label":"', np.uint8)
_ID = np.frombuffer(b'","id":', np.uint8)
_SCORE = np.frombuffer(b',"score":', np.uint8)
_UNLEARNED = np.frombuffer(b',"learned":false', np.uint8)
_TOKEN = np.frombuffer(b'],"prediction_id":"', np.uint8)
_EXACT = np.frombuffer(b'","exact":true}', np.uint8)
_NOT_EXACT = np.frombuffer(b'","exact":false}', np.uint8)
_BASE_64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)
_FIXED = len(_LABEL) + len(_ID) + len(_SCORE) + len(_UNLEARNED) + 10 + TEXT_BYTES_MAX + len("},")
_AROUND = len(_LABELS) + len(_TOKEN) + len(_NOT_EXACT) + 2 * TOKEN_ROOM


@nonallocating_inlined
def copy_text(text: U8, out: U8, position: int) -> int:
    """Write a text at out[position]; return where it ends."""
    for i in range(len(text)):
        out[position + i] = text[i]
    return position + len(text)


@nonallocating_inlined
def write_name(utf8: U8, start: int, end: int, out: U8, position: int) -> int:
    """Write a name as the inside of a JSON string; return the place after it.

    Names have no control characters (NameTable), so only quotes and backslashes are escaped.
    """
    for i in range(start, end):
        if utf8[i] == QUOTE or utf8[i] == BACKSLASH:
            out[position] = BACKSLASH
            position += 1
        out[position] = utf8[i]
        position += 1
    return position


@nonallocating_inlined
def pack(number: int | np.int64, n_bytes: int, out: U8, position: int) -> int:
    """Write an integer as n_bytes bytes, little-endian; return the place after it."""
    for _ in range(n_bytes):
        out[position] = number & 255
        number >>= 8
        position += 1
    return position


@nonallocating_inlined
def _write_base64(data: U8, n: int, out: U8, position: int) -> int:
    """Write data[:n] as base64, in the URL-safe alphabet of RFC 4648, without padding.

    Return the place after it.
    """
    for i in range(0, n, 3):
        bits = np.int64(data[i]) << 16
        if i + 1 < n:
            bits |= np.int64(data[i + 1]) << 8
        if i + 2 < n:
            bits |= np.int64(data[i + 2])
        for k in range(min(4, n - i + 1)):
            out[position] = _BASE_64[(bits >> (18 - 6 * k)) & 63]
            position += 1
    return position


@kernel
def write_predictions(
    spans: tuple[I64, I64, I32, F32, U8],
    thresholds: F32,
    names: tuple[I64, U8, U8],
    seal: tuple[U64, int, int, int, int],
    serial: int,
    token: U8,
    out: U8,
    ends_out: I64,
) -> bool:
    """Write for each row
    `{"labels":[{"label":"a","id":3,"score":0.5},...],"prediction_id":"...","exact":false}`.

    spans       (starts, ends int64[n], labels int32[..], scores float32[..] finite and not below 0,
                exact uint8[n], 0 or 1): row i has labels[starts[i] : ends[i]] and their scores
    thresholds  float32[K]: a token lists the labels whose score reaches their threshold; [0]: it
                lists all labels
    names       (offsets, utf8) as in NameTable, and uint8[K], 1 for labels that are not learned, or
                [0] if all are learned
    seal        the fields of a Seal; a plain tuple, because numba takes a microsecond more for a
                NamedTuple
    serial      the number of the first row's token
    token       uint8[TOKEN_ROOM + 4 * the most labels of a row], overwritten
    out         uint8[..]: receives the text
    ends_out    int64[n]: where each row's text ends

    Return whether there was room. Deterministic. Cost: some 50 nanoseconds a label, and a
    microsecond a row.
    """
    starts, ends, labels, scores, exact = spans
    offsets, utf8, unlearned = names
    keyed, model, version, epoch, expiry = seal
    bits = scores.view(np.uint32)
    position = 0
    for row in range(len(starts)):
        first = starts[row]
        last = ends[row]
        token_end = pack(model, 4, token, pack(1, 1, token, 0))
        token_end = pack(
            expiry, 4, token, pack(epoch, 8, token, pack(version, 4, token, token_end))
        )
        token_end = pack(serial + row, 8, token, token_end)
        if position + _AROUND > len(out):
            return False
        position = copy_text(_LABELS, out, position)
        for i in range(first, last):
            label = labels[i]
            if len(thresholds) == 0 or scores[i] >= thresholds[label]:
                token_end = pack(label, 4, token, token_end)
            start = offsets[label]
            end = offsets[label + 1]
            if position + _FIXED + 2 * (end - start) + 8 * (last - first) + _AROUND > len(out):
                return False
            position = write_name(utf8, start, end, out, copy_text(_LABEL, out, position))
            position = write_integer(np.int64(label), out, copy_text(_ID, out, position))
            position = write_float32(bits[i], out, copy_text(_SCORE, out, position))
            if len(unlearned) > 0 and unlearned[label] != 0:
                position = copy_text(_UNLEARNED, out, position)
            out[position] = CLOSE
            out[position + 1] = COMMA
            position += 2 if i + 1 < last else 1
        append_mac(keyed, token, token_end)
        position = _write_base64(
            token, token_end + MAC_BYTES, out, copy_text(_TOKEN, out, position)
        )
        position = copy_text(_EXACT if exact[row] else _NOT_EXACT, out, position)
        ends_out[row] = position
    return True
