"""An option of predict, a header of all requests and a dialect
that are not there: what each touches.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, Request, Response
from pydantic import Field
from tests.conftest import answered_from_bytes, serving, settings_of, whole_request

from xylem.api.door import heads
from xylem.api.door.admission import Admission
from xylem.api.door.answering import WholeRequests
from xylem.api.door.request_log import RequestLog
from xylem.api.routes.admins import RawRoute, needs
from xylem.api.routes.operations import of_version
from xylem.api.routes.requests import Services, Wired, reply_in
from xylem.base.errors import BadRequest
from xylem.base.settings import Limits
from xylem.engine.predictor import PredictOptions
from xylem.serving.dialects import search
from xylem.serving.dialects.dialect import Body, Dialect, Longer, Reply
from xylem.serving.dialects.predict import dialect as predict
from xylem.serving.dialects.predict.schema import Options, PredictRequest
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import to_options

PATH = "/v1/models/raw/predict"
INSTANCES = [{"indices": [0, 3], "values": [1.0, 0.5]}]


# 1. service/xylem/serving/dialects/predict/schema.py
class LonelyRequest(PredictRequest):
    lonely: bool = Field(default=False, description="whether the best label is the only one")


# 2. service/xylem/serving/rows.py
def to_lonely_options(options: Options, served: ServedVersion, stop: Any = None) -> PredictOptions:
    found = to_options(options, served, stop)
    return found._replace(top_r=1) if getattr(options, "lonely", False) else found


async def test_an_option_of_predict(shared_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "PredictRequest", LonelyRequest)
    monkeypatch.setattr(search, "to_options", to_lonely_options)
    async with serving(settings_of(shared_store)) as (_, client):

        async def labels(**options: Any) -> list[str]:
            found = await client.post(PATH, json={"instances": INSTANCES, **options})
            assert found.status_code == 200, found.text
            return [label["label"] for label in found.json()["predictions"][0]["labels"]]

        usual = await labels(lonely=False)
        assert usual == await labels()
        assert len(usual) == 5
        assert await labels(lonely=True) == await labels(lonely=True, explain=True) == usual[:1]
        assert await labels(lonely=True, deadline_ms=1000) == usual[:1]  # in a thread
        refused = await client.post(PATH, json={"instances": INSTANCES, "lonely": 1})
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "lonely")


# 1. service/xylem/api/door/heads.py
class TenantHeaders(heads.RequestHeaders, frozen=True):
    tenant: bytes | None = None


TENANT = heads.VaryingHeader(rb"[Tt]enant", rb"[a-z]+", lambda tenants: tenants[0])


@pytest.fixture
def tenants(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """Note the tenants of requests, and return them."""
    found: list[bytes | None] = []

    # 2. service/xylem/api/door/request_log.py
    def begin(log: RequestLog, own: Any, path: str = "") -> Any:
        found.append(own.tenant)
        return begin_as_ever(log, own, path)

    begin_as_ever = RequestLog.begin
    monkeypatch.setitem(heads.VARYING_HEADERS, b"tenant", TENANT)
    monkeypatch.setattr(heads, "VARYING_LINES", heads.lines_of(heads.VARYING_HEADERS))
    monkeypatch.setattr(heads, "RequestHeaders", TenantHeaders)
    monkeypatch.setattr(heads, "NOTHING", TenantHeaders())
    monkeypatch.setattr("xylem.api.door.answering.NOTHING", TenantHeaders())
    monkeypatch.setattr(RequestLog, "begin", begin)
    return found


async def test_a_header_of_all_requests(shared_store: Path, tenants: list[bytes | None]) -> None:
    async with serving(settings_of(shared_store)) as (app, client):
        tenants.clear()
        for tenant in ("a", "b"):
            found = await client.post(
                PATH, json={"instances": INSTANCES}, headers={"tenant": tenant}
            )
            assert found.status_code == 200
        assert (await client.get("/v1/models")).status_code == 200
        body = json.dumps({"instances": INSTANCES}).encode()
        assert answered_from_bytes(app, PATH, body, tenant="c").startswith(b"HTTP/1.1 200 OK")
        message, _ = whole_request(PATH, body, tenant="d")  # alike but for what is its own
        assert app.state.whole_requests.answer(message, b"").startswith(b"HTTP/1.1 200 OK")
        assert tenants == [b"a", b"b", None, b"c", b"d"]


class Measures(Dialect[int]):
    """Says how long a body is: a short one at once, another in a thread."""

    def read(self, body: Body, limits: Limits) -> int:
        if not body.content:
            raise BadRequest("expected a body, found none").with_path("")
        return len(body.content)

    def answer_read(self, query: int, served: ServedVersion, *_: Any) -> Reply | Longer:
        reply = Reply((b'{"version":%d,' % served.version, b'"bytes":%d}' % query), 1)
        return reply if query < 100 else Longer(lambda _: reply)


MEASURES = Measures()
router = APIRouter(dependencies=[needs("predict")], route_class=RawRoute)


@of_version(router, "POST", "measure", "Measure with", {})
async def measure(request: Request, services: Wired) -> Response:
    """Answer in the dialect."""
    return await reply_in(MEASURES, request, services)


async def test_its_requests_are_answered_by_route_and_from_their_bytes(shared_store: Path) -> None:
    async with serving(settings_of(shared_store)) as (app, client):
        services: Services = app.state.services
        app.router.routes[:0] = router.routes
        none = re.compile("none")
        admission = Admission(Limits(), none, none, lambda: False)
        routes = [(MEASURES, route) for route in router.routes]
        app.state.whole_requests = WholeRequests(routes, services.answering, admission)
        path, headers = "/v1/models/raw/measure", {"content-type": "application/json"}
        for body, status in ((b"{}", 200), (b"", 422)):
            answer = await client.post(path, content=body, headers=headers)
            assert answer.status_code == status
            first, _, content = answered_from_bytes(app, path, body).partition(b"\r\n\r\n")
            assert int(first.split()[1]) == status
            ours, theirs = json.loads(content), answer.json()
            assert ours.pop("request_id", None) != theirs.pop("request_id", "")
            assert ours == theirs
        long = b"[]" * 100
        assert (await client.post(path, content=long, headers=headers)).status_code == 200
        assert answered_from_bytes(app, path, long) is None  # it is for a thread
        assert services.metrics.rows["raw"] == 3
