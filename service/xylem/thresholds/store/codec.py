"""Encode thresholds, and changes of them by feedback, as bytes for the database.

Reading checks every length. All numbers are little-endian. The formats:

A state   a line that names the format; a line of JSON (method, convention, a, b, power, scale,
          n_labels, objective, limit, sums); then, compressed by zlib, thresholds as float32[K],
          hits and marks as int64[K]. Earlier releases neither write nor read the last three members
          of the JSON; their thresholds are for macro-F
Deltas    labels as int32[n], their thresholds as float32[n], what was added to hits and to marks,
          uint16[n]
Scored    the number of events that were scored, and the lengths of two Deltas, uint32[3]; then
          three Deltas
Sums      compressed by zlib: what was added to the sums of the thresholds in force, and to those of
          the candidate, int64[N_SUMS] each
Scores    compressed by zlib: int64[K] four times
"""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from xylem.base import DatabaseUnavailable
from xylem.evaluation import EmptyConvention
from xylem.thresholds.methods.aims import (
    N_SUMS,
    OBJECTIVES,
    Aim,
    Objective,
)
from xylem.thresholds.methods.ofo import Counters, Start, check_start, no_counts, thresholds_of
from xylem_store import F32, I64, read_only

# The methods to tune.
#
# sto      search over all cuts
# fta      a fixed grid, each label has its own threshold
# fta-one  a fixed grid, one threshold for all labels
# ofo      online
Method = Literal["sto", "fta", "fta-one", "ofo"]

METHODS: tuple[Method, ...] = ("ofo", "fta", "fta-one", "sto")


class Tuned(NamedTuple):
    """The thresholds of a version, with the counters that feedback continues.

    method      how they were found; feedback moves them by OFO in any case
    convention  the convention for empty labels that start values and kappa were chosen with
    start       the start values of OFO, which `counters` do not include
    thresholds  float32[K] in [0, 1]
    counters    the counts of the validation rows
    aim         what they are for, with the limit of a common threshold
    """

    method: Method
    convention: EmptyConvention
    start: Start
    thresholds: NDArray[np.float32]
    counters: Counters
    aim: Aim = Aim.begin("macro")

    @classmethod
    def begin(
        cls, objective: Objective, convention: EmptyConvention, start: Start, bounds: F32
    ) -> Self:
        """Return the state before the first row, which OFO continues; bounds as `lower_bounds`."""
        counters = no_counts(len(bounds))
        return cls(
            method="ofo",
            convention=convention,
            start=start,
            thresholds=thresholds_of(counters, start, bounds),
            counters=counters,
            aim=Aim.begin(objective),
        )


def settled(tuned: Tuned) -> Tuned:
    """Return a state with the common threshold and the limit that its counts give.

    A state for macro-F is returned as it is.
    """
    if tuned.aim.objective == "macro":
        return tuned
    threshold, limit = tuned.aim.common_threshold(tuned.counters, tuned.start)
    return tuned._replace(
        thresholds=np.full(len(tuned.thresholds), threshold), aim=tuned.aim._replace(limit=limit)
    )


_FORMAT = b"xylem-thresholds 1"
_BYTES_A_LABEL = 4 + 8 + 8
_BYTES_A_DELTA = 4 + 4 + 2 + 2
_SCORED_HEAD = struct.Struct("<III")

# The most that one block of feedback may add to a counter of a label.
DELTA_MAX = (1 << 16) - 1


# The sums of a block of feedback that adds nothing to them: it has no rows, or each label has a
# threshold of its own, which needs no sums of F by row.
NO_SUMS = read_only(np.zeros(N_SUMS, np.int64))


class Deltas(NamedTuple):
    """The changes that a block of feedback made to the labels that it touched.

    labels      int32[n], ascending, without repeats
    hits        int32[n], 0 .. DELTA_MAX: added to the label's hits
    marks       int32[n], 0 .. DELTA_MAX: added to its marks
    thresholds  float32[n]: its threshold after the block
    sums        int64[N_SUMS], added to the sums of the aim
    """

    labels: NDArray[np.int32]
    hits: NDArray[np.int32]
    marks: NDArray[np.int32]
    thresholds: NDArray[np.float32]
    sums: I64 = NO_SUMS


