import re

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from tests.conftest import InProcess

from xylem.api.app import ROUTERS
from xylem.api.door.admission import Admission
from xylem.api.door.metrics import Metrics
from xylem.api.door.problems import install_handlers
from xylem.api.door.request_log import RequestLog
from xylem.api.door.request_scope import RequestScope
from xylem.base.errors import BadInput, BadInstance, Overloaded, XylemError
from xylem.base.settings import Limits
from xylem.serving.problems import code_of, describe_error
from xylem_store.errors import Corrupt, VersionNotFound


class NewFault(BadInstance):
    code = "not-in-the-table"


def test_an_error_says_where() -> None:
    assert describe_error(BadInput("expected a, found b").with_path("instances[3].text")) == {
        "code": "bad-input",
        "detail": "instances[3].text: expected a, found b",
        "errors": [{"path": "instances[3].text", "detail": "expected a, found b"}],
    }
    assert describe_error(Overloaded("full")) == {"code": "overloaded", "detail": "full"}
    assert code_of(KeyError()) == "internal-error"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded("full"), 503, "overloaded"),
        (VersionNotFound("no"), 404, "version-not-found"),
        (Corrupt("a", "b", "c"), 503, "model-corrupt"),
        (XylemError("?"), 500, "error"),
        (KeyError("secret"), 500, "internal-error"),
        (NewFault("as the class above it"), 422, "bad-instance"),
        (None, 404, "route-not-found"),
    ],
)
async def test_every_error_of_an_app_is_a_problem(
    error: Exception | None, status: int, code: str
) -> None:
    app = FastAPI(openapi_url=None)
    install_handlers(app)
    none = re.compile("none")
    admission = Admission(Limits(), none, none, lambda: False)
    requests = RequestLog(Metrics(), access_log=False)
    app.add_middleware(RequestScope, admission=admission, requests=requests)

    @app.get("/error")
    async def fail() -> None:
        raise error

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/error" if error else "/nothing")
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.headers.get("retry-after") == "1") == (status == 503)
    assert "secret" not in response.text


def test_no_parameter_of_a_route_is_refused_by_the_framework() -> None:
    """It takes parts of paths as they are; bodies and query
    strings are read by dependencies of ours.
    """
    routes = [route for router in ROUTERS for route in router.routes]
    assert len(routes) > 80
    for route in routes:
        assert isinstance(route, APIRoute)
        for part in (route.dependant, *route.dependant.dependencies):
            assert {field.field_info.annotation for field in part.path_params} <= {str}
            assert not [
                *part.query_params,
                *part.header_params,
                *part.cookie_params,
                *part.body_params,
            ]


@pytest.mark.parametrize(
    ("method", "path", "detail"),
    [
        ("GET", "/nothing", "expected a route of /docs, found GET /nothing"),
        ("GET", "/v1/models/m/predict", "expected POST, found GET /v1/models/m/predict"),
        (
            "DELETE",
            "/v1/models/m/feedback",
            "expected GET, POST, found DELETE /v1/models/m/feedback",
        ),
    ],
)
def test_what_was_expected_is_told(
    in_process: InProcess, method: str, path: str, detail: str
) -> None:
    response = in_process(lambda client: client.request(method, path))
    assert response.json()["detail"] == detail
