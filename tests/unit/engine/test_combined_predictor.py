"""Answers of combined versions against the same worked out slowly from
what members, names and ranker say.
"""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.answers import dense_scores, each_row
from tests.helpers.combined_models import documents, publish_combined
from tests.oracles.trees import row_dicts

from xylem.base.rows import SparseRows
from xylem.engine.combined_predictor import CombinedPredictor, make_predictor
from xylem.engine.kernels.search.combined import LOG_FLOOR
from xylem.engine.predictor import PredictOptions
from xylem.vocabulary.featurizers import featurizer_of
from xylem.vocabulary.ranker import margins_of
from xylem_store.errors import Corrupt
from xylem_store.members import assemble_ranker, map_name, proposing_of
from xylem_store.names import name_of
from xylem_store.store import Store
from xylem_store.version import Model, pack, unpack


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return publish_combined(tmp_path_factory.mktemp("combined"))


@pytest.fixture(scope="module")
def model(store: Store) -> Model:
    return store.open("both")


@pytest.fixture(scope="module")
def predictor(model: Model) -> CombinedPredictor:
    return make_predictor(model)


@pytest.fixture(scope="module")
def rows(model: Model) -> SparseRows:
    texts = [str(row["text"]) for row in documents(25, 3)] + ["", "nothing known", "salt mine"]
    return featurizer_of(model).transform_texts(texts)


def slow_scores(model: Model, predictor: CombinedPredictor, alone: SparseRows) -> dict[int, float]:
    """Return the probability of each candidate of one row, from the specification in FORMAT.md."""
    proposing, arrays = proposing_of(model.arrays), model.arrays
    (columns,) = row_dicts(alone[:3])
    n_columns = alone.n_features - proposing.name_features * proposing.concepts
    ranks: list[dict[int, tuple[int, float]]] = []
    first = 0
    for number, member in enumerate(predictor.members):
        inside = (alone.indices >= first) & (alone.indices < first + member.n_features)
        indices = alone.indices[inside] - first
        own = SparseRows(
            np.array([0, len(indices)]), indices, alone.values[inside], member.n_features
        )
        found = member.predict(own, PredictOptions(proposing.candidates, proposing.beam_width))
        to_label = arrays[map_name(number)]
        pairs = zip(to_label[found.labels].tolist(), found.scores.tolist(), strict=True)
        ranks.append({label: (rank, score) for rank, (label, score) in enumerate(pairs)})
        first += member.n_features
    assert first == n_columns
    named = {
        (column - n_columns) // proposing.name_features for column in columns if column >= n_columns
    }
    x = []
    candidates = sorted({label for found in ranks for label in found} | named)
    for label in candidates:
        features: list[float] = []
        for number, found in enumerate(ranks):
            most = min(proposing.candidates, predictor.members[number].n_labels)
            rank, score = found.get(label, (most, 0.0))
            best = max((one for _, one in found.values()), default=1.0)
            log = max(float(LOG_FLOOR), np.log(score)) if score > 0 else float(LOG_FLOOR)
            features += [
                log,
                np.log1p(rank),
                score / best,
                float(label in arrays[map_name(number)]),
            ]
        start = n_columns + label * proposing.name_features
        features += [columns.get(start + f, 0.0) for f in range(proposing.name_features)]
        x.append([*features, np.log1p(arrays["labels/counts"][label])])
    margins = margins_of(assemble_ranker(model.manifest, arrays), np.array(x, np.float32))
    return dict(zip(candidates, (1 / (1 + np.exp(-margins))).tolist(), strict=True))


def test_answers_are_those_of_the_specification(
    model: Model, predictor: CombinedPredictor, rows: SparseRows
) -> None:
    found = predictor.predict(rows, PredictOptions(top_r=7))
    for row, (labels, scores) in enumerate(each_row(found)):
        expected = slow_scores(model, predictor, rows.cut(row, row + 1))
        assert sorted(labels) == sorted(expected)
        assert scores.tolist() == sorted(scores.tolist(), reverse=True)
        assert scores == pytest.approx([expected[label] for label in labels], rel=1e-4, abs=1e-6)
    assert found.exact.all()


