"""/livez, /readyz and /metrics: for those who run the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response

from service.api.door.metrics import Metrics
from service.api.door.responses import json_response
from service.api.door.routing import RawRoute
from service.serving.served import LiveServed
from service.serving.wire import dump


class HealthRoutes(NamedTuple):
    """The routes, and what they report on.

    draining   whether the server is about to stop
    """

    live: LiveServed
    metrics: Metrics
    draining: Callable[[], bool]

    def routes(self) -> list[RawRoute]:
        """Return the routes."""
        return [
            RawRoute("/livez", self.livez, methods=["GET"]),
            RawRoute("/readyz", self.readyz, methods=["GET"]),
            RawRoute("/metrics", self.show_metrics, methods=["GET"]),
        ]

    @property
    def ready(self) -> bool:
        """Return whether requests should be sent here."""
        return self.live.ready and not self.draining()

    async def livez(self, request: Request) -> Response:
        """Answer that the process runs."""
        return json_response({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        """Answer whether requests should be sent here, and what is served and what is not."""
        status = self.live.status()
        said = "ready" if self.ready else "draining" if self.draining() else "not ready"
        models = [pointer._asdict() for pointer in status.pointers]
        failures = [{"model": f.model, "ref": f.ref, "detail": f.detail} for f in status.failures]
        body = {"status": said, "models": models, "failures": failures, "store_error": status.store_error}
        return Response(dump(body), 200 if self.ready else 503, media_type="application/json")

    async def show_metrics(self, request: Request) -> Response:
        """Answer with the figures, in Prometheus's text format."""
        return Response(self.metrics.render(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
