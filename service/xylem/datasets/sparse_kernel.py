"""Parse rows of `label,label feature:value feature:value` out of a block of bytes."""

from typing import NamedTuple

import numpy as np

from xylem.datasets.kernels.decimals import EXACT, HARD, NON_FINITE, parse_decimal, parse_id
from xylem_store import F32, I32, I64, U8, inlined, kernel

# The reason why parsing stopped.
(
    NO_FAULT,
    BAD_LABEL,
    LABEL_RANGE,
    BAD_FEATURE,
    NO_COLON,
    FEATURE_RANGE,
    BAD_VALUE,
    INFINITE,
    EXTRA_ROW,
) = range(9)

NUMBER_BYTES_MAX = 1100  # the longest number in bytes: no double has more significant digits

_TAB, _NEWLINE, _RETURN, _SPACE, _HASH, _COMMA, _COLON = b"\t\n\r #,:"


class Block(NamedTuple):
    """Arrays that are large enough for the rows of any block of b bytes.

    row_start    int64[b + 1]       first byte of each row in the block
    label_ptr    int64[b + 1]
    labels       int32[b // 2 + 1]
    feature_ptr  int64[b + 1]
    features     int32[b // 3 + 1]
    values       float32[b // 3 + 1]
    hard         int32[b // 3 + 1]  indices into `values` that Python's float() must fill, because
                                    the kernel cannot round the number exactly
    hard_start   int32[b // 3 + 1]  first byte of each of those numbers in the block
    """

    row_start: I64
    label_ptr: I64
    labels: I32
    feature_ptr: I64
    features: I32
    values: F32
    hard: I32
    hard_start: I32


def room_for(n_bytes: int) -> Block:
    """Return a Block for `n_bytes` bytes (below 2^31).

    A label takes at least two bytes of the file, a pair of feature and value at least four.
    """
    n_pairs = n_bytes // 3 + 1
    return Block(
        row_start=np.empty(n_bytes + 1, np.int64),
        label_ptr=np.zeros(n_bytes + 1, np.int64),
        labels=np.empty(n_bytes // 2 + 1, np.int32),
        feature_ptr=np.zeros(n_bytes + 1, np.int64),
        features=np.empty(n_pairs, np.int32),
        values=np.empty(n_pairs, np.float32),
        hard=np.empty(n_pairs, np.int32),
        hard_start=np.empty(n_pairs, np.int32),
    )


@inlined
def _blank(byte: int) -> bool:
    return byte in (_SPACE, _TAB)


@inlined
def _line_end(data: U8, i: int) -> bool:
    """Return whether a line end, \\n or \\r\\n, begins at i."""
    return bool(data[i] == _NEWLINE or (data[i] == _RETURN and data[i + 1] == _NEWLINE))


@kernel
def _parse_labels(data: U8, i: int, n_labels: int, labels_out: I32, n: int) -> tuple[int, int, int]:
    """Parse the labels at data[i] into labels_out[n:].

    Returns (number of labels in labels_out, index where the labels end or the fault is, fault).
    """
    if _blank(data[i]):
        return n, i, NO_FAULT
    while True:
        label, end = parse_id(data, i, n_labels)
        separated = data[end] == _COMMA or _blank(data[end]) or _line_end(data, end)
        if end == i or not separated:
            return n, i, BAD_LABEL
        if label >= n_labels:
            return n, i, LABEL_RANGE
        labels_out[n] = label
        n += 1
        i = end
        if data[i] != _COMMA:
            return n, i, NO_FAULT
        i += 1


@kernel
def _parse_features(
    data: U8, i: int, n_features: int, out: Block, n: int, n_hard: int
) -> tuple[int, int, int, int]:
    """Parse the pairs of feature and value up to the end of the line.

    Returns (number of pairs in `out`, number of hard values, index where the pairs end or the
    fault is, fault). A hard value is one that Python must round: see `Block.hard`.
    """
    while True:
        while _blank(data[i]):
            i += 1
        if _line_end(data, i):
            return n, n_hard, i, NO_FAULT
        feature, end = parse_id(data, i, n_features)
        if end == i:
            return n, n_hard, i, BAD_FEATURE
        if data[end] != _COLON:
            return n, n_hard, i, NO_COLON
        if feature >= n_features:
            return n, n_hard, i, FEATURE_RANGE
        value, stop, code = parse_decimal(data, end + 1)
        if code == NON_FINITE:
            return n, n_hard, i, INFINITE
        separated = _blank(data[stop]) or _line_end(data, stop)
        if (code != EXACT and code != HARD) or not separated or stop - end - 1 > NUMBER_BYTES_MAX:
            return n, n_hard, i, BAD_VALUE
        out.features[n] = feature
        out.values[n] = value
        if code == HARD:
            out.hard[n_hard] = n
            out.hard_start[n_hard] = end + 1
            n_hard += 1
        n += 1
        i = stop


@kernel
def parse_rows(
    data: U8, header: bool, rows_left: int, n_labels: int, n_features: int, out: Block
) -> tuple[int, int, int, int]:
    """Parse the rows of a block of whole lines.

    data        uint8[b], its last byte a line end
    header      whether the file has a header with the number of rows. With one, an empty line is a
                row without labels and features, until all rows are read; later empty lines are
                ignored. Without one, an empty line and a line that begins with `#` are no rows
    rows_left   the most rows that may come
    n_labels    label ids must be below it
    n_features  feature ids must be below it

    Returns (number of rows, number of hard values, index of the fault, fault). Labels and features
    of a row are in the order of the file and may be repeated. Linear, deterministic.
    """
    i = n_rows = n_labels_out = n_pairs = n_hard = 0
    fault = NO_FAULT
    while i < len(data) and fault == NO_FAULT:
        empty = _line_end(data, i)
        if (empty and (not header or n_rows == rows_left)) or (data[i] == _HASH and not header):
            while data[i] != _NEWLINE:
                i += 1
            i += 1
            continue
        if n_rows == rows_left:
            return n_rows, n_hard, i, EXTRA_ROW
        out.row_start[n_rows] = i
        if not empty:
            n_labels_out, i, fault = _parse_labels(data, i, n_labels, out.labels, n_labels_out)
            if fault == NO_FAULT:
                n_pairs, n_hard, i, fault = _parse_features(
                    data, i, n_features, out, n_pairs, n_hard
                )
        if fault == NO_FAULT:
            i += 1 + (data[i] == _RETURN)
            n_rows += 1
            out.label_ptr[n_rows] = n_labels_out
            out.feature_ptr[n_rows] = n_pairs
    return n_rows, n_hard, i, fault
