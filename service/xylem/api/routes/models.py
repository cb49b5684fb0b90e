"""GET /v1/models and /v1/models/{model}: the models that can be used to predict."""

import asyncio
from collections.abc import Mapping
from functools import lru_cache

from fastapi import Request

from xylem.api.descriptions import describe_figures
from xylem.api.routes.admins import TaggedRoute, of_seen_models, router_of
from xylem.api.routes.operations import ModelName, VersionPath, version_number
from xylem.api.routes.requests import Wired, who
from xylem.api.schemas.models import (
    AliasSplit,
    ModelDetails,
    ModelList,
    ModelSummary,
    UnreadableVersion,
    VersionFault,
    VersionFigures,
    VersionSummary,
)
from xylem.serving import describe_error
from xylem_store import Alias, Manifest, ModelInfo, ModelNotFound, Store, StoreError

router = router_of("models", "predict", TaggedRoute)

# The most manifests that are cached: that of a published version never changes.
MANIFESTS_MAX = 1024


@router.get("/v1/models", summary="The models")
@of_seen_models
async def list_models(request: Request, services: Wired) -> ModelList:
    """Every model of the store that the key may see, with its versions and aliases."""
    services.live.refuse_before_first_look()
    aliases = services.live.aliases
    sees = who(request).sees
    return ModelList(
        models=[
            summarize(info, aliases) for info in services.live.models.values() if sees(info.name)
        ]
    )


@router.get("/v1/models/{model}", summary="A model")
async def show_model(model: ModelName, services: Wired) -> ModelDetails:
    """One model with its versions, the newest first."""
    services.live.refuse_before_first_look()
    info = services.live.models.get(model)
    if info is None:
        raise ModelNotFound(f"model: expected one of the store, found {model[:80]!r}")
    # before the wait, during which the store may be read again
    return ModelDetails(
        **dict(summarize(info, services.live.aliases)),
        version_details=await asyncio.to_thread(_describe_versions, services.store, info),
    )


@router.get(
    "/v1/models/{model}/versions/{version}", summary="A version, and its figures on validation rows"
)
async def show_version(model: ModelName, version: VersionPath, services: Wired) -> VersionFigures:
    """The figures of the training: by number of training rows of a label, by score, and by label.

    `validation` is null for a version that was trained without validation rows, by an earlier
    release, or elsewhere.
    """
    return await services.threshold_work.run(
        describe_figures, services.store, model, version_number(version)
    )


def _describe_versions(store: Store, info: ModelInfo) -> list[VersionSummary | UnreadableVersion]:
    """Return the description of each version, the newest first. Reads the disk."""
    summaries: list[VersionSummary | UnreadableVersion] = []
    for version in sorted(info.versions, reverse=True):
        try:
            summaries.append(
                VersionSummary.model_validate(cached_manifest(store, info.name, version))
            )
        except StoreError as error:
            summaries.append(
                UnreadableVersion(version=version, error=VersionFault(**describe_error(error)))
            )
    return summaries


@lru_cache(MANIFESTS_MAX)
def cached_manifest(store: Store, name: str, version: int) -> Manifest:
    """Return the manifest of a version, from memory after the first call: it never changes.

    Raises the store's errors.
    """
    return store.manifest(name, version)


def summarize(info: ModelInfo, served: Mapping[tuple[str, str], Alias]) -> ModelSummary:
    """Return the summary of a model, with its aliases as they are served.

    served  the aliases that are served, by model and name

    `info` and `served` may be of two states, because the thread that reads the store may replace
    the state in between: an alias that `served` does not have is described as `info` has it.
    """
    served_aliases = {
        name: served.get((info.name, name), alias) for name, alias in sorted(info.documents.items())
    }
    return ModelSummary(
        name=info.name,
        versions=sorted(info.versions),
        aliases={name: alias.version for name, alias in served_aliases.items()},
        splits={
            name: AliasSplit(**alias.split())
            for name, alias in served_aliases.items()
            if alias.split_versions
        },
    )
