"""Thresholds and what feedback added to them as bytes, for the database. Reading checks every length.

A state   a line that names the format, a line of JSON (method, convention, a, b, power, n_labels), then,
          compressed by zlib, thresholds as float32[K], hits and marks as int64[K]
Deltas    labels as int32[n], their thresholds as float32[n], what was added to hits and to marks, uint16[n]
All numbers are little-endian.
"""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.errors import DatabaseUnavailable
from service.thresholds.ofo import Counters, Start, check_start
from service.thresholds.tuned import METHODS, Tuned

_FORMAT = b"xylem-thresholds 1"
_BYTES_A_LABEL = 4 + 8 + 8
_BYTES_A_DELTA = 4 + 4 + 2 + 2

DELTA_MAX = (1 << 16) - 1
"""The most that one block of feedback adds to a counter of a label."""


class Deltas(NamedTuple):
    """What a block of feedback did to the labels that it touched.

    labels      int32[n], ascending, without repeats
    hits        int32[n], 0 .. DELTA_MAX: added to the label's hits
    marks       int32[n], 0 .. DELTA_MAX: added to its marks
    thresholds  float32[n]: its threshold after the block
    """

    labels: NDArray[np.int32]
    hits: NDArray[np.int32]
    marks: NDArray[np.int32]
    thresholds: NDArray[np.float32]


def encode_state(tuned: Tuned) -> bytes:
    """Return a state as bytes."""
    head = {
        "method": tuned.method,
        "convention": tuned.convention,
        "a": tuned.start.a,
        "b": tuned.start.b,
        "power": tuned.start.power,
        "n_labels": len(tuned.thresholds),
    }
    arrays = (
        tuned.thresholds.astype("<f4"),
        tuned.counters.hits.astype("<i8"),
        tuned.counters.marks.astype("<i8"),
    )
    packed = zlib.compress(b"".join(array.tobytes() for array in arrays), 1)
    return b"\n".join((_FORMAT, json.dumps(head).encode(), packed))


def decode_state(data: bytes) -> Tuned:
    """Return the state that `encode_state` made bytes of. Raises DatabaseUnavailable for any other bytes."""
    try:
        form, line, packed = data.split(b"\n", 2)
        head = json.loads(line)
        n_labels = head["n_labels"]
        if form != _FORMAT or type(n_labels) is not int or n_labels < 1 or head["method"] not in METHODS:
            raise ValueError(f"{form[:40]!r} {line[:200]!r}")
        n_bytes = n_labels * _BYTES_A_LABEL
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(packed, n_bytes + 1)
        if len(raw) != n_bytes or not unpacking.eof:
            raise ValueError(f"{len(raw)} bytes instead of {n_bytes}")
        thresholds = np.frombuffer(raw, "<f4", n_labels).astype(np.float32)
        hits = np.frombuffer(raw, "<i8", n_labels, 4 * n_labels).astype(np.int64)
        marks = np.frombuffer(raw, "<i8", n_labels, 12 * n_labels).astype(np.int64)
        if not ((thresholds >= 0) & (thresholds <= 1)).all() or (hits < 0).any() or (2 * hits > marks).any():
            raise ValueError("thresholds or counters out of their range")
        start = check_start(Start(float(head["a"]), float(head["b"]), float(head["power"])))
        return Tuned(head["method"], head["convention"], start, thresholds, Counters(hits, marks))
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise DatabaseUnavailable(f"expected thresholds of a version, found {error}") from error


def encode_deltas(deltas: Deltas) -> bytes:
    """Return what a block of feedback did as bytes."""
    hits, marks = deltas.hits.astype("<u2"), deltas.marks.astype("<u2")
    arrays = deltas.labels.astype("<i4"), deltas.thresholds.astype("<f4"), hits, marks
    return b"".join(array.tobytes() for array in arrays)


def decode_deltas(data: bytes, n_labels: int) -> Deltas:
    """Return the deltas that `encode_deltas` made bytes of. Raises DatabaseUnavailable for others."""
    n, rest = divmod(len(data), _BYTES_A_DELTA)
    labels = np.frombuffer(data, "<i4", n).astype(np.int32)
    thresholds = np.frombuffer(data, "<f4", n, 4 * n).astype(np.float32)
    if rest or not (
        (labels[1:] > labels[:-1]).all()
        and ((labels >= 0) & (labels < n_labels)).all()
        and ((thresholds >= 0) & (thresholds <= 1)).all()
    ):
        raise DatabaseUnavailable(f"expected what feedback did to {n_labels} labels, found other bytes")
    hits = np.frombuffer(data, "<u2", n, 8 * n).astype(np.int32)
    return Deltas(labels, hits, np.frombuffer(data, "<u2", n, 10 * n).astype(np.int32), thresholds)


def sum_deltas(parts: list[Deltas]) -> Deltas:
    """Return what several blocks, at least one, did one after the other as one."""
    labels, place = np.unique(np.concatenate([part.labels for part in parts]), return_inverse=True)
    hits, marks = np.zeros((2, len(labels)), np.int32)
    np.add.at(hits, place, np.concatenate([part.hits for part in parts]))
    np.add.at(marks, place, np.concatenate([part.marks for part in parts]))
    thresholds = np.empty(len(labels), np.float32)
    for part in parts:
        thresholds[np.searchsorted(labels, part.labels)] = part.thresholds
    return Deltas(labels, hits, marks, thresholds)
