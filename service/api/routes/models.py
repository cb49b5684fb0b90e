"""GET /v1/models and /v1/models/{model}: what there is to predict with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from model_store.errors import ModelNotFound, StoreError
from model_store.manifest import Manifest
from model_store.store import ModelInfo, Store
from service.api.door.responses import json_response
from service.api.door.routing import RawRoute
from service.errors import Unavailable
from service.serving.problems import describe_error
from service.serving.served import LiveServed
from service.serving.wire import ModelSummary, VersionSummary

MANIFESTS_MAX = 1024
"""Manifests kept in memory: a published version's never changes."""


class VersionFault(TypedDict):
    """A version whose manifest cannot be read, and why."""

    version: int
    error: dict[str, Any]


class ModelRoutes:
    """The routes, and what they work with."""

    def __init__(self, live: LiveServed, store: Store) -> None:
        self._live = live
        self._manifest: Callable[[str, int], Manifest] = lru_cache(MANIFESTS_MAX)(store.manifest)

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models", self.list_models, methods=["GET"]),
            RawRoute("/v1/models/{model}", self.show_model, methods=["GET"]),
        ]

    async def list_models(self, request: Request) -> Response:
        """Answer with every model of the store."""
        self._refuse_before_first_look()
        pointers = self._live.pointers
        return json_response({"models": [_summary(info, pointers) for info in self._live.models.values()]})

    async def show_model(self, request: Request) -> Response:
        """Answer with one model and its versions, newest first."""
        self._refuse_before_first_look()
        name = request.path_params["model"]
        info = self._live.models.get(name)
        if info is None:
            raise ModelNotFound(f"model: expected one of the store, found {name[:80]!r}")
        summary = _summary(info, self._live.pointers)  # before the wait, in which another look may end
        versions = await asyncio.to_thread(self._describe_versions, info)
        return json_response({**summary, "version_details": versions})

    def _refuse_before_first_look(self) -> None:
        if not self._live.looked:
            raise Unavailable("the models are being opened")

    def _describe_versions(self, info: ModelInfo) -> list[VersionSummary | VersionFault]:
        """Return each version's description, newest first. Reads the disk."""
        return [self._describe(info.name, version) for version in sorted(info.versions, reverse=True)]

    def _describe(self, name: str, version: int) -> VersionSummary | VersionFault:
        try:
            return _describe(self._manifest(name, version))
        except StoreError as error:
            return {"version": version, "error": describe_error(error)}


def _summary(info: ModelInfo, pointers: Mapping[tuple[str, str], int]) -> ModelSummary:
    """Return what a model has, its aliases as they serve by `pointers`.

    The looking thread may put a new state between the two readings: an alias that is new to `pointers` is
    given as the store has it.
    """
    aliases = {
        alias: pointers.get((info.name, alias), wanted) for alias, wanted in sorted(info.aliases.items())
    }
    return {"name": info.name, "versions": sorted(info.versions), "aliases": aliases}


def _describe(manifest: Manifest) -> VersionSummary:
    return {
        "version": manifest.version,
        "created_at": manifest.created_at,
        "kind": manifest.kind,
        "trainer": {"name": manifest.trainer.name, "parameters": dict(manifest.trainer.parameters)},
        "features": dict(manifest.features),
        "n_labels": manifest.n_labels,
        "n_features": manifest.n_features,
        "n_trees": manifest.n_trees,
        "model_bytes": manifest.model_bytes,
        "metrics": dict(manifest.metrics),
    }
