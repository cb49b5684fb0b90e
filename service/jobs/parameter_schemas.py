"""What can be chosen about a training, as JSON Schemas: what a form of any client is made from."""

from __future__ import annotations

import contextlib
from typing import Any

from service.errors import BadParameter
from service.features.parameters import PARAMETERS
from service.trainers import TRAINERS
from service.trainers.plugins import installed
from service.trainers.registry import trainer


def parameter_schemas() -> dict[str, Any]:
    """Return what `parameters` of a training job may say.

    `trainers` has for each name what it is about, and the JSON Schema of its parameters; also of trainers of
    installed packages, but those that cannot be loaded. `features` has for each kind the JSON Schema of its
    parameters, whose names begin with `features.` in a job. Defaults are in the schemas.
    """
    trainers: dict[str, Any] = {}
    for name in dict.fromkeys([*TRAINERS, *installed()]):
        with contextlib.suppress(BadParameter):  # told to who asks for that trainer
            spec = trainer(name)
            trainers[name] = {"about": spec.about, "parameters": spec.parameters.model_json_schema()}
    features = {kind: parameters.model_json_schema() for kind, parameters in PARAMETERS.items()}
    return {"trainers": trainers, "features": features}
