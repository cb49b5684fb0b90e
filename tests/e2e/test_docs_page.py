"""/docs in a real browser: the options of predict, a field for the key, nothing that the policy forbids."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, FLAGS
from tests.servers import ServerProcess

LOGS = ("--enable-logging=stderr", "--virtual-time-budget=20000")


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store) as process:
        yield process


def opened(server: ServerProcess, directory: Path, fragment: str) -> tuple[str, str]:
    """The page's elements once its scripts have run, and what the browser logged."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    url = f"http://127.0.0.1:{server.port}/docs#{fragment}"
    command = [CHROMIUM, *FLAGS, *LOGS, f"--user-data-dir={directory}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout, done.stderr


def test_predict_shows_its_options(server: ServerProcess, tmp_path: Path) -> None:
    page, said = opened(server, tmp_path, "/predict/predict")
    for option in (
        "instances",
        "top_r",
        "threshold",
        "beam_width",
        "deny_labels",
        "label_weights",
        "deadline_ms",
    ):
        assert option in page
    assert "Content Security Policy" not in said
    assert "Resolver error" not in page
    assert "labels an instance gets, at most" in page
    asked = {event["path"] for event in server.events("request")}
    assert {"/docs", "/openapi.json", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"} <= asked


def test_admin_routes_ask_for_the_key_and_errors_are_listed(server: ServerProcess, tmp_path: Path) -> None:
    page, _ = opened(server, tmp_path, "/thresholds/tuneThresholds")
    assert "Authorize" in page
    assert 'class="authorization__btn' in page
    assert '<tr id="limit-exceeded">' in page
