"""Which kind of instance a value is: each combination of its fields, and what each kind refuses."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from service.base.settings import Limits
from service.serving.schemas.faults import faults_of
from service.serving.schemas.instances import (
    KINDS,
    TAGS,
    Instance,
    NamedInstance,
    SparseInstance,
    TextInstance,
    kind_of,
)

VALUES: dict[str, Any] = {"text": "a", "indices": [3, 1], "values": [0.5, 1], "features": {"a": 1}}
COMPLETE: dict[tuple[str, ...], type] = {
    ("text",): TextInstance,
    ("indices", "values"): SparseInstance,
    ("features",): NamedInstance,
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


@pytest.mark.parametrize("value", [None, 1, "text", ["text"], [], True])
def test_only_objects_are_instances(value: Any) -> None:
    assert kind_of(value) is None


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"indices": [1, 2], "values": [1]}, "values"),
        ({"indices": [], "values": [1]}, "values"),
        ({"indices": [1.0], "values": [1]}, "indices[0]"),
        ({"indices": [True], "values": [1]}, "indices[0]"),
        ({"indices": [1], "values": [False]}, "values[0]"),
        ({"indices": (1,), "values": [1]}, "indices"),
        ({"text": b"a"}, "text"),
        ({"text": "a", "Text": "a"}, "Text"),
        ({"features": {"a": "1"}}, "features.a"),
        ({"features": [["a", 1]]}, "features"),
    ],
)
def test_the_place_of_what_is_wrong(value: Any, path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        INSTANCE.validate_python(value)
    assert faults_of(caught.value, []).path == path


@pytest.mark.parametrize("n", [3, 4])
def test_a_limit_holds_for_every_kind_and_only_where_there_are_limits(n: int) -> None:
    limits = Limits(features_max=3, name_bytes_max=3, text_bytes_max=6)
    for value in (
        {"indices": [0] * n, "values": [1.0] * n},
        {"features": {str(i): 1.0 for i in range(n)}},
        {"features": {"n" * n: 1.0}},
        {"text": "é" * n},
    ):
        INSTANCE.validate_python(value)
        if n == 3:
            INSTANCE.validate_python(value, context=limits)
        else:
            with pytest.raises(ValidationError) as caught:
                INSTANCE.validate_python(value, context=limits)
            assert faults_of(caught.value, []).code == "limit-exceeded"
