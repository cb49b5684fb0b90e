"""What is counted of rows, and the windows that they are dealt to: the same ones however they come."""

import tempfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.base.errors import BadParameter, Unavailable
from service.base.rows import LabelRows
from service.trainers import windows
from service.trainers.source import MemorySource, Tools, TrainingSet, count
from service.trainers.windows import dealt
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows, to_rows
from tests.steps import Parts

few = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _data(seed, n_rows):
    rng = np.random.default_rng(seed)
    return TrainingSet(random_rows(rng, n_rows, 10, 0.3), random_labels(rng, n_rows, 5, 0.4))


def _visited(source):
    """The windows of two epochs."""
    tools = Tools(4)  # rows are held as long as its crew is there
    found = dealt(source, tools)
    return [list(found.visit(epoch)) for epoch in range(2)]


@few
@given(
    st.integers(0, 2**31),
    st.integers(1, 60),
    st.lists(st.integers(1, 59), max_size=8),
    st.sampled_from([20, 60, 150, 1 << 20]),
)
def test_rows_of_a_file_are_in_the_windows_of_those_in_memory(monkeypatch, seed, n_rows, cuts, most):
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", most)
    data = _data(seed, n_rows)
    for one, other in zip(_visited(MemorySource(data)), _visited(Parts(data, cuts)), strict=True):
        assert [number for number, _ in one] == [number for number, _ in other]
        for (_, a), (_, b) in zip(one, other, strict=True):
            for x, y in zip((*a.rows, *a.labels), (*b.rows, *b.labels), strict=True):
                np.testing.assert_array_equal(x, y, strict=True)


@few
@given(st.integers(0, 2**31), st.integers(1, 80), st.sampled_from([15, 40, 1 << 20]))
def test_windows_have_every_row_once(monkeypatch, seed, n_rows, most):
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", most)
    data = _data(seed, n_rows)
    expected = np.hstack([dense_rows(data.rows), dense_labels(data.labels)])
    for visit in _visited(Parts(data, [7])):
        found = [np.hstack([dense_rows(part.rows), dense_labels(part.labels)]) for _, part in visit]
        assert len(found) == -(-data.n_entries // most)
        assert sorted(map(bytes, np.vstack(found))) == sorted(map(bytes, expected))


def test_each_window_has_rows_from_all_over_and_another_turn_in_each_epoch(monkeypatch):
    data = _data(1, 4000)
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", data.n_entries // 7)
    numbered = data._replace(rows=to_rows(np.arange(1.0, 4001)[:, None]))
    first, second = _visited(MemorySource(numbered))
    assert {number for number, _ in first} == {number for number, _ in second}
    assert [number for number, _ in first] != [number for number, _ in second]
    for _, part in first:
        tenth = np.bincount(((part.rows.values - 1) // 400).astype(int), minlength=10) / part.n_rows
        assert 0.05 < tenth.min() <= tenth.max() < 0.16


def test_a_directory_without_room_is_refused_before_the_rows_are_read_again(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", 20)
    source = Parts(_data(2, 50), [])
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(windows.shutil, "disk_usage", lambda path: usage(8 * source.census.n_entries - 1))
    monkeypatch.setattr(source, "parts", None)
    with pytest.raises(BadParameter, match=f"TMPDIR: expected room for .* in {tempfile.gettempdir()}, found"):
        _visited(source)


def test_a_disk_that_is_full_is_told(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", 20)
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda buffering: full)
        with pytest.raises(Unavailable, match=r"expected space for rows in .*, found: No space left"):
            _visited(Parts(_data(2, 50), []))


def test_a_census_counts_rows_and_non_zeros_of_labels():
    rows = to_rows(np.array([[1.0, 0, 2], [0, 0, 0], [1, 1, 1]]))
    labels = LabelRows(np.array([0, 2, 3, 4]), np.array([0, 3, 3, 0], np.int32), 4)
    counted = [np.asarray(each).tolist() for each in count(TrainingSet(rows, labels))]
    assert counted == [3, 3, 5, 3, [2, 0, 0, 2], [5, 0, 0, 2]]
