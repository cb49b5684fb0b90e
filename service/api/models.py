"""GET /v1/models and /v1/models/{model}: what there is to predict with."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from model_store.errors import ModelNotFound
from model_store.manifest import Manifest
from model_store.store import ModelInfo, Store
from service.api.routing import RawRoute
from service.api.served import LiveServed
from service.api.wire import ModelSummary, VersionSummary, json_response
from service.errors import Unavailable


class ModelRoutes(NamedTuple):
    """The routes, and what they work with."""

    live: LiveServed
    store: Store

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/v1/models", self.list_models, methods=["GET"]),
            RawRoute("/v1/models/{model}", self.show_model, methods=["GET"]),
        ]

    async def list_models(self, request: Request) -> Response:
        """Answer with every model of the store."""
        self._refuse_before_first_look()
        return json_response({"models": [self._summary(info) for info in self.live.models.values()]})

    async def show_model(self, request: Request) -> Response:
        """Answer with one model and its versions, newest first."""
        self._refuse_before_first_look()
        name = request.path_params["model"]
        info = self.live.models.get(name)
        if info is None:
            raise ModelNotFound(f"model: expected one of the store, found {name[:80]!r}")
        versions = await asyncio.to_thread(self._describe_versions, info)
        return json_response({**self._summary(info), "version_details": versions})

    def _refuse_before_first_look(self) -> None:
        if not self.live.looked:
            raise Unavailable("the models are being opened")

    def _summary(self, info: ModelInfo) -> ModelSummary:
        """Return what a model has, its aliases as they serve now."""
        pointers = self.live.pointers
        aliases = {alias: pointers[info.name, alias] for alias in sorted(info.aliases)}
        return {"name": info.name, "versions": sorted(info.versions), "aliases": aliases}

    def _describe_versions(self, info: ModelInfo) -> list[VersionSummary]:
        """Return each version's description. Reads the disk."""
        versions = sorted(info.versions, reverse=True)
        return [_describe(self.store.manifest(info.name, version)) for version in versions]


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
