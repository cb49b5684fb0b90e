"""A family of requests is added by a dialect and a route: all else that requests have comes with it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from fastapi import APIRouter, Request, Response

from service.api.door.admission import Admission
from service.api.door.answering import WholeRequests
from service.api.routes.admins import RawRoute, needs
from service.api.routes.operations import of_version
from service.api.routes.requests import reply_in
from service.api.routes.services import Services, Wired
from service.base.errors import BadRequest
from service.base.settings import Limits
from service.base.stages import StageNotes
from service.serving.dialect import Body, Dialect, Longer, Reply
from service.serving.served import ServedVersion
from tests.conftest import serving, settings_of


class Measures(Dialect[int]):
    """Says how long a body is: a short one at once, another in a thread."""

    def read(self, body: Body, limits: Limits) -> int:
        if not body.content:
            raise BadRequest("expected a body, found none").at("")
        return len(body.content)

    def answer_read(
        self, query: int, served: ServedVersion, limits: Limits, notes: StageNotes
    ) -> Reply | Longer:
        reply = Reply((b'{"version":%d,' % served.version, b'"bytes":%d}' % query), 1)
        return reply if query < 100 else Longer(lambda _: reply)


MEASURES = Measures()
router = APIRouter(dependencies=[needs("predict")], route_class=RawRoute)


@of_version(router, "POST", "measure", "Measure with", {})
async def measure(request: Request, services: Wired) -> Response:
    """Answer in the dialect."""
    return await reply_in(MEASURES, request, services)


def message_of(body: bytes) -> bytes:
    head = b"POST /v1/models/raw/measure HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def test_its_requests_are_answered_by_route_and_from_their_bytes(shared_store: Path) -> None:
    async def main() -> None:
        async with serving(settings_of(shared_store)) as (app, client):
            services: Services = app.state.services
            app.router.routes[:0] = router.routes
            none = re.compile("none")
            admission = Admission(Limits(), none, none, lambda: False)
            routes = [(MEASURES, route) for route in router.routes]
            whole = WholeRequests(routes, services.answering, admission)
            for body, status in ((b"{}", 200), (b"", 422), (b"[]" * 100, 200)):
                headers = {"content-type": "application/json"}
                answer = await client.post("/v1/models/raw/measure", content=body, headers=headers)
                assert answer.status_code == status
                message = message_of(body)
                lines = message.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
                scope = {
                    "type": "http",
                    "method": "POST",
                    "path": "/v1/models/raw/measure",
                    "query_string": b"",
                    "http_version": "1.1",
                    "headers": [tuple(line.split(b": ")) for line in lines],
                }
                whole.learn(message, scope)
                found = whole.answer(message, b"")
                if len(body) >= 100:
                    assert found is None  # it is for a thread
                    continue
                assert found is not None
                first, _, content = found.partition(b"\r\n\r\n")
                assert int(first.split()[1]) == status
                ours, theirs = json.loads(content), answer.json()
                assert ours.pop("request_id", None) != theirs.pop("request_id", "")
                assert ours == theirs
            assert services.metrics.rows["raw"] == 3

    asyncio.run(main())
