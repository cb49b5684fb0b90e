"""What we override or call of the inner parts of libraries is there, as pyproject.toml's bounds promise."""

import asyncio
import inspect

import httpx
import pytest
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from starlette.routing import Match
from uvicorn.protocols.http import httptools_impl

from service.api.door.protocol import BoundedProtocol
from service.api.routes.admins import RawRoute
from service.server.app import _OPTIONS
from service.server.serve import _Server

PROTOCOL = httptools_impl.HttpToolsProtocol
CYCLE_FIELDS = {
    "body",
    "chunked_encoding",
    "keep_alive",
    "response_complete",
    "response_started",
    "scope",
    "transport",
    "waiting_for_100_continue",
}
"""What `JoinedWrites` and `BoundedProtocol` read of a request and its answer, or set."""


def overridden(ours: type, theirs: type) -> list[str]:
    return [name for name, value in vars(ours).items() if inspect.isfunction(value) and hasattr(theirs, name)]


def test_each_overridden_method_of_the_protocol_exists_and_is_called_alike() -> None:
    names = overridden(BoundedProtocol, PROTOCOL)
    assert {"_start_asgi_task", "timeout_keep_alive_handler", "on_headers_complete", "eof_received"} <= set(
        names
    )
    for name in names:
        ours, theirs = (
            inspect.signature(getattr(cls, name)).parameters for cls in (BoundedProtocol, PROTOCOL)
        )
        assert len(ours) == len(theirs), f"uvicorn {uvicorn.__version__}: {name} takes {list(theirs)}"


def test_nothing_of_the_protocol_is_meant_to_override_what_is_gone() -> None:
    """A name that a new uvicorn no longer has would be a method that nobody calls."""
    source = inspect.getsource(BoundedProtocol)
    called = {name for name in dir(PROTOCOL) if f"super().{name}(" in source}
    assert called <= set(dir(PROTOCOL))
    assert source.count("super().") == sum(source.count(f"super().{name}(") for name in called)


def test_each_field_of_an_answer_that_is_used_exists() -> None:
    source = inspect.getsource(httptools_impl.RequestResponseCycle.__init__)
    assert {
        name for name in CYCLE_FIELDS if f"self.{name} =" not in source and f"self.{name}:" not in source
    } == set()


@pytest.mark.parametrize("name", ["startup", "shutdown", "handle_exit", "on_tick"])
def test_each_method_of_the_server_that_is_overridden_or_relied_on_exists(name: str) -> None:
    theirs = getattr(uvicorn.Server, name)
    ours = getattr(_Server, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_a_raw_route_calls_its_checks_and_its_endpoint_itself() -> None:
    """FastAPI would look what the endpoint takes, and refuse the request for want of `services`."""
    asked: list[str] = []

    async def check(request: Request) -> None:
        asked.append(request.url.path)

    async def endpoint(request: Request, services: object) -> Response:
        return PlainTextResponse(f"{services} {request.path_params['name']}")

    router = APIRouter(dependencies=[Depends(check)], route_class=RawRoute)
    router.add_api_route("/{name}/said", endpoint, methods=["POST"])
    app = FastAPI(**_OPTIONS)
    app.state.services = "services"
    app.router.routes.extend(router.routes)

    async def ask(method: str) -> tuple[int, str]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            answer = await client.request(method, "/one/said")
        return answer.status_code, answer.text

    assert asyncio.run(ask("POST")) == (200, "services one")
    assert asked == ["/one/said"]
    assert asyncio.run(ask("GET"))[0] == 405


def test_routes_that_are_put_among_the_applications_own_say_which_they_are() -> None:
    """The head of a request is looked up by what a route's `matches` adds to the scope."""
    route = APIRoute("/{name}/said", lambda: None, methods=["POST"])
    scope = {"type": "http", "method": "POST", "path": "/one/said", "headers": [], "root_path": ""}
    match, more = route.matches(scope)
    assert (match, more["route"].path, more["path_params"]) == (Match.FULL, route.path, {"name": "one"})


def test_the_frameworks_own_telemetry_can_be_switched_off() -> None:
    """Else it would look for its providers at each request; an unknown option would be kept, and not read."""
    pytest.importorskip("fastapi.telemetry", reason="releases before it have none to switch off")
    assert "telemetry" in inspect.signature(FastAPI.__init__).parameters


def test_the_exporter_of_spans_has_what_sends_bytes() -> None:
    """It is not public; without it a server that is to send traces does not start, and says why."""
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    client = exporter.OTLPSpanExporter()._client
    assert list(inspect.signature(client.export).parameters) == ["data"]