def test_a_name_alone_proposes_a_label_that_no_member_has(
    model: Model, predictor: CombinedPredictor
) -> None:
    rows = featurizer_of(model).transform_texts(["an old salt mine"])
    labels = predictor.predict(rows, PredictOptions(top_r=7)).labels
    assert "l6" in [name_of(model.labels, int(label)) for label in labels]
    assert model.arrays["labels/counts"][6] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_are_the_same_bits_on_any_number_of_threads(
    predictor: CombinedPredictor, rows: SparseRows, threads: int
) -> None:
    together = predictor.predict(rows, PredictOptions(top_r=4), threads)
    for row, (labels, scores) in enumerate(each_row(together)):
        alone = predictor.predict(rows.cut(row, row + 1), PredictOptions(top_r=4))
        assert (alone.labels.tolist(), alone.scores.tobytes()) == (labels, scores.tobytes())


def test_thresholds_masks_and_weights_hold(predictor: CombinedPredictor, rows: SparseRows) -> None:
    every = predictor.predict(rows, PredictOptions(top_r=7))
    above = predictor.predict(rows, PredictOptions(top_r=7, threshold=0.3))
    assert above.labels.tolist() == every.labels[every.scores >= 0.3].tolist()
    thresholds = np.linspace(0.1, 0.6, 7, dtype=np.float32)
    tuned = predictor.predict(
        rows, PredictOptions(top_r=7, threshold=predictor.node_thresholds(thresholds))
    )
    assert tuned.labels.tolist() == every.labels[every.scores >= thresholds[every.labels]].tolist()
    mask = predictor.label_mask(np.array([0, 1, 1, 1, 1, 1, 0], np.uint8))
    denied = predictor.predict(rows, PredictOptions(top_r=7, mask=mask))
    assert not {0, 6} & set(denied.labels.tolist()) and len(denied.labels)
    weights = np.array([1, 1, 1, 0.25, 1, 1, 1], np.float32)
    weighed = predictor.predict(
        rows, PredictOptions(top_r=7, weights=predictor.node_weights(weights))
    )
    np.testing.assert_allclose(
        dense_scores(weighed, 7), dense_scores(every, 7) * weights, rtol=1e-6
    )


def test_scores_of_named_labels_are_those_of_answers(
    predictor: CombinedPredictor, rows: SparseRows
) -> None:
    every = predictor.predict(rows, PredictOptions(top_r=7))
    label_ptr = np.arange(rows.n_rows + 1, dtype=np.int64) * 7
    named = np.tile(np.arange(7, dtype=np.int32), rows.n_rows)
    scores = predictor.score_labels(rows, label_ptr, named).scores
    assert scores.reshape(rows.n_rows, 7).tolist() == dense_scores(every, 7).tolist()


def test_a_version_travels_whole_and_its_members_may_go(
    store: Store, model: Model, tmp_path: Path
) -> None:
    file = io.BytesIO()
    store.export("both", 1, file)
    file.seek(0)
    other = Store(tmp_path / "other")
    other.import_(file, "both")
    other.verify("both", 1)
    assert other.open("both").manifest.members == model.manifest.members
    assert unpack(pack(model)).manifest.n_labels == model.manifest.n_labels
    inode = "versions/1/arrays/ensemble.parent.npy"
    linked = store.root / "models" / "both" / "versions/1/arrays/member0.ensemble.parent.npy"
    assert linked.stat().st_ino == (store.root / "models" / "words" / inode).stat().st_ino


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ranker/child", [0], "itself, or two nodes above"),
        ("ranker/proposing", [0, 5, 24, 7], "1 to 1000 candidates"),
        ("ranker/labels0", [9] * 6, "labels below 7"),
    ],
)
def test_damaged_arrays_are_refused(
    model: Model, name: str, value: list[int], expected: str
) -> None:
    array = model.arrays[name].copy()
    array[-len(value) :] = value
    manifest = replace(model.manifest, arrays={})
    packed = pack(replace(model, manifest=manifest, arrays={**model.arrays, name: array}))
    with pytest.raises(Corrupt, match=expected):
        unpack(packed)
