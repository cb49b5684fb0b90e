"""The schemas of parameters say what the parameters' own classes take."""

from __future__ import annotations

import pytest

from service.features.parameters import PARAMETERS
from service.jobs.kinds import parameter_faults, parameter_schemas
from service.trainers import TRAINERS
from tests.schemas import openapi


def test_every_trainer_and_every_kind_of_features_is_there() -> None:
    found = parameter_schemas()
    assert found["trainers"].keys() >= TRAINERS.keys()
    assert found["features"].keys() == PARAMETERS.keys()
    assert openapi()["x-parameters"]["trainers"].keys() == found["trainers"].keys()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_defaults_of_a_schema_are_taken_and_said(trainer: str) -> None:
    schema = parameter_schemas()["trainers"][trainer]["parameters"]
    assert schema["properties"].keys() == TRAINERS[trainer].parameters.model_fields.keys()
    defaults = {name: said["default"] for name, said in schema["properties"].items()}
    assert list(parameter_faults(trainer, defaults)) == []
    for name, said in schema["properties"].items():
        assert said["description"], name


@pytest.mark.parametrize("kind", PARAMETERS)
def test_the_defaults_of_features_are_taken(kind: str) -> None:
    properties = parameter_schemas()["features"][kind]["properties"]
    defaults = {f"features.{name}": said["default"] for name, said in properties.items()}
    assert list(parameter_faults("label-tree", {"features.kind": kind, **defaults})) == []
