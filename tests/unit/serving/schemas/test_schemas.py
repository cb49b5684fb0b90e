"""Bodies as they are declared: kinds of instances, limits of fields, and how many
faults are told.
"""

import tracemalloc
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from xylem.base.errors import BadInput
from xylem.base.settings import Limits
from xylem.serving.dialects.annif.schema import SuggestBatchRequest
from xylem.serving.dialects.predict.schema import PredictRequest, ScoreRequest
from xylem.serving.dialects.tensors.schema import InferRequest
from xylem.serving.parse import validated
from xylem.serving.schemas.faults import FAULTS_MAX, all_faults_of, faults_of
from xylem.serving.schemas.fields import (
    FIELDS_MAX,
    KINDS,
    LIMIT,
    TAGS,
    AtMost,
    FieldsInstance,
    Instance,
    NamedInstance,
    RequestModel,
    SparseInstance,
    TextInstance,
    kind_of,
    longest,
    utf8_length,
)

VALUES: dict[str, Any] = {
    "text": "a",
    "indices": [3, 1],
    "values": [0.5, 1],
    "features": {"a": 1},
    "fields": {"title": "a", "body": None},
    "vector": [0.5, 1],
}
COMPLETE: dict[tuple[str, ...], type] = {
    ("text",): TextInstance,
    ("text", "vector"): TextInstance,
    ("indices", "values"): SparseInstance,
    ("features",): NamedInstance,
    ("fields",): FieldsInstance,
    ("fields", "vector"): FieldsInstance,
}
INSTANCE: TypeAdapter[Any] = TypeAdapter(Instance)
COMBINATIONS = list(chain.from_iterable(combinations(KINDS, n) for n in range(len(KINDS) + 1)))


@pytest.mark.parametrize("fields", COMBINATIONS, ids="+".join)
def test_the_fields_that_are_there_tell_the_kind(fields: tuple[str, ...]) -> None:
    value = {field: VALUES[field] for field in fields}
    kind = COMPLETE.get(fields)
    if kind is None:
        assert kind_of(value) is None
        with pytest.raises(ValidationError) as caught:
            INSTANCE.validate_python(value)
        assert f"found {' and '.join(fields) or 'none of them'}" in str(faults_of(caught.value, []))
    else:
        assert TAGS[str(kind_of(value))] is kind
        made = INSTANCE.validate_python(value)
        assert type(made) is kind and TAGS[str(kind_of(made))] is kind


@pytest.mark.parametrize("text", ["", "abc", "é", "€uro", "𝄞", "a\0b", "e\u0301"])
def test_bytes_of_texts_and_names_are_those_of_utf8(text: str) -> None:
    assert utf8_length(text) == longest(["", text]) == longest({text: 1}) == len(text.encode())
    assert longest([]) == 0


@pytest.mark.parametrize(
    ("kind", "limit", "value", "found"),
    [
        (int, AtMost("top_r_max", "top_r"), 5, 5),
        (list[int], AtMost("features_max", "features"), [1, 2, 3], 3),
        (str, AtMost("text_bytes_max", "bytes of text", utf8_length), "éa", 3),
        (list[str], AtMost("name_bytes_max", "bytes of a name", longest), ["a", "éé"], 4),
    ],
)
def test_a_value_at_its_limit_and_beyond(kind: Any, limit: AtMost, value: Any, found: int) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[kind, limit])
    assert adapter.validate_python(value) == value  # no settings, no limits
    assert adapter.validate_python(value, context=Limits(**{limit.limit: found})) == value
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(value, context=Limits(**{limit.limit: found - 1}))
    (fault,) = caught.value.errors()
    expected = f"expected at most {found - 1} {limit.quantity} (limit {limit.limit}), found {found}"
    assert (fault["type"], fault["msg"]) == (LIMIT, expected)


MANY = 200_000
LIMITS = Limits(
    **dict.fromkeys(("features_max", "instances_max", "label_list_max", "events_max"), MANY)
)
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
    n = 10 * max(FIELDS_MAX, FAULTS_MAX)
    unknown = {f"field{i}": i for i in range(n)}
    assert n_faults(model, unknown) <= FIELDS_MAX
    for name, field in model.model_fields.items():
        for items in ([[]] * n, [{}] * n, dict.fromkeys(unknown, ())):
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
        *(
            (PredictRequest, {"instances": items})
            for items in ([1] * MANY, [{}] * MANY, [[]] * MANY)
        ),
        *((PredictRequest, {"instances": [instance]}) for instance in INSTANCES),
        *((ScoreRequest, {"instances": items}) for items in ([1] * MANY, [{}] * MANY)),
        *(
            (ScoreRequest, {"instances": [{**instance, "labels": [1] * MANY}]})
            for instance in INSTANCES
        ),
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
    for limit, most, body in (
        ("instances_max", 1024, lambda wrong: {"instances": wrong}),
        (
            "label_list_max",
            10_000,
            lambda wrong: {"instances": [{"text": ""}], "deny_labels": wrong},
        ),
        (
            "features_max",
            100_000,
            lambda wrong: {"instances": [{"indices": wrong, "values": wrong}]},
        ),
    ):
        with pytest.raises(BadInput, match=rf"at most {most} .*limit {limit}.*, found {most + 1}"):
            validated(body([None] * (most + 1)), PredictRequest, Limits())
