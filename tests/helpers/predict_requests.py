"""Requests to predict in this process, and problems as answers."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.conftest import post
from tests.helpers.feedback_helpers import RAW

PATH = "/v1/models/raw/predict"


def ask(*instances: Any, **options: Any) -> Callable[..., Any]:
    """What has the model `raw` predict instances, RAW if there are none, for `in_process`."""
    return post(PATH, {"instances": [*(instances or (RAW,))], **options})


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"/docs#{code}"
    assert body["title"] and body["detail"]
    assert body["request_id"] == response.headers["x-request-id"]
    assert (response.headers.get("retry-after") is not None) == (status == 503)
    return body
