"""The types in which weights are stored, by the names that users give them."""

from model_store.build import store_weights
from model_store.ensemble import TreeEnsemble, Weights
from model_store.manifest import WEIGHTS
from service.base.errors import BadParameter


def weight_type(name: str) -> Weights:
    """Return the type that has this name. Raises BadParameter."""
    for weights in WEIGHTS:
        if name == weights:
            return weights
    raise BadParameter(f"--weights: expected one of {', '.join(WEIGHTS)}, found {name!r}")


def store_as(ensemble: TreeEnsemble, weights: Weights) -> TreeEnsemble:
    """Return a float32 ensemble with its weights in a type. Raises BadParameter where a node is too wide."""
    try:
        return store_weights(ensemble, weights)
    except ValueError as error:
        raise BadParameter(f"--weights {weights}: {error}") from error
