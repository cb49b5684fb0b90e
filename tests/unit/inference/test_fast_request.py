"""A plain body is answered with the predictions that the general way makes of it, whatever is asked for."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_store.names import build_names
from model_store.version import Model, model_of
from service.base.rows import SparseRows
from service.features import Featurizer, load_featurizer
from service.features.request_bodies import BodyForms, BodyQuery
from service.inference.answering import Predictions
from service.inference.fast_request import (
    AS_PREDICTIONS,
    AS_TENSORS,
    FastAnswer,
    FastForms,
    FastLimits,
    Present,
    RowsRead,
)
from service.inference.fast_steps import FastRequests, fast_requests
from service.inference.prediction_json import OUTPUTS, form_of, predictions_json, spans_of, tensors_json
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.inference.searcher import Searcher
from service.kernels.search.call import NO_THRESHOLD, NUMBER, TUNED
from service.thresholds.live.tokens import Tokens, model_hash
from tests.oip_requests import csr
from tests.small_models import small_draft

LIMITS = FastLimits(top_r_max=9, beam_width_max=30, labels_max=40, beams_max=32, children_max=1 << 20)
BODIES = BodyForms(
    rows_max=32, values_max=2000, characters_max=400, text_bytes_max=300, top_r=5, beam_width=10
)
FORMS = FastForms(LIMITS, BODIES)
EPOCH = 3
TOKENS = Tokens([b"key"], 1000)
KINDS = ["label-tree", "decision-tree"]


def opened(kind: Any, names: list[str] | None = None, n_trees: int = 2) -> Model:
    changes: dict[str, Any] = {} if names is None else {"labels": build_names(names)}
    changes |= {"features": {"kind": "raw", "norm": "l2"}, "n_trees": n_trees}
    return model_of(small_draft(3, kind=kind, n_labels=40, **changes))


class Both:
    """A model's plain way and its general way."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.predictor: Searcher = make_predictor(model)
        self.featurizer: Featurizer = load_featurizer(
            model.manifest.features, model.arrays, model.manifest.n_features
        )
        self.plain: FastRequests = fast_requests(model, self.predictor, self.featurizer, FORMS)
        self.thresholds = np.linspace(0, 1, model.manifest.n_labels, dtype=np.float32)
        self.tuned = self.predictor.node_thresholds(self.thresholds / 8)
        self.seal = TOKENS.seal(model_hash("m"), 7, EPOCH)
        self.signed = (Present(self.thresholds, self.tuned, self.seal), EPOCH, 11)

    def plainly(self, body: bytes, is_known: bool = True) -> FastAnswer | None:
        signed = self.signed if is_known else (Present(self.thresholds, None, self.seal), EPOCH, 11)
        return self.plain.answer(b"head" + body, (4, 4 + len(body)), AS_PREDICTIONS, signed)

    def as_tensors(self, body: dict[str, Any]) -> FastAnswer | None:
        """The answer as tensors to the rows of a body of predict, and to the same rows read before."""
        options = {key: value for key, value in body.items() if key != "instances"}
        request = {"inputs": csr(body["instances"]), "parameters": {**options, "binary_data_output": True}}
        content = b"head" + orjson.dumps(request)
        return self.plain.answer(content, (4, len(content)), AS_TENSORS, self.signed)

    def rows_of(self, instances: list[dict[str, Any]]) -> SparseRows:
        ends = np.cumsum([0, *(len(instance["indices"]) for instance in instances)])
        indices = np.array([i for instance in instances for i in instance["indices"]], np.int64)
        values = np.array([v for instance in instances for v in instance["values"]], np.float32)
        return self.featurizer.transform_csr(ends, indices, values)

    def from_rows(
        self,
        instances: list[dict[str, Any]],
        top_r: int,
        beam_width: int,
        threshold: Any = None,
        exact: bool = False,
    ) -> FastAnswer | None:
        """The answer for rows that were read before, as those of texts are."""
        rows, is_number = self.rows_of(instances), isinstance(threshold, float)
        kind = TUNED if threshold == "tuned" else NUMBER if is_number else NO_THRESHOLD
        asked = BodyQuery(rows.n_rows, len(rows.indices), top_r, beam_width, kind, int(exact))
        number = threshold if is_number else 0.0
        return self.plain.answer(b"", (0, 0), AS_PREDICTIONS, self.signed, RowsRead(rows, asked, number))

    def predicted(
        self, instances: list[dict[str, Any]], top_r: int, beam_width: int, threshold: Any, exact: bool
    ) -> Predictions:
        prepared = self.tuned if threshold == "tuned" else threshold
        options = PredictOptions(top_r, beam_width, exact, prepared)
        return self.predictor.predict(self.rows_of(instances), options)

    def generally(
        self,
        instances: list[dict[str, Any]],
        top_r: int,
        beam_width: int,
        threshold: Any = None,
        exact: bool = False,
    ) -> bytes:
        found = self.predicted(instances, top_r, beam_width, threshold, exact)
        named = np.empty(0, np.float32) if threshold == "tuned" else self.thresholds
        return b",".join(predictions_json(self.model.labels, named, self.seal, 11, spans_of(found)))


@pytest.fixture(scope="module", params=[(kind, n_trees) for kind in KINDS for n_trees in (1, 2)], ids=str)
def both(request: pytest.FixtureRequest) -> Both:
    return Both(opened(request.param[0], n_trees=request.param[1]))