def encode_state(tuned: Tuned) -> bytes:
    """Encode a state."""
    head = {
        "method": tuned.method,
        "convention": tuned.convention,
        **tuned.start._asdict(),
        "n_labels": len(tuned.thresholds),
        **tuned.aim._asdict(),
        "sums": tuned.aim.sums.tolist(),
    }
    counts = b"".join(counter.astype("<i8").tobytes() for counter in tuned.counters)
    return b"\n".join(
        (
            _FORMAT,
            json.dumps(head).encode(),
            zlib.compress(tuned.thresholds.astype("<f4").tobytes() + counts, 1),
        )
    )


def decode_state(data: bytes) -> Tuned:
    """Decode a state. Raises DatabaseUnavailable for bytes that `encode_state` does not write."""
    try:
        form, line, packed = data.split(b"\n", 2)
        head = json.loads(line)
        n_labels = head["n_labels"]
        if (
            form != _FORMAT
            or type(n_labels) is not int
            or n_labels < 1
            or head["method"] not in METHODS
        ):
            raise ValueError(f"{form[:40]!r} {line[:200]!r}")
        raw = _unpacked(packed, n_labels * _BYTES_A_LABEL, "thresholds of a version")
        thresholds = np.frombuffer(raw, "<f4", n_labels).astype(np.float32)
        hits = np.frombuffer(raw, "<i8", n_labels, 4 * n_labels).astype(np.int64)
        marks = np.frombuffer(raw, "<i8", n_labels, 12 * n_labels).astype(np.int64)
        if (
            not ((thresholds >= 0) & (thresholds <= 1)).all()
            or (hits < 0).any()
            or (2 * hits > marks).any()
        ):
            raise ValueError("thresholds or counters out of their range")
        return Tuned(
            method=head["method"],
            convention=head["convention"],
            start=check_start(Start(*(float(head[name]) for name in Start._fields))),
            thresholds=thresholds,
            counters=Counters(hits, marks),
            aim=_aim_of(head),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DatabaseUnavailable(f"expected thresholds of a version, found {error}") from error


def _aim_of(head: dict[str, Any]) -> Aim:
    """Return the aim in the JSON of a state. Raises ValueError, KeyError, TypeError."""
    if "objective" not in head:
        return Aim.begin("macro")
    aim = Aim(head["objective"], head["limit"], np.array(head["sums"], np.int64))
    has_limit = type(aim.limit) is int and aim.limit > 0
    if (
        aim.objective not in OBJECTIVES
        or has_limit == (aim.objective == "macro")
        or aim.sums.shape != (N_SUMS,)
    ):
        raise ValueError(f"objective {aim.objective!r:.40}, limit {aim.limit!r:.40}")
    return aim


def _unpacked(packed: bytes, n_bytes: int, expected: str) -> bytes:
    """Decompress exactly n_bytes; never more than one byte beyond them.

    Raises DatabaseUnavailable for any other length or bytes, with what was expected.
    """
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(packed, n_bytes + 1)
    except zlib.error as error:
        raise DatabaseUnavailable(f"expected {expected}, found {error}") from error
    if len(raw) != n_bytes or not unpacking.eof:
        raise DatabaseUnavailable(
            f"expected {expected}, found {len(raw)} bytes instead of {n_bytes}"
        )
    return raw


def encode_deltas(deltas: Deltas) -> bytes:
    """Encode the changes of a block of feedback."""
    return b"".join(
        array.tobytes()
        for array in (
            deltas.labels.astype("<i4"),
            deltas.thresholds.astype("<f4"),
            deltas.hits.astype("<u2"),
            deltas.marks.astype("<u2"),
        )
    )


def decode_deltas(data: bytes, n_labels: int) -> Deltas:
    """Decode deltas. Raises DatabaseUnavailable for bytes that `encode_deltas` does not write."""
    n, remainder = divmod(len(data), _BYTES_A_DELTA)
    labels = np.frombuffer(data, "<i4", n).astype(np.int32)
    thresholds = np.frombuffer(data, "<f4", n, 4 * n).astype(np.float32)
    if remainder or not (
        (labels[1:] > labels[:-1]).all()
        and ((labels >= 0) & (labels < n_labels)).all()
        and ((thresholds >= 0) & (thresholds <= 1)).all()
    ):
        raise DatabaseUnavailable(
            f"expected changes by feedback to {n_labels} labels, found other bytes"
        )
    return Deltas(
        labels=labels,
        hits=np.frombuffer(data, "<u2", n, 8 * n).astype(np.int32),
        marks=np.frombuffer(data, "<u2", n, 10 * n).astype(np.int32),
        thresholds=thresholds,
    )


class Scored(NamedTuple):
    """The changes that a block of feedback made while a candidate was scored on it.

    n_events   events that the candidate was scored on: those with an instance
    served     the changes by all events of the block to the thresholds in force
    candidate  the changes by the scored events to the candidate
    shadowed   the changes by the scored events to the thresholds in force
    """

    n_events: int
    served: Deltas
    candidate: Deltas
    shadowed: Deltas


def encode_scored(scored: Scored) -> bytes:
    """Encode the changes of a block of feedback, with those of a candidate."""
    parts = [encode_deltas(deltas) for deltas in scored[1:]]
    return _SCORED_HEAD.pack(scored.n_events, len(parts[0]), len(parts[1])) + b"".join(parts)


def decode_scored(data: bytes, n_labels: int) -> Scored:
    """Decode scored changes. Raises DatabaseUnavailable for other bytes."""
    if len(data) < _SCORED_HEAD.size:
        raise DatabaseUnavailable(
            f"expected changes by feedback, with a candidate's, found {len(data)} bytes"
        )
    n_events, n_first, n_second = _SCORED_HEAD.unpack_from(data)
    data = data[_SCORED_HEAD.size :]
    parts = data[:n_first], data[n_first : n_first + n_second], data[n_first + n_second :]
    served, candidate, shadowed = (decode_deltas(part, n_labels) for part in parts)
    return Scored(n_events, served, candidate, shadowed)


def encode_sums(served: I64, candidate: I64) -> bytes | None:
    """Encode what was added to the sums of the thresholds in force and of a candidate.

    Returns None if nothing was.
    """
    sums = np.stack([served, candidate]).astype("<i8")
    return zlib.compress(sums.tobytes(), 1) if sums.any() else None


def decode_sums(data: bytes | None) -> tuple[I64, I64]:
    """Decode what was added to both sums. Raises DatabaseUnavailable for other bytes."""
    if data is None:
        return NO_SUMS, NO_SUMS
    sums = (
        np.frombuffer(_unpacked(data, 2 * NO_SUMS.nbytes, "sums of F by row"), "<i8")
        .astype(np.int64)
        .reshape(2, N_SUMS)
    )
    return sums[0], sums[1]


def encode_scores(scores: Sequence[Counters]) -> bytes:
    """Encode two pairs of counters."""
    return zlib.compress(
        b"".join(c.astype("<i8").tobytes() for counters in scores for c in counters), 1
    )


def decode_scores(data: bytes, n_labels: int) -> tuple[Counters, Counters]:
    """Decode two pairs of counters. Raises DatabaseUnavailable for other bytes."""
    numbers = (
        np.frombuffer(_unpacked(data, 32 * n_labels, "the scores of a candidate"), "<i8")
        .astype(np.int64)
        .reshape(4, n_labels)
    )
    return Counters(numbers[0], numbers[1]), Counters(numbers[2], numbers[3])
