"""What we override or call of the inner parts of libraries is there,
as pyproject.toml's bounds promise.
"""

import inspect
import re

import httpx
import pytest
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from starlette.routing import Match
from uvicorn.protocols.http import httptools_impl

from xylem.api.app import _OPTIONS
from xylem.api.door.protocol import BoundedProtocol
from xylem.api.routes.admins import RawRoute
from xylem.server.serve import _Server

PROTOCOL = httptools_impl.HttpToolsProtocol
CYCLE_FIELDS = {
    "body", "chunked_encoding", "keep_alive", "response_complete", "response_started", "scope",
    "transport",
    "waiting_for_100_continue",
}  # fmt: skip
"""What `JoinedWrites` and `BoundedProtocol` read of a request and its answer, or set."""


def parameters_of(kind: type, name: str) -> list[str]:
    return list(inspect.signature(getattr(kind, name)).parameters)


def test_each_overridden_method_of_the_protocol_exists() -> None:
    ours = {name for name, value in vars(BoundedProtocol).items() if inspect.isfunction(value)}
    overridden = ours & set(dir(PROTOCOL))
    needed = {
        "_start_asgi_task",
        "timeout_keep_alive_handler",
        "on_headers_complete",
        "eof_received",
    }
    assert needed <= overridden
    changed = [
        f"uvicorn {uvicorn.__version__}: {name} takes {parameters_of(PROTOCOL, name)}"
        for name in sorted(overridden)
        if len(parameters_of(BoundedProtocol, name)) != len(parameters_of(PROTOCOL, name))
    ]
    assert not changed, "\n".join(changed)


def test_no_method_of_the_protocol_overrides_one_that_is_gone() -> None:
    """A name that a new uvicorn no longer has would be a method that nobody calls."""
    called = re.findall(r"super\(\)\.(\w+)", inspect.getsource(BoundedProtocol))
    assert set() < set(called) <= set(dir(PROTOCOL))


def test_each_field_of_an_answer_that_is_used_exists() -> None:
    source = inspect.getsource(httptools_impl.RequestResponseCycle.__init__)
    assert set(re.findall(r"self\.(\w+)(?: =|:)", source)) >= CYCLE_FIELDS


@pytest.mark.parametrize("name", ["startup", "shutdown", "handle_exit", "on_tick"])
def test_each_method_of_the_server_that_we_rely_on_exists(name: str) -> None:
    assert parameters_of(_Server, name) == parameters_of(uvicorn.Server, name)


async def test_a_raw_route_calls_its_checks_and_its_endpoint_itself() -> None:
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

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://here"
    ) as client:
        answer = await client.post("/one/said")
        assert (answer.status_code, answer.text, asked) == (200, "services one", ["/one/said"])
        assert (await client.get("/one/said")).status_code == 405


def test_routes_among_the_applications_own_are_marked() -> None:
    """The head of a request is looked up by what a route's `matches` adds to the scope."""
    route = APIRoute("/{name}/said", lambda: None, methods=["POST"])
    scope = {"type": "http", "method": "POST", "path": "/one/said", "headers": [], "root_path": ""}
    match, more = route.matches(scope)
    assert (match, more["route"].path, more["path_params"]) == (
        Match.FULL,
        route.path,
        {"name": "one"},
    )


def test_the_frameworks_own_telemetry_can_be_switched_off() -> None:
    """Else it would look for its providers at each request; an unknown
    option would be kept, and not read.
    """
    pytest.importorskip("fastapi.telemetry", reason="releases before it have none to switch off")
    assert "telemetry" in inspect.signature(FastAPI.__init__).parameters


def test_the_exporter_of_spans_has_what_sends_bytes() -> None:
    """It is not public; without it a server that is to send traces does not start, and says why."""
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    client = exporter.OTLPSpanExporter()._client
    assert list(inspect.signature(client.export).parameters) == ["data"]
