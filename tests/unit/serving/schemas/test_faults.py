"""However much is wrong with a body, few faults are made of it: each takes a kilobyte and a microsecond."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import service.jobs.kinds
import service.serving.annif
import service.serving.oip
import service.serving.parse
import service.serving.scores  # noqa: F401
from service.base.errors import BadInput
from service.base.settings import Limits
from service.serving.parse import validated
from service.serving.schemas.annif import SuggestBatchRequest
from service.serving.schemas.faults import FAULTS_MAX, all_faults_of
from service.serving.schemas.instances import FIELDS_MAX, RequestModel
from service.serving.schemas.oip import InferRequest
from service.serving.schemas.predict import PredictRequest
from service.serving.schemas.score import ScoreRequest

MANY = 200_000
LIMITS = Limits(**dict.fromkeys(("features_max", "instances_max", "label_list_max", "events_max"), MANY))
"""So that nothing is refused for its number of items alone."""


def models(model: type[BaseModel] = RequestModel) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from models(each)


MODELS = sorted({*models(), SuggestBatchRequest}, key=lambda model: model.__qualname__)


def n_faults(model: type[BaseModel], value: Any, limits: Limits = LIMITS) -> int:
    """Return how many faults are made; how many are told is bounded by itself."""
    try:
        model.model_validate(value, context=limits)
    except ValidationError as error:
        assert 1 <= len(all_faults_of(error, [model])) <= FAULTS_MAX
        return error.error_count()
    return 0


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_few_faults_are_made_of_many(model: type[BaseModel]) -> None:
    unknown = {f"field{i}": i for i in range(MANY)}
    assert n_faults(model, unknown) <= FIELDS_MAX
    for name, field in model.model_fields.items():
        for items in ([[]] * MANY, [{}] * MANY, dict.fromkeys(unknown, ())):
            assert n_faults(model, {field.alias or name: items}) <= FAULTS_MAX, name


INSTANCES = [
    {"indices": ["a"] * MANY, "values": [[]] * MANY},
    {"features": dict.fromkeys(map(str, range(MANY)), "a")},
    {f"field{i}": i for i in range(MANY)} | {"text": ""},
]


@pytest.mark.parametrize("limits", [LIMITS, Limits()], ids=["without limits", "with limits"])
@pytest.mark.parametrize(
    ("model", "value"),
    [
        *((PredictRequest, {"instances": items}) for items in ([1] * MANY, [{}] * MANY, [[]] * MANY)),
        *((PredictRequest, {"instances": [instance]}) for instance in INSTANCES),
        *((ScoreRequest, {"instances": items}) for items in ([1] * MANY, [{}] * MANY)),
        *((ScoreRequest, {"instances": [{**instance, "labels": [1] * MANY}]}) for instance in INSTANCES),
        (PredictRequest, {"instances": [{"text": ""}], "allow_labels": [1] * MANY}),
        (InferRequest, {"inputs": [1] * MANY}),
        (InferRequest, {"inputs": [{"shape": ["a"] * MANY}]}),
        (SuggestBatchRequest, {"documents": [1] * MANY}),
    ],
)
def test_a_refusal_takes_little_memory(model: type[BaseModel], value: Any, limits: Limits) -> None:
    assert 1 <= n_faults(model, value, limits) <= FAULTS_MAX
    tracemalloc.start()
    try:
        with pytest.raises(BadInput):
            validated(value, model, limits)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_the_number_of_items_is_told_before_what_they_are() -> None:
    for name, most in (("instances_max", 1024), ("label_list_max", 10_000), ("features_max", 100_000)):
        wrong = [None] * (most + 1)
        body = {
            "instances_max": {"instances": wrong},
            "label_list_max": {"instances": [{"text": ""}], "deny_labels": wrong},
            "features_max": {"instances": [{"indices": wrong, "values": wrong}]},
        }[name]
        with pytest.raises(BadInput, match=rf"at most {most} .*limit {name}.*, found {most + 1}"):
            validated(body, PredictRequest, Limits())
