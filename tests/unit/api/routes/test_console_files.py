"""The console's files: small, strict, cached, and needed by nothing else."""

import gzip
import os
import re
import subprocess
import sys

import pytest

from service.api.routes.pages import CONSOLE, static_files
from tests.conftest import InProcess, get

PACKED_BYTES_MAX = 150_000
SCRIPTS = sorted(CONSOLE.glob("*.js"))


def test_all_of_it_is_small() -> None:
    packed = {
        url.removeprefix("/console/"): len(gzip.compress(file.content))
        for url, file in static_files().items()
        if url.startswith("/console/")
    }
    assert {"index.html", "console.css", "main.js", "icon.svg"} <= packed.keys()
    assert sum(packed.values()) <= PACKED_BYTES_MAX, packed
    assert {file.name: n for file in SCRIPTS if (n := len(file.read_text().splitlines())) > 400} == {}


def test_the_page_and_its_files_are_looked_for_again_under_a_strict_policy(in_process: InProcess) -> None:
    page, script = in_process(get("/")), in_process(get("/console/main.js"))
    again = in_process(get("/console/main.js", **{"if-none-match": script.headers["etag"]}))
    assert [response.status_code for response in (page, script, again)] == [200, 200, 304]
    assert page.headers["content-type"].startswith("text/html")
    assert script.headers["content-type"].startswith("text/javascript")
    for response in (page, script, again):
        assert response.headers["cache-control"] == "no-cache"
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy


@pytest.mark.parametrize(
    "name", ["none.js", "%2e%2e%2fdocs.py", "..%2f..%2fapp.py", "%2fetc%2fpasswd", "a%09b", "a" * 5000]
)
def test_no_other_file_is_answered(in_process: InProcess, name: str) -> None:
    response = in_process(get(f"/console/{name}"))
    assert (response.status_code, response.json()["code"]) == (404, "route-not-found")


def test_no_markup_is_made_of_text_and_nothing_comes_from_elsewhere() -> None:
    page = (CONSOLE / "index.html").read_text()
    assert not re.search(r"<script>|style=|\son\w+=", page)
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    for file in CONSOLE.iterdir():
        text = file.read_text()
        assert not re.search(rf"{markup}|localStorage", text), file
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file


def test_every_import_of_a_script_is_a_file_and_every_script_is_imported() -> None:
    imported = {"main.js"}
    for file in SCRIPTS:
        found = re.findall(r'from "\./([\w.]+)"', file.read_text())
        assert all((CONSOLE / name).exists() for name in found), file
        imported |= set(found)
    pages = re.findall(r"PAGES = \[(.*)\]", (CONSOLE / "main.js").read_text())[0]
    imported |= {f"{name}.js" for name in re.findall(r'"(\w+)"', pages)}
    assert imported == {file.name for file in SCRIPTS}


def test_a_server_starts_without_reading_the_files() -> None:
    script = (
        "from service.server.app import create_app; from service.base.settings import read_settings;"
        "create_app(read_settings());"
        "from service.api.routes.pages import static_files; print(static_files.cache_info().misses)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XYLEM_")}
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, check=True, env=environment).stdout == b"0\n"
