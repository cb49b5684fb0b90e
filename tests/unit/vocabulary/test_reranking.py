"""Candidates ranked anew by near training rows: features, answers, and what is refused."""

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
from tests.helpers.near_rows import (
    N_FEATURES,
    N_LABELS,
    RAW,
    dense,
    dense_near,
    near_draft,
    others_of,
    random_labels,
    random_rows,
    rows_of,
    voted_by,
)
from tests.helpers.small_models import small_draft, softmax_draft

from xylem.base.errors import BadParameter
from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.kernels.search.near_rows import LISTED_ROWS
from xylem.engine.predictor import PredictOptions
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.vocabulary.near_rows import (
    near_of,
)
from xylem.vocabulary.ranker import Candidates, precisions
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.near import (
    NEAR_FEATURES,
    NEAREST,
    NearRows,
    has_near,
)
from xylem_store.store import Store
from xylem_store.version import model_of


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
