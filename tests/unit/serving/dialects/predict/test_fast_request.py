"""A plain body is answered with the predictions that the general way
makes of it, whatever is asked for.
"""

from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest
from hypothesis import given, strategies as st
from tests.helpers.oip_requests import HEADER, binary_body, csr
from tests.helpers.small_models import small_draft

from xylem.base.rows import SparseRows
from xylem.base.settings import Limits
from xylem.engine.answering import Predictions
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.registry import load_featurizer
from xylem.engine.kernels.search.call import NO_THRESHOLD, NUMBER, TUNED
from xylem.engine.predictor import PredictOptions
from xylem.engine.searcher import Searcher
from xylem.serving.dialects.predict.fast_request import (
    BeamRequests,
    FastAnswer,
    FastForms,
    FastRequests,
    RowsRead,
    fast_requests,
)
from xylem.serving.dialects.predict.kernels.fast_request import FastLimits
from xylem.serving.dialects.predict.kernels.request_bodies import BodyForms, BodyQuery
from xylem.serving.dialects.predict.prediction_json import predictions_json, spans_of
from xylem.serving.dialects.tensors.reading import InferPlan, read_plan
from xylem.serving.dialects.tensors.writing import pack_predictions
from xylem.serving.feedback.prediction_ids import Present
from xylem.serving.feedback.tokens import Tokens, model_hash
from xylem_store.names import build_names
from xylem_store.version import Model, model_of

ANY = Limits(top_r_max=10**9, beam_width_max=10**9, answer_labels_max=10**9)
LIMITS = FastLimits(
    top_r_max=9, beam_width_max=30, labels_max=40, beams_max=32, children_max=1 << 20
)
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


class Asked(NamedTuple):
    """A body of predict."""

    instances: list[dict[str, Any]]
    top_r: int = 5
    beam_width: int = 10
    threshold: Any = None
    exact: bool = False

    @property
    def options(self) -> dict[str, Any]:
        said = {"top_r": self.top_r, "beam_width": self.beam_width, "exact": self.exact}
        return said if self.threshold is None else {**said, "threshold": self.threshold}


