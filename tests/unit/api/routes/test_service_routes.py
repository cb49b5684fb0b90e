"""Routes about the service: health, metrics, its models and its documentation."""

import re
from pathlib import Path

import httpx
from tests.conftest import InProcess, get, post, serving, settings_of
from tests.helpers.feedback_helpers import RAW
from tests.helpers.predict_requests import ask, assert_problem


def test_health_and_metrics(in_process: InProcess) -> None:
    async def call(client: httpx.AsyncClient) -> list[httpx.Response]:
        await ask(RAW, RAW, RAW)(client)
        await post("/v1/models/raw/predict", b"{")(client)
        await client.get("/nothing")
        return [await client.get(path) for path in ("/livez", "/readyz", "/metrics")]

    alive, ready, metrics = in_process(call, top_r_max=5)  # a service of its own, its figures at 0
    assert alive.json() == {"status": "alive"}
    assert ready.json()["status"] == "ready"
    assert {"model": "raw", "alias": "stable", "version": 1} in ready.json()["models"]
    lines = metrics.text.splitlines()
    of = 'model="raw",route="/v1/models/{model}/predict"'
    assert f'xylem_requests_total{{{of},status="200",version="2"}} 1.0' in lines
    assert f'xylem_requests_total{{{of},status="400",version="2"}} 1.0' in lines
    assert f'xylem_request_seconds_count{{{of},version="2"}} 2.0' in lines
    assert 'xylem_requests_total{model="",route="none",status="404",version=""} 1.0' in lines
    assert 'xylem_queue_depth{queue="predictions"} 0.0' in lines
    assert any(line.startswith("xylem_build_info{") and line.endswith(" 1.0") for line in lines)
    assert 'xylem_errors_total{code="malformed-json"} 1.0' in lines
    assert 'xylem_rows_total{model="raw"} 3.0' in lines
    assert 'xylem_model_version{alias="latest",model="raw"} 2.0' in lines
    assert "xylem_ready 1.0" in lines
    assert {"# TYPE xylem_model_swaps_total counter", "xylem_model_swaps_total 0.0"} <= set(lines)
    assert "xylem_requests_in_flight 1.0" in lines


async def test_draining_says_not_ready_and_closes_connections(shared_store: Path) -> None:
    async with serving(settings_of(shared_store)) as (app, client):
        app.state.draining.set()
        ready = await client.get("/readyz")
        predicted = await ask()(client)
    assert (ready.status_code, ready.json()["status"]) == (503, "draining")
    assert predicted.status_code == 200
    assert predicted.headers["connection"] == "close"


def test_models(in_process: InProcess) -> None:
    models = in_process(get("/v1/models")).json()["models"]
    assert [model["name"] for model in models] == ["hashed", "named", "raw", "text"]
    body = in_process(get("/v1/models/raw")).json()
    assert body["aliases"] == {"latest": 2, "stable": 1}
    assert [details["version"] for details in body["version_details"]] == [2, 1]
    assert body["version_details"][0]["n_labels"] == 11
    assert_problem(in_process(get("/v1/models/none")), 404, "model-not-found")


def test_an_empty_store_is_ready(in_process: InProcess, tmp_path: Path) -> None:
    assert in_process(get("/v1/models"), store=tmp_path).json() == {"models": []}
    predicted = in_process(ask(), store=tmp_path)
    assert_problem(predicted, 404, "model-not-found")


def test_the_documentation_needs_nothing_from_elsewhere(in_process: InProcess) -> None:
    paths = ("/docs", "/docs/docs.js", "/docs/docs.css", "/openapi.json")
    page, script, style, document = (in_process(get(path)) for path in paths)
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    for response in (page, script, style):
        assert response.status_code == 200
        assert not re.search("https?:", response.text)
    assert not re.search("<script>|style=", page.text)
    assert "innerHTML" not in script.text
    assert document.json()["openapi"].startswith("3.1")
