"""Near rows: how they are drawn, and groups of rows that are alike."""

import numpy as np
import pytest
from tests.helpers.datasets_helpers import refused
from tests.helpers.near_rows import (
    N_FEATURES,
    N_LABELS,
    dense,
    dense_near,
    near_draft,
    others_of,
    random_labels,
    random_rows,
    rows_of,
    voted_by,
)
from tests.oracles.problems import dense_labels, to_rows

from xylem.base.rows import SparseRows
from xylem.vocabulary import folds
from xylem.vocabulary.near_rows import (
    ALIKE,
    FEATURES_MAX,
    draw_near_rows,
    group_alike,
    place_near,
)
from xylem_store.arrays import group_of
from xylem_store.checks import check_version
from xylem_store.errors import Corrupt
from xylem_store.near import (
    NEAR,
    OTHERS_MAX,
    POSTINGS_MAX,
    ROWS_MAX,
    check_near,
)
from xylem_store.version import manifest_of


def test_labels_that_are_true_together_are_counted(seed: int) -> None:
    labels = random_labels(seed, 200, 60)
    near = draw_near_rows(random_rows(seed, 200), labels, seed)
    is_true = dense_labels(labels).astype(np.float64)
    counts, together = is_true.sum(0), is_true.T @ is_true
    np.fill_diagonal(together, 0)
    for label in range(60):
        most = sorted(
            np.flatnonzero(together[label]), key=lambda other: (-together[label, other], other)
        )
        expected = {
            other: together[label, other] / (counts[label] + 2) for other in most[:OTHERS_MAX]
        }
        assert others_of(near, label) == pytest.approx(expected, rel=1e-6)
        assert [*others_of(near, label)] == sorted(expected)
    assert np.diff(near.other_ptr).max() == OTHERS_MAX


def test_near_rows_move_with_their_labels(seed: int) -> None:
    near = draw_near_rows(random_rows(seed, 200), random_labels(seed, 200), seed)
    old = [-1, 5, 1, 7, -1, 0, 3]  # 2, 4 and 6 are gone
    placed = place_near(near, np.array(old, np.int32))
    check_near(placed, N_FEATURES)
    for label, before in enumerate(old):
        assert rows_of(placed, label).tolist() == (
            rows_of(near, before).tolist() if before >= 0 else []
        )
        expected = others_of(near, before) if before >= 0 else {}
        named = {new: expected[was] for new, was in enumerate(old) if was in expected}
        assert others_of(placed, label) == named
    assert len(placed.other_label)
    for row in range(len(near.scale)):
        assert voted_by(placed, row) == [
            new for new, was in enumerate(old) if was in voted_by(near, row)
        ]


def test_rows_are_drawn_for_each_label_with_largest_features(seed: int) -> None:
    rows, labels = random_rows(seed, 300), random_labels(seed, 300)
    near = draw_near_rows(rows, labels, seed)
    again = draw_near_rows(rows, labels, seed)
    assert all(np.array_equal(a, b) for a, b in zip(near, again, strict=True))
    counts = np.bincount(labels.indices, minlength=N_LABELS)
    assert np.array_equal(np.diff(near.label_ptr), np.minimum(counts, ROWS_MAX))
    assert counts.max() > ROWS_MAX > 0 == counts[1]
    whole, kept = dense(rows), dense_near(near)
    listed = np.bincount(near.row, minlength=rows.n_rows)
    assert (
        len(kept) == len(whole) and np.diff(near.feature_ptr).max() < POSTINGS_MAX
    )  # all rows are kept
    for row in np.flatnonzero(kept.any(1)):
        is_kept, source = kept[row] != 0, whole[row]
        step = np.abs(source).max() / 127
        assert np.abs(source[is_kept] - kept[row, is_kept]).max() <= 0.51 * step
        assert listed[row] == min(FEATURES_MAX, (source != 0).sum())
        left_out = np.abs(source[~is_kept]).max(initial=0)
        assert (
            left_out <= np.abs(source[is_kept]).min() + 0.51 * step
        )  # what rounds to 0 is left out too


def test_rows_of_a_feature_are_those_where_it_weighs_most(seed: int) -> None:
    rows = random_rows(seed, 1500)
    near = draw_near_rows(rows, random_labels(seed, 1500), seed)
    whole, kept = np.abs(dense(rows)), dense_near(near) != 0
    assert np.diff(near.feature_ptr).max() == POSTINGS_MAX
    for feature, n_listed in zip(near.feature, np.diff(near.feature_ptr), strict=True):
        is_among_largest = (whole > whole[:, [feature]]).sum(1) < FEATURES_MAX
        left_out = whole[is_among_largest & ~kept[:, feature], feature]
        if n_listed == POSTINGS_MAX:
            assert left_out.max() <= whole[kept[:, feature], feature].min() + 1e-6


