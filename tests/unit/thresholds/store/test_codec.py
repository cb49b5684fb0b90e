"""States, deltas and scored blocks come back from their bytes as they were."""

import numpy as np
import pytest
from tests.helpers.feedback_helpers import (
    N_LABELS,
    Replica,
    labels_of,
)

from xylem.base.errors import DatabaseUnavailable
from xylem.thresholds.methods.ofo import Counters, Start, lower_bounds, no_counts, thresholds_of
from xylem.thresholds.store import codec
from xylem.thresholds.store.codec import Deltas, Scored, Tuned
from xylem.thresholds.store.state import Head


def test_scores_and_scored_blocks_come_back_as_they_were() -> None:
    parts = [
        Deltas(
            labels_of(*some),
            labels_of(*range(len(some))),
            labels_of(*range(len(some))),
            np.float32(th),
        )
        for some, th in (((1, 2, 5), (0.5, 0.25, 1)), ((), ()), ((7,), (0.1,)))
    ]
    data = codec.encode_scored(Scored(9, *parts))
    found = codec.decode_scored(data, 8)
    assert found.n_events == 9
    for mine, other in zip(found[1:], parts, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True))
    for damaged in (b"", data[:11], data[:-1], data + b"\0"):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_scored(damaged, 8)
    numbers = np.arange(12, dtype=np.int64).reshape(4, 3)
    packed = codec.encode_scores((Counters(*numbers[:2]), Counters(*numbers[2:])))
    assert np.array_equal(np.concatenate(codec.decode_scores(packed, 3)), numbers)
    for damaged, n_labels in ((packed, 4), (packed, 2), (packed[:-1], 3), (b"", 3)):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_scores(damaged, n_labels)


def test_empty_labels_count_as_the_convention_says() -> None:
    counters = Counters(np.array([0, 1, 0]), np.array([0, 2, 3]))
    assert counters.macro_f("one") == pytest.approx(2 / 3)
    assert counters.macro_f("zero") == pytest.approx(1 / 3)


DELTAS = Deltas(labels_of(3, 7), labels_of(0, 9), labels_of(1, 20), np.float32([0.5, 0.25]))


def test_states_and_deltas_come_back_as_they_were() -> None:
    marks = np.random.default_rng(4).integers(0, 1 << 40, 50)
    counters = Counters(marks // 3, marks)
    thresholds = thresholds_of(counters, Start(2.0, 9.0), lower_bounds(None, 0, 50))
    tuned = Tuned("fta", "zero", Start(2.0, 9.0), thresholds, counters)
    found = codec.decode_state(codec.encode_state(tuned))
    assert found[:3] == tuned[:3]
    again = codec.decode_deltas(codec.encode_deltas(DELTAS), 8)
    for arrays, expected in (
        ((found.thresholds, *found.counters), (thresholds, *counters)),
        (again, DELTAS),
    ):
        assert [array.tolist() for array in arrays] == [array.tolist() for array in expected]


def untouched(n_labels: int) -> Tuned:
    return Tuned("ofo", "one", Start(), np.full(n_labels, 0.25, np.float32), no_counts(n_labels))


def test_damaged_bytes_and_states_of_other_models_are_refused(replica: Replica) -> None:
    with pytest.raises(DatabaseUnavailable, match="another store's"):
        replica.live.replace(untouched(N_LABELS + 1), Head(1, "m", 1, 1, 1, 0))
    data, deltas = codec.encode_state(untouched(4)), codec.encode_deltas(DELTAS)
    for damaged in (b"", data[:-1], data.replace(b'"n_labels": 4', b'"n_labels": 5'), data[1:]):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_state(damaged)
    for damaged, n_labels in ((deltas, 7), (deltas[:-1], 8), (deltas[::-1], 8)):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_deltas(damaged, n_labels)
