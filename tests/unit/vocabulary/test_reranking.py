"""Candidates ranked anew by near training rows: arrays, kernel, `train --rerank`,
what is refused.
"""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Command, answer
from tests.helpers.datasets_helpers import refused, write_lines
from tests.helpers.small_models import small_draft, softmax_draft
from tests.oracles.problems import dense_labels, dense_rows, to_labels, to_rows

from xylem.base.errors import BadParameter
from xylem.base.rows import LabelRows, SparseRows, offsets
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.kernels.search.near_rows import LISTED_ROWS
from xylem.engine.predictor import PredictOptions
from xylem.vocabulary import reranking
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.vocabulary.combined import combined_parts, no_ranker
from xylem.vocabulary.near_rows import (
    ALIKE,
    FEATURES_MAX,
    draw_near_rows,
    group_alike,
    near_of,
    place_near,
)
from xylem.vocabulary.ranker import Candidates, precisions
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.arrays import group_of
from xylem_store.checks import check_version
from xylem_store.errors import Corrupt
from xylem_store.near import (
    NEAR,
    NEAR_FEATURES,
    NEAREST,
    OTHERS_MAX,
    POSTINGS_MAX,
    ROWS_MAX,
    ZERO,
    NearRows,
    check_near,
    has_near,
)
from xylem_store.store import Store
from xylem_store.version import Draft, manifest_of, model_of

N_LABELS, N_FEATURES = 8, 90
RAW = {"kind": "raw", "norm": "none"}


def random_rows(seed: int, n_rows: int) -> SparseRows:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 40, size=n_rows)
    indices = [np.sort(rng.choice(N_FEATURES, size, replace=False)) for size in sizes]
    values = rng.normal(0, 2, sizes.sum()).astype(np.float32)
    return SparseRows(offsets(sizes), np.concatenate(indices).astype(np.int32), values, N_FEATURES)


def random_labels(seed: int, n_rows: int, n_labels: int = N_LABELS) -> LabelRows:
    rng = np.random.default_rng(seed)
    is_true = rng.random((n_rows, n_labels)) < np.linspace(0.01, 0.9, n_labels)
    is_true[:, 1] = False  # a label without rows
    return to_labels(is_true)


def dense(rows: SparseRows) -> np.ndarray:
    """Return rows at length 1, float64[n, D]."""
    found = dense_rows(rows)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return found / np.where(length > 0, length, 1)


def dense_near(near: NearRows) -> np.ndarray:
    """Return the rows that are kept, float64[n, D]."""
    found = np.zeros((len(near.scale), N_FEATURES))
    for i, feature in enumerate(near.feature):
        for at in range(near.feature_ptr[i], near.feature_ptr[i + 1]):
            row = near.row[at]
            found[row, feature] = (int(near.value[at]) - ZERO) * near.scale[row]
    return found


def rows_of(near: NearRows, label: int) -> np.ndarray:
    return near.label_row[near.label_ptr[label] : near.label_ptr[label + 1]]


def voted_by(near: NearRows, row: int) -> list[int]:
    return near.row_label[near.row_label_ptr[row] : near.row_label_ptr[row + 1]].tolist()


def others_of(near: NearRows, label: int) -> dict[int, float]:
    """The labels that are true where this one is, and in which share of its rows."""
    at = slice(near.other_ptr[label], near.other_ptr[label + 1])
    return dict(zip(near.other_label[at].tolist(), near.other_share[at].tolist(), strict=True))


def best_of(member: Any, row: SparseRows) -> tuple[list[int], list[float]]:
    """The labels that a member finds for a row, the best first, and their scores."""
    best = member.predict(row, PredictOptions(top_r=N_LABELS, beam_width=10))
    return best.labels.tolist(), best.scores.tolist()


def expected_by_best(near: NearRows, member: Any, row: SparseRows, label: int) -> float:
    """Return how often a label was true where the member's ten best labels were, by
    their scores.
    """
    best = list(zip(*best_of(member, row), strict=True))[:10]
    found = sum(score * others_of(near, other).get(label, 0.0) for other, score in best)
    return found / sum(score for _, score in best) if best else 0.0


def context_of(member: Any, row: SparseRows, labels: np.ndarray, votes: np.ndarray) -> np.ndarray:
    """Return what describes a row, of each label: float64[n, 5].

    votes  [n, 2]  the labels' votes, and the greatest cosine of each one's
    """
    best, scores = best_of(member, row)
    scores.append(0.0)
    pairs = itertools.pairwise(scores)
    beside = [np.log((score + 1e-6) / (after + 1e-6)) for score, after in pairs]
    of_label = dict(zip(best, beside, strict=True))
    shared = [sum(scores), scores[0], votes[:, 0].sum(), votes[:, 1].max()]
    return np.array([[of_label.get(label, 0.0), *shared] for label in labels.tolist()])


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


