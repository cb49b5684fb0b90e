"""Copies of models are models of their own; what holds addresses refuses to be copied."""

import copy
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xylem
from model_store.errors import Corrupt
from model_store.store import Store
from model_store.version import Model, pack, unpack
from service.base.errors import BadInput
from service.features import load_featurizer
from service.features.request_bodies import BodyForms, RequestBodies
from service.features.text_featurizer import TextFeaturizer
from service.inference.predictor import Predictor
from service.inference.predictors import make_predictor
from service.serving.opening import serve_model
from tests.copied_models import LABELS, TEXTS, answers_of


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
    with pytest.raises(BadInput, match="save: expected a model that was trained here"):
        loaded.save(tmp_path, "other")


def flip(arrays: dict[str, Any]) -> None:
    arrays["ensemble/child_ptr"] = arrays["ensemble/child_ptr"].copy()
    arrays["ensemble/child_ptr"].view(np.uint8)[5] ^= 1


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (flip, "ensemble/child_ptr: expected sha256"),
        (lambda arrays: arrays.pop("labels/utf8"), "packed model: expected the arrays"),
        (lambda arrays: arrays.update({"labels/utf8": np.array([print])}), "labels/utf8: expected uint8"),
        (lambda arrays: arrays.update({"labels/utf8": np.zeros((2, 2), np.uint8)}), "labels/utf8: expected"),
    ],
)
def test_a_damaged_pickle_is_refused(change: Callable[[dict[str, Any]], object], fault: str) -> None:
    manifest, seal, arrays = pack(xylem.train(TEXTS, LABELS)._opened)
    with pytest.raises(Corrupt, match="manifest"):
        unpack((manifest.replace(b"label-tree", b"label-bush"), seal, arrays))
    change(arrays)
    with pytest.raises(Corrupt, match=fault):
        unpack((manifest, seal, arrays))


def holders(model: Model) -> dict[str, object]:
    """What holds addresses, by name."""
    predictor = make_predictor(model)
    assert isinstance(predictor, Predictor)
    featurizer = load_featurizer(model.manifest.features, model.arrays, model.manifest.n_features)
    assert isinstance(featurizer, TextFeaturizer)
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
                copied(holder)  # type: ignore[operator]


def test_a_model_outlives_its_store(own_store: Store) -> None:
    model, others = (xylem.load(own_store.root, "text") for _ in range(2))
    expected = answers_of(others, TEXTS)
    shutil.rmtree(own_store.root)
    assert answers_of(model, TEXTS) == expected
    assert model.explain(TEXTS[0], top_r=1)[0]["label"] == expected[0][0][0]
    with pytest.raises(BadInput, match="expected tuned thresholds, found none"):
        model.predict(TEXTS, threshold="tuned")