class Both:
    """A model's plain way and its general way."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.predictor: Searcher = make_predictor(model)
        manifest = model.manifest
        self.featurizer = load_featurizer(manifest.features, model.arrays, manifest.n_features)
        self.plain: FastRequests = fast_requests(model, self.predictor, self.featurizer, FORMS)
        self.thresholds = np.linspace(0, 1, manifest.n_labels, dtype=np.float32)
        self.tuned = self.predictor.node_thresholds(self.thresholds / 8)
        self.seal = TOKENS.seal(model_hash("m"), 7, EPOCH)
        self.signed = (Present(self.thresholds, self.tuned, self.seal), EPOCH, 11)

    def plainly(self, body: dict[str, Any], is_known: bool = True) -> FastAnswer | None:
        signed = self.signed if is_known else (Present(self.thresholds, None, self.seal), EPOCH, 11)
        content = b"head" + orjson.dumps(body)
        return self.plain.answer(content, 4, signed)

    def as_predictions(self, asked: Asked) -> FastAnswer | None:
        return self.plainly({"instances": asked.instances, **asked.options})

    def as_tensors(self, asked: Asked) -> tuple[bytes, list[int]] | None:
        plan = plan_of(asked)
        if plan.form is None:
            return None
        body, headers = binary_body({"inputs": csr(asked.instances), "parameters": asked.options})
        start = int(headers[HEADER])
        return self.plain.answer_tensors(body, start, plan.form, plan.number, self.signed)

    def rows_of(self, instances: list[dict[str, Any]]) -> SparseRows:
        ends = np.cumsum([0, *(len(instance["indices"]) for instance in instances)])
        indices = np.array([i for instance in instances for i in instance["indices"]], np.int64)
        values = np.array([v for instance in instances for v in instance["values"]], np.float32)
        return self.featurizer.transform_csr(ends, indices, values)

    def rows_read(self, asked: Asked) -> RowsRead:
        """The rows of instances, read before, as those of texts are."""
        rows, is_number = self.rows_of(asked.instances), isinstance(asked.threshold, float)
        kind = TUNED if asked.threshold == "tuned" else NUMBER if is_number else NO_THRESHOLD
        counts = rows.n_rows, len(rows.indices), asked.top_r, asked.beam_width
        return RowsRead(
            rows, BodyQuery(*counts, kind, int(asked.exact)), asked.threshold if is_number else 0.0
        )

    def predicted(self, asked: Asked) -> Predictions:
        threshold = self.tuned if asked.threshold == "tuned" else asked.threshold
        options = PredictOptions(asked.top_r, asked.beam_width, asked.exact, threshold)
        return self.predictor.predict(self.rows_of(asked.instances), options)

    def generally(self, asked: Asked) -> bytes:
        named = np.empty(0, np.float32) if asked.threshold == "tuned" else self.thresholds
        found = spans_of(self.predicted(asked))
        return b",".join(predictions_json(self.model.labels, named, self.seal, 11, found))


@pytest.fixture(
    scope="module", params=[(kind, n_trees) for kind in KINDS for n_trees in (1, 2)], ids=str
)
def both(request: pytest.FixtureRequest) -> Both:
    return Both(opened(request.param[0], n_trees=request.param[1]))


def check_all_ways(both: Both, asked: Asked) -> FastAnswer | None:
    """Compare what is answered to a body, to its rows, and to tensors;
    return the first, None: nothing is.
    """
    found = both.as_predictions(asked)
    assert both.plain.answer_rows(both.rows_read(asked), both.signed) == found
    packed = both.as_tensors(asked)
    if isinstance(both.plain, BeamRequests):
        assert (packed is None) == (found is None)
    if found is not None:
        n_rows, is_tuned = len(asked.instances), asked.threshold == "tuned"
        assert (found.n_rows, found.is_tuned, found.json) == (
            n_rows,
            is_tuned,
            both.generally(asked),
        )
    if packed is not None:
        plan = plan_of(asked)
        data_and_ends = pack_predictions(both.model.labels, plan.outputs, both.predicted(asked))
        assert packed == data_and_ends
    return found


def plan_of(asked: Asked) -> InferPlan:
    """The plan of a request for all outputs."""
    request = {"inputs": csr(asked.instances), "parameters": asked.options}
    body, headers = binary_body(request)
    n_json = int(headers[HEADER])
    return read_plan(body[:n_json], len(body) - n_json, ANY)


instances = st.lists(
    st.dictionaries(st.integers(0, 69), st.integers(-16, 16), max_size=12).map(
        lambda row: {"indices": list(row), "values": [value / 8 for value in row.values()]}
    ),
    min_size=1,
    max_size=6,
)

thresholds = st.sampled_from([None, None, "tuned"]) | st.floats(0.001, 0.9)
questions = st.builds(
    Asked, instances, st.integers(1, 11), st.integers(1, 33), thresholds, st.booleans()
)


@given(questions)
def test_the_predictions_of_the_general_way(both: Both, asked: Asked) -> None:
    n_rows, top_r, beam_width = len(asked.instances), asked.top_r, asked.beam_width
    is_within = (
        top_r <= 9 and beam_width <= 30 and n_rows * top_r <= 40 and n_rows * beam_width <= 32
    )
    is_answered = check_all_ways(both, asked) is not None
    assert is_within or not is_answered
    if not (asked.exact or isinstance(asked.threshold, float)):  # a beam is not always sure
        assert is_answered == is_within


ROW = {"indices": [1], "values": [1]}


@pytest.mark.parametrize(
    "asked", [{"exact": True}, {"threshold": 0.05}, {"threshold": 0.05, "exact": True}]
)
def test_what_must_be_right_is_answered_where_a_beam_is_sure(
    both: Both, asked: dict[str, Any]
) -> None:
    """One as wide as a tree always is; of an ensemble it is not asked."""
    body = {"instances": [{"indices": [1, 5], "values": [1, -0.5]}], **asked}
    wide = both.plainly({**body, "top_r": 9, "beam_width": 30})
    narrow = [both.plainly({**body, "top_r": r, "beam_width": 1}) for r in range(1, 10)]
    if both.model.manifest.kind == "decision-tree":
        assert None not in [wide, *narrow]
        return
    is_tree = both.model.ensemble.child_ptr[0] == 1
    assert (wide is not None) == is_tree
    assert None in narrow


def test_unusual_requests_and_unknown_thresholds_are_left_over(both: Both) -> None:
    tuned = {"instances": [ROW], "threshold": "tuned"}
    assert both.plainly(tuned) is not None
    assert both.plainly(tuned, is_known=False) is None
    assert both.plainly({}) is None
    assert both.plainly({"instances": [ROW], "explain": True}) is None


def test_more_values_labels_and_rows_than_there_was_room_for(both: Both) -> None:
    long = {"indices": [i % 70 for i in range(1500)], "values": [0.25] * 1500}
    for asked in (
        Asked([ROW], 1, 1),
        Asked([long], 9, 30),
        Asked([ROW] * 32, 1, 1),
        Asked([ROW], 9, 2),
    ):
        for _ in range(2):
            assert check_all_ways(both, asked) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_are_longer_than_expected(kind: str) -> None:
    names = [f'"{i}\\' + "é" * 1900 for i in range(40)]
    row = {"indices": [1, 2], "values": [1, 0.5]}
    assert check_all_ways(Both(opened(kind, names)), Asked([row, row], 9)) is not None


def test_children_beyond_the_limit() -> None:
    both = Both(opened("label-tree"))
    n_children = both.predictor.children_scored(10)
    for most, is_taken in ((n_children, True), (n_children - 1, False)):
        forms = FORMS._replace(limits=LIMITS._replace(children_max=most))
        both.plain = fast_requests(both.model, both.predictor, both.featurizer, forms)
        assert (both.plainly({"instances": [ROW]}) is not None) == is_taken