def test_few_rows_are_kept_beside_those_of_labels(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rows, labels = random_rows(seed, 300), random_labels(seed, 300)
    monkeypatch.setattr("xylem.vocabulary.near_rows.KEPT_ROWS", 0)
    near = draw_near_rows(rows, labels, seed)
    assert len(near.scale) == len(np.unique(near.label_row)) < 300
    whole, kept = dense(rows), dense_near(near)
    is_true = dense_labels(labels)
    for label in range(N_LABELS):
        for row in rows_of(near, label):
            source = int((kept[row] @ whole.T).argmax())
            assert is_true[source, label] or not kept[row].any()
            assert (
                voted_by(near, row) == np.flatnonzero(is_true[source]).tolist()
                or not kept[row].any()
            )


def test_damaged_arrays_and_a_missing_one_are_refused() -> None:
    draft, near = near_draft(1)
    arrays, manifest = draft.arrays(), manifest_of(draft)
    for name, index, value, expected in (
        ("label_ptr", 0, 1, "ascending offsets"),
        ("label_ptr", 2, 10**12, "ascending offsets"),
        ("label_ptr", -1, 3, "ascending offsets"),
        ("label_row", 0, -1, "ascending in its list"),
        ("label_row", -1, 2**30, "ascending in its list"),
        ("feature_ptr", 1, -1, "ascending offsets"),
        ("row", -1, 2**30, "ascending in its list"),
        ("row", 0, -1, "ascending in its list"),
        ("feature", -1, N_FEATURES, "ascending columns"),
        ("feature", 1, 0, "ascending columns"),
        ("feature", 0, -1, "ascending columns"),
        ("scale", 2, -0.5, "0 or more"),
        ("row_label_ptr", 1, 10**6, "ascending offsets"),
        ("row_label", 0, N_LABELS, "ascending in its list"),
        ("other_ptr", 0, 1, "ascending offsets"),
        ("other_label", 0, N_LABELS, "ascending in its list"),
        ("other_share", 0, 1.5, "a share from 0 to 1"),
        ("scale", 2, np.nan, "a finite number"),
    ):
        changed = arrays[f"{NEAR}/{name}"].copy()
        changed[index] = value
        with refused(Corrupt, rf"near\.{name}.*{expected}", (index, value)):
            check_version(manifest, {**arrays, f"{NEAR}/{name}": changed})
    n_rows = len(near.scale)
    ptr = np.array([0] + [n_rows] * N_LABELS)
    many = near._replace(label_ptr=ptr, label_row=np.arange(n_rows, dtype=np.int32))
    assert n_rows > ROWS_MAX
    with pytest.raises(Corrupt, match=f"at most {ROWS_MAX} in a list, found {n_rows}"):
        check_version(manifest, {**arrays, **group_of(NEAR, many)})
    del arrays[f"{NEAR}/scale"]
    with pytest.raises(Corrupt, match=f"expected an array {NEAR}/scale, found none"):
        check_version(manifest, arrays)


def rows_with_alike(seed: int, n_rows: int) -> SparseRows:
    """Return rows of which every third is the one before with
    another feature, and each 20th is row 0.
    """
    rng = np.random.default_rng(seed)
    values = np.zeros((n_rows, N_FEATURES), np.float32)
    for row in range(n_rows):
        values[row, rng.choice(N_FEATURES, 12, replace=False)] = rng.random(12) + 0.5
        if row % 3 == 2:
            values[row] = values[row - 1]
            values[row, rng.integers(N_FEATURES)] += 1
        if row % 20 == 0:
            values[row] = values[0]
    return to_rows(values)


def test_groups_are_of_rows_that_are_alike(
    seed: int,
) -> None:
    rows = rows_with_alike(seed, 200)
    group = group_alike(rows)
    unit = dense(rows)
    expected = list(range(200))  # of each row the smallest row that it is connected with
    for row, other in zip(*np.nonzero(unit @ unit.T >= ALIKE), strict=True):
        was, now = max(expected[row], expected[other]), min(expected[row], expected[other])
        expected = [now if one == was else one for one in expected]
    assert len(np.unique(group)) == len(set(expected)) < 190
    assert len(set(zip(group.tolist(), expected, strict=True))) == len(set(expected))
    assert (group[::20] == group[0]).all()
    few = group_alike(rows, 4)
    for number, size in enumerate(np.bincount(group).tolist()):
        assert len(np.unique(few[group == number])) == -(-size // 4)
    assert np.bincount(few).max() == 4
    same = SparseRows(np.arange(101), np.zeros(100, np.int32), np.ones(100, np.float32), 3)
    empty = SparseRows(np.zeros(101, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 3)
    assert [len(part) for part in folds.divide(same, 1)] == [20] * 5
    assert sum(map(len, folds.divide(empty, 1))) == 100 == len(np.unique(group_alike(empty)))


@pytest.mark.parametrize("n_rows", [100, 2003])
def test_parts_hold_all_rows_once_and_rows_alike_together(seed: int, n_rows: int) -> None:
    parts = folds.divide(rows_with_alike(seed, n_rows), seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n_rows))
    assert min(map(len, parts)) > n_rows / 10
    part_of = {row: number for number, part in enumerate(parts) for row in part.tolist()}
    twins = [row for row in range(2, n_rows, 3) if row % 20 != 0 and (row - 1) % 20 != 0]
    assert np.mean([part_of[row] == part_of[row - 1] for row in twins]) > 0.9