def near_draft(seed: int) -> tuple[Draft, NearRows]:
    """Return a combined version of one label tree with near rows,
    whose ranker finds all labels alike.
    """
    member = small_draft(seed, n_labels=N_LABELS, n_features=N_FEATURES, features=RAW)
    near = draw_near_rows(random_rows(seed, 300), random_labels(seed, 300), seed)
    parts = replace(
        combined_parts([model_of(member)], None, N_LABELS, 10), near=group_of(NEAR, near)
    )
    return parts.draft(no_ranker(parts), 0, {}), near


def test_rows_are_drawn_for_each_label_and_keep_their_largest_features(seed: int) -> None:
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


@pytest.mark.parametrize("listed_rows", [0, LISTED_ROWS])
def test_features_of_candidates_are_those_of_a_slow_oracle(
    monkeypatch: pytest.MonkeyPatch, seed: int, listed_rows: int
) -> None:
    monkeypatch.setattr("xylem.engine.combined_predictor.LISTED_ROWS", listed_rows)
    draft, near = near_draft(seed)
    predictor = make_predictor(model_of(draft))
    rows, kept = random_rows(seed + 1, 40), dense_near(near)
    asked = dense(rows)
    member = small_draft(seed, n_labels=N_LABELS, n_features=N_FEATURES, features=RAW)
    single = make_predictor(model_of(member))
    n_votes = 0
    for row in [*range(rows.n_rows), 0, 1]:  # a row leaves nothing behind for the next
        labels, features = predictor.candidates(rows, row)
        this, expected = rows.cut(row, row + 1), []
        cosine_of = kept @ asked[row]
        order = np.lexsort((np.arange(len(kept)), -cosine_of))
        nearest = [int(one) for one in order if cosine_of[one] > 1e-6][:NEAREST]
        total = sum(cosine_of[one] ** 3 for one in nearest)
        for label in labels:
            cosines = np.sort(cosine_of[rows_of(near, label)])[::-1]
            positive = np.append(np.maximum(cosines, 0), np.zeros(3))[:3]
            mean = cosines.mean() if len(cosines) else 0
            found = [positive[0], positive.mean(), (cosines**3).sum(), mean]
            voters = [one for one in nearest if label in voted_by(near, one)]
            votes = sum(cosine_of[one] ** 3 for one in voters)
            found += [votes, votes / total if total else 0]
            found.append(max((cosine_of[one] for one in voters), default=0))
            n_votes += bool(len(voters) > 3)
            expected.append([*found, expected_by_best(near, single, this, int(label))])
        expected = np.array(expected)
        compared = expected[:, [0, 2, -1]]
        best = np.maximum(compared.max(0), 0)
        shares = np.divide(compared, best, out=np.zeros(compared.shape), where=best > 0)
        context = context_of(single, this, labels, expected[:, [4, 6]])
        found = features[:, -len(NEAR_FEATURES) :]
        np.testing.assert_allclose(
            found, np.hstack([expected, shares, context]), rtol=1e-4, atol=1e-5
        )
    assert n_votes > 40 and len(near.scale) > NEAREST


def test_answers_are_those_of_the_ranker_whatever_the_threads(seed: int) -> None:
    draft, _ = near_draft(seed)
    linear = np.zeros_like(draft.extra["ranker/linear"])
    linear[-1 - len(NEAR_FEATURES)] = 3.0  # the greatest cosine alone
    predictor = make_predictor(
        model_of(replace(draft, extra={**draft.extra, "ranker/linear": linear}))
    )
    rows = random_rows(seed + 2, 30)
    one = predictor.predict(rows, PredictOptions(top_r=N_LABELS))
    two = predictor.predict(rows, PredictOptions(top_r=N_LABELS), 3)
    assert all(np.array_equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))
    for row in range(rows.n_rows):
        labels, features = predictor.candidates(rows, row)
        probabilities = 1 / (1 + np.exp(-3 * features[:, -len(NEAR_FEATURES)]))
        expected = dict(zip(labels.tolist(), probabilities, strict=True))
        at = slice(one.ptr[row], one.ptr[row + 1])
        found = dict(zip(one.labels[at].tolist(), one.scores[at].tolist(), strict=True))
        assert found == pytest.approx(expected, abs=1e-6)


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


def test_groups_are_of_rows_that_are_alike_and_rows_that_all_are_or_are_empty_are_dealt_too(
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
    assert [len(part) for part in reranking.divide(same, 1)] == [20] * 5
    assert sum(map(len, reranking.divide(empty, 1))) == 100 == len(np.unique(group_alike(empty)))


@pytest.mark.parametrize("n_rows", [100, 2003])
def test_parts_hold_all_rows_once_and_rows_alike_together(seed: int, n_rows: int) -> None:
    parts = reranking.divide(rows_with_alike(seed, n_rows), seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n_rows))
    assert min(map(len, parts)) > n_rows / 10
    part_of = {row: number for number, part in enumerate(parts) for row in part.tolist()}
    twins = [row for row in range(2, n_rows, 3) if row % 20 != 0 and (row - 1) % 20 != 0]
    assert np.mean([part_of[row] == part_of[row - 1] for row in twins]) > 0.9


