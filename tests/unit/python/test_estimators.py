"""Models in other hands: the estimator keeps scikit-learn's rules, copies are models
of their own.
"""

import copy
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.helpers.copied_models import LABELS, TEXTS, answers_of

import xylem
from xylem.base.errors import BadInput
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.registry import load_featurizer
from xylem.serving.dialects.predict.kernels.request_bodies import BodyForms, RequestBodies
from xylem.serving.live.opening import serve_model
from xylem_store.errors import Corrupt
from xylem_store.store import Store
from xylem_store.version import Model, pack, unpack

COLOURS = ["red", "green", "blue", "white", "black"]


def texts_and_labels(n: int) -> tuple[list[str], scipy.sparse.csr_matrix]:
    pairs = [(i % 5, i * i % 5) for i in range(n)]
    texts = [f"{COLOURS[a]} {COLOURS[b]} word{i % 7}" for i, (a, b) in enumerate(pairs)]
    labels = np.zeros((n, 5), np.int8)
    for i, pair in enumerate(pairs):
        labels[i, list(pair)] = 1
    return texts, scipy.sparse.csr_matrix(labels)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_s_own_checks() -> None:
    from unittest import SkipTest

    n_passed, skipped = 0, []
    reason = "a solver ends a little before its optimum: test_weights_in_python has the distance"
    names = (f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse"))
    checks = estimator_checks_generator(
        xylem.LabelTreeClassifier(),
        expected_failed_checks=dict.fromkeys(names, reason),
        mark="skip",
    )
    for estimator, check in checks:
        try:
            check(estimator)
            n_passed += 1
        except SkipTest as reason:
            skipped.append(str(reason))
    assert n_passed >= 50 and len(skipped) <= 6, skipped


def test_many_labels_in_a_pipeline() -> None:
    texts, labels = texts_and_labels(100)
    pipeline = make_pipeline(
        TfidfVectorizer(), xylem.LabelTreeClassifier(trees=2, top_r=2, random_state=3)
    )
    found = pipeline.fit(texts, labels).predict(texts)
    assert scipy.sparse.issparse(found) and found.shape == (100, 5)
    assert (found != labels).nnz == 0
    scores = pipeline.predict_proba(texts)
    assert scores.nnz <= 200 and 0 < scores.data.min() <= scores.data.max() <= 1
    dense = clone(pipeline).fit(texts, labels.toarray())
    assert np.array_equal(dense.predict(texts), found.toarray())
    rows = pipeline[0].transform(texts)
    model = xylem.train(rows, labels, trees=2, seed=3)
    wanted = [{(int(label), score) for label, score in row} for row in model.predict(rows, top_r=2)]
    assert [{(i, float(row[0, i])) for i in row.indices} for row in scores] == wanted


def test_classes_are_cross_validated() -> None:
    texts = [f"{COLOURS[i % 5]} word{i % 7}" for i in range(100)]
    classes = [COLOURS[i % 5] for i in range(100)]
    rows = TfidfVectorizer().fit_transform(texts)
    assert cross_val_score(xylem.LabelTreeClassifier(), rows, classes, cv=3).min() == 1
    estimator = xylem.LabelTreeClassifier().fit(rows, classes)
    assert estimator.classes_.tolist() == sorted(COLOURS)
    assert estimator.predict_proba(rows).sum(axis=1) == pytest.approx(np.ones(100))


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "xylem.python.estimators", raising=False)
    for face in (xylem, xylem.python):
        monkeypatch.delitem(vars(face), "LabelTreeClassifier", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'xylem-serve\[sklearn\]'"):
        _ = xylem.LabelTreeClassifier


def sent(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))  # noqa: S301


def test_a_restored_model_is_the_one_that_was_trained(tmp_path: Path) -> None:
    model = xylem.train(TEXTS, LABELS)
    restored = sent(model)
    assert restored.evaluate(TEXTS, LABELS)["P@1"] == model.evaluate(TEXTS, LABELS)["P@1"]
    assert restored.explain(TEXTS[0], top_r=1) == model.explain(TEXTS[0], top_r=1)
    assert [one.save(tmp_path, "m") for one in (model, restored)] == [1, 2]
    first, second = (Store(tmp_path).manifest("m", version) for version in (1, 2))
    assert first.arrays == second.arrays
    loaded = sent(xylem.load(tmp_path, "m"))
    assert loaded.save(tmp_path, "other") == 1
    assert Store(tmp_path).manifest("other", 1).arrays == first.arrays


def flip(arrays: dict[str, Any]) -> None:
    arrays["ensemble/child_ptr"] = arrays["ensemble/child_ptr"].copy()
    arrays["ensemble/child_ptr"].view(np.uint8)[5] ^= 1


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (flip, "ensemble/child_ptr: expected sha256"),
        (lambda arrays: arrays.pop("labels/utf8"), "packed model: expected the arrays"),
        (
            lambda arrays: arrays.update({"labels/utf8": np.array([print])}),
            "labels/utf8: expected uint8",
        ),
        (
            lambda arrays: arrays.update({"labels/utf8": np.zeros((2, 2), np.uint8)}),
            "labels/utf8: expected",
        ),
    ],
)
def test_a_damaged_pickle_is_refused(
    change: Callable[[dict[str, Any]], object], fault: str
) -> None:
    manifest, seal, arrays = pack(xylem.train(TEXTS, LABELS)._opened)
    with pytest.raises(Corrupt, match="manifest"):
        unpack((manifest.replace(b"label-tree", b"label-bush"), seal, arrays))
    change(arrays)
    with pytest.raises(Corrupt, match=fault):
        unpack((manifest, seal, arrays))


def holders(model: Model) -> dict[str, object]:
    """What holds addresses, by name."""
    predictor = make_predictor(model)
    featurizer = load_featurizer(model.manifest.features, model.arrays, model.manifest.n_features)
    predictor.warm_up()
    return {
        "predictor": predictor,
        "pool": predictor.pool,
        "plan": predictor._row_plan,
        "buffers": predictor._take(predictor._row_plan, 1, 1),
        "featurizer": featurizer,
        "bodies": RequestBodies(BodyForms(1, 100, 100, 100, 5, 10), featurizer),
        "served": serve_model(model),
    }


def test_what_holds_addresses_refuses_copies(shared_store: Path) -> None:
    for name, holder in holders(Store(shared_store).open("text")).items():
        print(name)
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"cannot (copy or )?pickle"):
                copied(holder)


def test_a_model_outlives_its_store(own_store: Store) -> None:
    model, others = (xylem.load(own_store.root, "text") for _ in range(2))
    expected = answers_of(others, TEXTS)
    shutil.rmtree(own_store.root)
    assert answers_of(model, TEXTS) == expected
    assert model.explain(TEXTS[0], top_r=1)[0]["label"] == expected[0][0][0]
    with pytest.raises(BadInput, match="expected tuned thresholds, found none"):
        model.predict(TEXTS, threshold="tuned")
