"""Which pages of other origins may call the service: the settings, the headers, the refusals."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Call, InProcess, get, serving, settings_of

from xylem.api.door.cors import cors_options
from xylem.base.errors import BadParameter
from xylem.base.settings import read_settings

ORIGIN = {"origin": "https://shop.example"}
SHOP = ("https://shop.example",)
SAFE = {
    "cache-control",
    "content-language",
    "content-length",
    "content-type",
    "expires",
    "last-modified",
}
"""Headers of answers that every page may read (https://fetch.spec.whatwg.org)."""


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("*", ["*"]),
        ("https://a.example.org", ["https://a.example.org"]),
        (
            "http://localhost:3000, https://[::1]:8443",
            ["http://localhost:3000", "https://[::1]:8443"],
        ),
        ("https://a.org,https://a.org", ["https://a.org"]),
    ],
)
def test_origins(monkeypatch: pytest.MonkeyPatch, text: str, origins: list[str]) -> None:
    monkeypatch.setenv("XYLEM_CORS_ORIGINS", text)
    options = cors_options(read_settings())
    assert (options["allow_origins"], options["allow_credentials"]) == (origins, False)


@pytest.mark.parametrize(
    "text",
    [
        "https://a.org/",
        "https://a.org/x",
        "a.org",
        "*,https://a.org",
        "https://*.org",
        "ftp://a.org",
        ",",
    ],
)
def test_origins_that_are_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XYLEM_CORS_ORIGINS", text)
    with pytest.raises(BadParameter, match=r"XYLEM_CORS_ORIGINS: .*expected \* alone, or origins"):
        read_settings()


def ask(**headers: str) -> Call:
    """A page's question whether it may send a request, for `in_process`."""
    named = {**ORIGIN, "access-control-request-method": "POST", **headers}
    return lambda client: client.options("/v1/models/raw/predict", headers=named)


def test_the_services_own_headers_are_taken(in_process: InProcess) -> None:
    names = (
        "authorization, content-encoding, content-type, idempotency-key, if-none-match, "
        "last-event-id, "
        "range, inference-header-content-length, traceparent, tracestate, x-request-id, "
        "xylem-canary-key"
    )
    answer = in_process(ask(**{"access-control-request-headers": names}), cors_origins=SHOP)
    assert answer.status_code == 200, answer.text
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"origin": "https://other.example"}, "origin"),
        ({"access-control-request-method": "PATCH"}, "method"),
        ({"access-control-request-headers": "x-other"}, "headers"),
    ],
)
def test_refusals_are_problems(in_process: InProcess, headers: dict[str, str], found: str) -> None:
    answer = in_process(ask(**headers), cors_origins=SHOP)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"]) == (403, "cors-refused")
    assert answer.json()["detail"].endswith(f"found another: {found}")
    assert answer.json()["detail"].startswith("CORS: expected an origin of XYLEM_CORS_ORIGINS")


def test_a_page_may_ask_a_service_with_a_private_address(in_process: InProcess) -> None:
    """Chromium sends the header if the page has a public address."""
    question = {"access-control-request-private-network": "true"}
    answer = in_process(ask(**question), cors_origins=SHOP)
    assert answer.status_code == 200, answer.text
    assert answer.headers["access-control-allow-private-network"] == "true"
    refused = in_process(ask(origin="https://other.example", **question), cors_origins=SHOP)
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers


async def test_every_header_of_an_answer_can_be_read_and_every_refusal(shared_store: Path) -> None:
    body = {"instances": [{"indices": [1], "values": [1.0]}]}
    async with serving(settings_of(shared_store, cors_origins=SHOP, requests_max=1)) as (
        app,
        client,
    ):
        client.headers.update(ORIGIN)
        path, lines = "/v1/models/raw/predict", {"content-type": "application/x-ndjson"}
        answers = [
            await client.get("/v1/models"),
            await client.post(path, json=body),
            await client.post(path, content=b"x"),
            await client.post(path, content=b"x", headers={"content-encoding": "br"}),
            await client.post("/v1/models/raw/batch", content=b"{}\n", headers=lines),
            await client.get(path),
            await client.get("/v1/admin/jobs"),
        ]
        app.state.services.metrics.settle()
        assert [answer.status_code for answer in answers] == [200, 200, 415, 415, 200, 405, 401]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == "https://shop.example"
            exposed = set(answer.headers["access-control-expose-headers"].lower().split(", "))
            others = {name for name in answer.headers if not name.startswith("access-control-")}
            assert others - SAFE - {"vary"} <= exposed


@pytest.mark.parametrize("settings", [{}, {"cors_origins": SHOP}])
def test_others_are_not_told(in_process: InProcess, settings: dict[str, Any]) -> None:
    answer = in_process(get("/v1/models", origin="https://other.example"), **settings)
    assert "access-control-allow-origin" not in answer.headers