def test_precisions_are_those_of_sorted_candidates() -> None:
    labels, features = np.array([5, 1, 2, 7], np.int32), np.zeros((4, 2), np.float32)
    found = Candidates(np.array([0, 3, 4]), labels, features, np.array([False, True, True, True]))
    margins = np.array([0.5, 0.5, 0.1, 9.0])
    assert precisions(found, margins) == {"P@1": 50.0, "P@3": 50.0, "P@5": 30.0}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose label two words say together: a linear model knows it badly, a neighbour well."""
    rng = np.random.default_rng(5)
    lines = []
    for _ in range(600):
        a, b = rng.integers(6, size=2)
        noise = " ".join(f"n{word}" for word in rng.integers(40, size=3))
        lines.append({"text": f"a{a} b{b} {noise}", "labels": [f"l{(a + b) % 6}"]})
    return write_lines(tmp_path_factory.mktemp("near") / "rows.jsonl", lines)


def test_a_ranker_is_kept_where_held_out_rows_gain(texts: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    request = TrainRequest(
        trainer="label-tree", data=texts, valid=texts, rerank=True, origin={"job": "j"}
    )
    report = train_and_publish(store, "near", request)
    assert report.rerank["kept"] and report.rerank["rows"] == 600
    assert report.rerank["ranked"]["P@1"] >= report.rerank["alone"]["P@1"] + 5
    model = store.open("near")
    assert model.manifest.kind == "combined"
    assert model.manifest.trainer.parameters["members"] == ["label-tree"]
    assert model.manifest.metrics == report.metrics
    alone = train_and_publish(store, "alone", request.model_copy(update={"rerank": False}))
    assert report.metrics["P@1"] > alone.metrics["P@1"]
    again = train_and_publish(store, "again", request.model_copy(update={"threads": 2}))
    same = store.open("again").arrays
    assert again.rerank == report.rerank
    assert all(
        np.array_equal(array, same[name]) for name, array in model.arrays.items() if "/" in name
    )


def test_a_ranker_that_gains_nothing_is_not_kept(tmp_path: Path, command: Command) -> None:
    lines = [{"text": f"word{i % 4} other{i % 3}", "labels": [f"l{i % 4}"]} for i in range(200)]
    path = write_lines(tmp_path / "easy.jsonl", lines)
    done = command("train", "label-tree", "--data", path, "--model", "easy", "--rerank", "--json")
    report = answer(done)["rerank"]
    assert report.keys() == {"kept", "rows", "alone", "ranked"}
    assert (report["kept"], report["rows"], report["alone"]["P@1"]) == (False, 200, 100)


@pytest.mark.parametrize("are_own", [True, False])
def test_near_rows_of_a_combination_are_kept_where_they_gain(
    are_own: Any, texts: Path, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in texts.read_text().splitlines()]
    train = write_lines(tmp_path / "train.jsonl", lines[:400])
    valid = write_lines(tmp_path / "valid.jsonl", lines[400:])
    strange = [{"text": "nothing", "labels": ["l0"]}, {"text": "n1", "labels": ["gone"]}]
    other = write_lines(tmp_path / "other.jsonl", strange)
    store = Store(tmp_path)
    train_and_publish(store, "tree", TrainRequest(trainer="label-tree", data=train))
    request = CombineRequest([("tree", "latest")], valid, rerank=train if are_own else other)
    report = combine_and_publish(store, "both", request)
    measured, arrays = report["rerank"], store.open("both").arrays
    assert measured["rows"] == 200
    if are_own:
        assert measured["kept"] and measured["ranked"]["P@1"] > measured["alone"]["P@1"] + 5
        assert report["combined"]["P@1"] == pytest.approx(measured["ranked"]["P@1"], abs=0.01)
        assert len(arrays["near/scale"]) and not report["warnings"]
    else:
        assert not measured["kept"] and not has_near(arrays)
        told = "other.jsonl, whose rows rank candidates, is not what tree@1 was trained on"
        assert told in report["warnings"]


def test_what_cannot_be_ranked_is_refused_before_training(
    texts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": f"w{i}", "labels": [f"l{i % 2}"]} for i in range(99)]
    few = write_lines(tmp_path / "few.jsonl", rows)
    request = TrainRequest(trainer="label-tree", data=texts, valid=texts, rerank=True)
    for changes, words in (
        ({"stream": True, "trainer": "plt", "parameters": ("solver=sgd",)}, "rows in memory"),
        ({"calibrate": True}, "found calibrate"),
        ({"trainer": "huffman-tree"}, "whose scores sum to 1"),
        ({"data": few}, "at least 100 rows, found 99"),
    ):
        with refused(BadParameter, f"rerank: expected .*{words}"):
            train_and_publish(Store(tmp_path), "refused", request.model_copy(update=changes))
    with pytest.raises(BadParameter, match="whose scores sum to 1"):
        near_of(model_of(softmax_draft(1)), None, random_labels(1, 3), 0)
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)  # it may have been imported before
    with pytest.raises(BadParameter, match=r"xylem-serve\[sklearn\]"):
        train_and_publish(Store(tmp_path), "refused", request)
    assert not list(tmp_path.glob("models/refused/versions/*"))
