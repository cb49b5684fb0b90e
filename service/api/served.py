"""What serves one version: its engine, its features and its label names, opened and warm."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from starlette.requests import Request

from model_store.errors import AliasNotFound, VersionNotFound
from model_store.identifiers import is_alias, is_version
from model_store.names import NameTable
from service.api.identities import PredictionIds
from service.api.weights import LabelWeights
from service.features import Featurizer
from service.inference.live import LiveModels
from service.inference.plain import PlainAnswers
from service.inference.predictors import AnyPredictor
from service.thresholds.live import LiveThresholds

DEFAULT_ALIAS = "latest"


class Served(NamedTuple):
    """One version of a model, ready to answer.

    features  their names, if they have any
    plain     answers plain requests; for the event loop only
    """

    name: str
    version: int
    predictor: AnyPredictor
    featurizer: Featurizer
    labels: NameTable
    features: NameTable | None
    weights: LabelWeights
    thresholds: LiveThresholds
    ids: PredictionIds
    plain: PlainAnswers


LiveServed: TypeAlias = LiveModels[Served]


async def find_served(request: Request, live: LiveServed) -> Served:
    """Return what serves the version that a request's path names: a version, an alias, else `latest`.

    Raises ModelNotFound, VersionNotFound, AliasNotFound, Unavailable and ModelUnavailable.
    """
    parts = request.path_params
    model, version, alias = parts["model"], parts.get("version"), parts.get("alias", DEFAULT_ALIAS)
    if version is not None and not is_version(version):
        raise VersionNotFound(f"version: expected a number from 1, found {version[:80]!r}")
    if not is_alias(alias):
        raise AliasNotFound(f"alias: expected the name of an alias, found {alias[:80]!r}")
    return await live.find(model, version or alias)


def stale_headers(served: Served) -> dict[str, str]:
    """Return what an answer at tuned thresholds says when the database does not answer: they may be old."""
    return {"xylem-thresholds": "stale"} if served.thresholds.is_stale else {}
