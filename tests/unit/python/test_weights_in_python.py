"""Weights of rows and labels in memory: training, figures, thresholds, the estimator."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import xylem
from xylem.errors import BadData, BadParameter

TEXTS = [f"{colour} thing {i}" for i in range(40) for colour in ("red", "blue", "green")]
LABELS = [[text.split()[0], *(["even"] if int(text.split()[2]) % 2 == 0 else [])] for text in TEXTS]
COPIES = np.random.default_rng(5).integers(0, 4, len(TEXTS))
REPEATED = np.repeat(np.arange(len(TEXTS)), COPIES).tolist()


def repeated(values: list[Any]) -> list[Any]:
    """Return each value as often as its row's weight says."""
    return [values[row] for row in REPEATED]


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """Return a model of rows with weights, and one of copies."""
    options: dict[str, Any] = {"progress": False, "eps": 1e-4, "max_epochs": 1000, "prune": 0.0}
    weighed = xylem.train(TEXTS, LABELS, sample_weight=COPIES, **options)
    return weighed, xylem.train(repeated(TEXTS), repeated(LABELS), **options)


def test_a_model_of_weights_is_that_of_copies(models: tuple[Any, Any]) -> None:
    ours, others = (model.predict(TEXTS, top_r=4) for model in models)
    for one, other in zip(ours, others, strict=True):
        assert [label for label, _ in one] == [label for label, _ in other]
        np.testing.assert_allclose([s for _, s in one], [s for _, s in other], atol=1e-3)
    one, other = (model._opened for model in models)
    assert one.manifest.data.rows == other.manifest.data.rows == len(REPEATED)
    for name in ("labels/counts", "features/idf"):
        np.testing.assert_array_equal(one.arrays[name], other.arrays[name])
    assert one.manifest.data.sha256 != xylem.train(TEXTS, LABELS, progress=False)._opened.manifest


def test_figures_of_weights_are_those_of_copies(models: tuple[Any, Any]) -> None:
    model = xylem.train(TEXTS[:60], LABELS[:60], progress=False)
    ours = model.evaluate(TEXTS, LABELS, sample_weight=COPIES, progress=False)
    others = model.evaluate(repeated(TEXTS), repeated(LABELS), progress=False)
    assert ours.pop("rows") == np.count_nonzero(COPIES) and others.pop("rows") == len(REPEATED)
    plain = model.evaluate(TEXTS, LABELS, progress=False)
    for name, figure in ours.items():
        if isinstance(figure, float) and name != "us_per_row":
            assert figure == pytest.approx(others[name], abs=1e-9), name
    for band, band_of_copies in zip(ours["bands"], others["bands"], strict=True):
        assert band == pytest.approx(band_of_copies)
    assert plain["P@3"] != ours["P@3"]


@pytest.mark.parametrize("method", ["ofo", "fta", "sto"])
def test_thresholds_of_weights_are_those_of_copies(models: tuple[Any, Any], method: Any) -> None:
    model = models[0]
    ours = model.tune_thresholds(TEXTS, LABELS, method=method, sample_weight=COPIES, progress=False)
    others = model.tune_thresholds(repeated(TEXTS), repeated(LABELS), method=method, progress=False)
    np.testing.assert_array_equal(ours._tuned.thresholds, others._tuned.thresholds)


@pytest.mark.parametrize("kind", ["tfidf", "chars", "words+chars"])
def test_frequencies_of_words_are_those_of_copies(kind: str) -> None:
    options: dict[str, Any] = {"features_kind": kind, "progress": False}
    if kind != "chars":
        options |= {"features_min_df": 9, "features_max_features": 20}
    ours = xylem.train(TEXTS, LABELS, sample_weight=COPIES, **options)._opened.arrays
    others = xylem.train(repeated(TEXTS), repeated(LABELS), **options)._opened.arrays
    for name in ours:
        if name.startswith("features/"):
            np.testing.assert_array_equal(ours[name], others[name])


def test_small_weights_drop_no_word() -> None:
    model = xylem.train(TEXTS, LABELS, sample_weight=[1e-3] * len(TEXTS), progress=False)
    assert model._opened.manifest.n_features == 34


def test_labels_have_weights() -> None:
    doubtful = [3 if number % 4 else 4 for number in range(len(TEXTS))]
    pairs = list(zip(LABELS, doubtful, strict=True))
    labels = [dict.fromkeys(row, 1.0) | {label: 0.05} for row, label in pairs]
    model = xylem.train(TEXTS, labels, trainer="ovr", progress=False)
    assert list(model.label_names) == ["3", "4", "blue", "even", "green", "red"]
    certain = xylem.train(
        TEXTS, [[*row, label] for row, label in pairs], trainer="ovr", progress=False
    )
    doubted, sure = (m.predict(["thing"], top_r=6)[0] for m in (model, certain))
    assert dict(doubted)["3"] < dict(sure)["3"]


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        ([1.0], "sample_weight: expected 120 weights, as many as instances, found 1"),
        (3, "sample_weight: expected 120 weights, as many as instances, found 1"),
        ([1.0] * 119 + [-1.0], r"sample_weight: row 119: expected a weight of 0, or .* '-1.0'"),
        ([1.0] * 119 + [np.nan], "sample_weight: row 119: expected a weight of 0, or .* 'nan'"),
        ([1.0] * 119 + ["2"], "sample_weight: row 119: expected a weight of 0, or .* found '2'"),
        (dict.fromkeys(range(120), 1), "sample_weight: expected 120 weights, .* found 1"),
        ([0.0] * 120, "sample_weight: expected a weight above 0, found 0 in all rows"),
    ],
)
def test_wrong_weights_name_their_row(weights: Any, fault: str) -> None:
    with pytest.raises(BadData, match=fault):
        xylem.train(TEXTS, LABELS, sample_weight=weights, progress=False)


def test_wrong_weights_of_labels_name_their_row(models: tuple[Any, Any]) -> None:
    with pytest.raises(BadData, match="row 1: label 'b': expected a weight of 0, or"):
        xylem.train(["a", "b"], [["a"], {"b": -1}], progress=False)
    with pytest.raises(BadData, match="labels: row 0: expected a list of strings, found dict"):
        models[0].score(["a"], [{"red": 1.0}])
    with pytest.raises(BadParameter, match="compare: expected rows without weights"):
        models[0].compare(models[1], ["a"], [{"red": 0.5}], progress=False)


def test_the_estimator_takes_weights() -> None:
    x = csr_matrix(np.random.default_rng(0).random((60, 5)))
    y = np.random.default_rng(1).integers(0, 2, (60, 3))
    weights = np.random.default_rng(2).integers(0, 3, 60).astype(float)
    rows = np.repeat(np.arange(60), weights.astype(int))
    ours, others = (
        xylem.LabelTreeClassifier(threshold=0.5).fit(*data)
        for data in ((x, y, weights), (x[rows], y[rows]))
    )
    # both end a little before the same optimum
    np.testing.assert_allclose(ours.predict_proba(x), others.predict_proba(x), atol=0.1)
    automatic = xylem.LabelTreeClassifier().fit(x, y, sample_weight=weights)
    assert 0 < automatic.threshold_ <= 1
