"""Rows before they are learnt from: counted, dealt to windows in the
same way however they come, weighed.
"""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.helpers.steps import Parts
from tests.helpers.trainings import scores_of, trained_by
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows, to_rows

from xylem.base.errors import BadParameter, Unavailable
from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers import weighing, windows
from xylem.trainers.source import MemorySource, Tools, TrainingSet, count
from xylem.trainers.weighing import weigh
from xylem.trainers.windows import deal_windows


def _data(seed: int, n_rows: int) -> tuple[SparseRows, LabelRows]:
    rng = np.random.default_rng(seed)
    return TrainingSet(random_rows(rng, n_rows, 10, 0.3), random_labels(rng, n_rows, 5, 0.4))


def _visited(source: Any) -> Any:
    """The windows of two epochs."""
    tools = Tools(4)  # rows are held as long as its crew is there
    found = deal_windows(source, tools)
    return [list(found.visit(epoch)) for epoch in range(2)]


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**31),
    st.integers(1, 80),
    st.lists(st.integers(1, 79), max_size=8),
    st.sampled_from([15, 20, 40, 60, 150, 1 << 20]),
)
def test_windows_have_every_row_once_and_are_the_same_of_a_file(
    monkeypatch: pytest.MonkeyPatch, seed: int, n_rows: int, cuts: Any, most: Any
) -> None:
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", most)
    data = _data(seed, n_rows)
    expected = np.hstack([dense_rows(data.rows), dense_labels(data.labels)])
    for one, other in zip(_visited(MemorySource(data)), _visited(Parts(data, cuts)), strict=True):
        assert [number for number, _ in one] == [number for number, _ in other]
        for (_, a), (_, b) in zip(one, other, strict=True):
            for x, y in zip((*a.rows, *a.labels), (*b.rows, *b.labels), strict=True):
                np.testing.assert_array_equal(x, y, strict=True)
        found = [np.hstack([dense_rows(part.rows), dense_labels(part.labels)]) for _, part in other]
        assert len(found) == -(-data.n_entries // most)
        assert sorted(map(bytes, np.vstack(found))) == sorted(map(bytes, expected))


def test_each_window_has_rows_from_all_over_in_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = _data(1, 4000)
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", data.n_entries // 7)
    numbered = data._replace(rows=to_rows(np.arange(1.0, 4001)[:, None]))
    first, second = _visited(MemorySource(numbered))
    assert {number for number, _ in first} == {number for number, _ in second}
    assert [number for number, _ in first] != [number for number, _ in second]
    for _, part in first:
        tenth = np.bincount(((part.rows.values - 1) // 400).astype(int), minlength=10) / part.n_rows
        assert 0.05 < tenth.min() <= tenth.max() < 0.16


def test_a_directory_without_room_is_refused_before_rereading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", 20)
    source = Parts(_data(2, 50), [])
    usage = SimpleNamespace(free=8 * source.census.n_entries - 1)
    monkeypatch.setattr(windows.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(source, "parts", None)
    with pytest.raises(
        BadParameter, match=f"TMPDIR: expected room for .* in {tempfile.gettempdir()}, found"
    ):
        _visited(source)


def test_a_disk_that_is_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", 20)
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda buffering: full)
        with pytest.raises(
            Unavailable, match=r"stream: expected space for rows and weights in .*: No space left"
        ):
            _visited(Parts(_data(2, 50), []))


def test_a_census_counts_rows_and_non_zeros_of_labels() -> None:
    rows = to_rows(np.array([[1.0, 0, 2], [0, 0, 0], [1, 1, 1]]))
    labels = LabelRows(np.array([0, 2, 3, 4]), np.array([0, 3, 3, 0], np.int32), 4)
    counted = count(TrainingSet(rows, labels))
    assert [np.asarray(part).tolist() for part in counted[:-1]] == [
        *(3, 3, 5, 3),
        [2, 0, 0, 2],
        [5, 0, 0, 2],
        0,
    ]
    assert counted.weights is None


def presence(seed: int = 0, n_rows: int = 60, n_features: int = 12) -> np.ndarray:
    """Rows that say which features they have; feature f is in fewer rows than f - 1."""
    rng = np.random.default_rng(seed)
    return (rng.random((n_rows, n_features)) < np.linspace(0.9, 0.05, n_features)).astype(float)


def at_length_one(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def test_rows_that_say_nothing_of_weights_are_weighed() -> None:
    x = at_length_one(presence())
    x[5] = 0
    x[6] *= -1
    weighed = weigh(to_rows(x), "auto")
    assert weighed.scale is not None
    idf = np.log(61 / (1 + (x != 0).sum(axis=0))) + 1
    np.testing.assert_allclose(weighed.scale / weighed.scale[0], idf / idf[0], rtol=1e-6)
    np.testing.assert_allclose(dense_rows(weighed.rows), x * weighed.scale, rtol=1e-6)
    assert (dense_rows(weighed.rows) ** 2).sum() == pytest.approx((x**2).sum(), rel=1e-5)


def test_auto_leaves_weighed_rows_alone_and_no_leaves_all() -> None:
    x = presence()
    alike = to_rows(x)
    row = int(np.flatnonzero((x > 0).sum(axis=1) > 1)[0])
    x[row, np.flatnonzero(x[row])[0]] = 1.001
    rows = to_rows(at_length_one(x))
    assert weigh(rows, "auto").rows is rows
    assert weigh(rows, "auto").scale is None
    assert weigh(rows, "yes").scale is not None
    assert weigh(alike, "no").rows is alike


def test_rows_that_are_read_in_parts_are_weighed_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = to_rows(at_length_one(presence(3, 200)))
    whole = weigh(rows, "auto")
    monkeypatch.setattr(weighing, "PART_ROWS", 7)
    copy = rows._replace(values=rows.values.copy())
    parts = weigh(copy, "auto", in_place=True)
    assert parts.rows.values is copy.values
    assert whole.rows.values.tobytes() == parts.rows.values.tobytes() != rows.values.tobytes()
    assert whole.scale is not None and parts.scale is not None
    assert whole.scale.tobytes() == parts.scale.tobytes()


@pytest.mark.parametrize("idf", ["auto", "yes"])
@pytest.mark.parametrize(
    "rows", [to_rows(np.zeros((3, 4))), to_rows(np.zeros((0, 4)))], ids=["zero", "none"]
)
def test_rows_without_features_stay(idf: str, rows: SparseRows) -> None:
    assert weigh(rows, idf).scale is None


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 10.0))
def test_a_common_factor_changes_nothing(seed: int, factor: float) -> None:
    x = presence(seed)
    one, other = weigh(to_rows(x), "auto"), weigh(to_rows(factor * x), "auto")
    assert one.scale is not None
    assert other.scale is not None
    np.testing.assert_allclose(one.scale, other.scale, rtol=1e-5)


@pytest.mark.parametrize("name", ["label-tree", "ovr", "plt", "fastxml", "ldsm"])
def test_a_model_of_weighed_rows_takes_rows_as_they_were(name: str) -> None:
    """The same as weighing the rows before training, and before asking."""
    rows = to_rows(at_length_one(presence(1, 80, 20)))
    labels = random_labels(np.random.default_rng(2), 80, 7, 0.3)
    few = ["trees=3"] if name in {"fastxml", "ldsm"} else []
    weighed = weigh(rows, "auto")
    assert weighed.scale is not None
    inside = trained_by(name, (rows, labels), *few)
    before, without = (trained_by(name, (x, labels), *few, "idf=no") for x in (weighed.rows, rows))
    asked = scores_of(inside, (rows, labels))
    assert asked.any()
    np.testing.assert_allclose(asked, scores_of(before, (weighed.rows, labels)), atol=1e-5)
    assert np.abs(asked - scores_of(without, (rows, labels))).max() > 1e-3