instances = st.lists(
    st.dictionaries(st.integers(0, 69), st.integers(-16, 16), max_size=12).map(
        lambda row: {"indices": list(row), "values": [value / 8 for value in row.values()]}
    ),
    min_size=1,
    max_size=6,
)


thresholds = st.sampled_from([None, None, "tuned"]) | st.floats(0.001, 0.9)


@given(instances, st.integers(1, 11), st.integers(1, 33), thresholds, st.booleans())
def test_the_predictions_of_the_general_way(
    both: Both, instances: list[dict[str, Any]], top_r: int, beam_width: int, threshold: Any, exact: bool
) -> None:
    n_rows = len(instances)
    body = {"instances": instances, "top_r": top_r, "beam_width": beam_width, "exact": exact}
    found = both.plainly(orjson.dumps(body if threshold is None else {**body, "threshold": threshold}))
    is_within = top_r <= 9 and beam_width <= 30 and n_rows * top_r <= 40 and n_rows * beam_width <= 32
    if not (exact or isinstance(threshold, float)):  # a beam is not always sure
        assert (found is not None) == is_within
    if found is not None:
        assert is_within
        assert (found.n_rows, found.json) == (
            n_rows,
            both.generally(instances, top_r, beam_width, threshold, exact),
        )
        assert found.is_tuned == (threshold == "tuned")
    assert both.from_rows(instances, top_r, beam_width, threshold, exact) == found
    as_tensors = both.as_tensors(body if threshold is None else {**body, "threshold": threshold})
    assert (as_tensors is None) == (found is None)
    if found is not None and as_tensors is not None:
        assert (as_tensors.n_rows, as_tensors.is_tuned) == (n_rows, found.is_tuned)
        form = form_of(top_r, dict.fromkeys(OUTPUTS, True))
        answer = both.predicted(instances, top_r, beam_width, threshold, exact)
        assert (as_tensors.json, as_tensors.binary) == tensors_json(both.model.labels, form, spans_of(answer))


@pytest.mark.parametrize("asked", [{"exact": True}, {"threshold": 0.05}, {"threshold": 0.05, "exact": True}])
def test_what_must_be_right_is_answered_where_a_beam_is_sure(both: Both, asked: dict[str, Any]) -> None:
    """One as wide as a tree always is; of an ensemble it is not asked."""
    body = {"instances": [{"indices": [1, 5], "values": [1, -0.5]}], **asked}
    wide = both.plainly(orjson.dumps({**body, "top_r": 9, "beam_width": 30}))
    narrow = [both.plainly(orjson.dumps({**body, "top_r": r, "beam_width": 1})) for r in range(1, 10)]
    if both.model.manifest.kind == "decision-tree":
        assert None not in [wide, *narrow]
        return
    is_tree = both.model.ensemble.child_ptr[0] == 1
    assert (wide is not None) == is_tree
    assert None in narrow


def test_thresholds_that_are_not_known_are_not_answered(both: Both) -> None:
    body = b'{"instances":[{"indices":[1],"values":[1]}],"threshold":"tuned"}'
    assert both.plainly(body) is not None
    assert both.plainly(body, is_known=False) is None


def test_what_is_not_plain(both: Both) -> None:
    assert both.plainly(b"{}") is None
    assert both.plainly(b'{"instances":[{"indices":[1],"values":[1]}],"explain":true}') is None


def test_more_values_labels_and_rows_than_there_was_room_for(both: Both) -> None:
    long = {"indices": [i % 70 for i in range(1500)], "values": [0.25] * 1500}
    short = {"indices": [1], "values": [1]}
    for rows, top_r, beam_width in (([short], 1, 1), ([long], 9, 30), ([short] * 32, 1, 1), ([short], 9, 2)):
        body = orjson.dumps({"instances": rows, "top_r": top_r, "beam_width": beam_width})
        for _ in range(2):
            found = both.plainly(body)
            assert found is not None
            assert (found.n_rows, found.json) == (len(rows), both.generally(rows, top_r, beam_width))
            as_tensors = both.as_tensors({"instances": rows, "top_r": top_r, "beam_width": beam_width})
            assert as_tensors is not None
            assert as_tensors.n_rows == len(rows)
            assert both.from_rows(rows, top_r, beam_width) == found


def test_names_that_are_longer_than_expected() -> None:
    names = [f'"{i}\\' + "é" * 1900 for i in range(40)]
    for kind in KINDS:
        both = Both(opened(kind, names))
        row = {"indices": [1, 2], "values": [1, 0.5]}
        body = orjson.dumps({"instances": [row, row], "top_r": 9})
        found = both.plainly(body)
        assert found is not None
        assert (found.n_rows, found.json) == (2, both.generally([row, row], 9, 10))


def test_children_beyond_the_limit() -> None:
    both = Both(opened("label-tree"))
    body = b'{"instances":[{"indices":[1],"values":[1]}]}'
    n_children = both.predictor.children_scored(10)
    for most, is_taken in ((n_children, True), (n_children - 1, False)):
        forms = FORMS._replace(limits=LIMITS._replace(children_max=most))
        both.plain = fast_requests(both.model, both.predictor, both.featurizer, forms)
        assert (both.plainly(body) is not None) == is_taken
