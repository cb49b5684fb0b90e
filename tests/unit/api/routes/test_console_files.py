"""The console's files: small, strict, cached, and needed by nothing else."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from service.api.routes.pages import CONSOLE, static_files
from tests.conftest import InProcess, get

PACKED_BYTES_MAX = 150_000
SCRIPTS = sorted(CONSOLE.glob("*.js"))


def test_all_of_it_is_small() -> None:
    packed = {
        url: len(gzip.compress(file.content))
        for url, file in static_files().items()
        if url.startswith("/console/")
    }
    assert {
        f"/console/{name}" for name in ("index.html", "console.css", "main.js", "icon.svg")
    } <= packed.keys()
    assert sum(packed.values()) <= PACKED_BYTES_MAX, packed


def test_the_page_and_its_files_are_cached_by_their_tags(in_process: InProcess) -> None:
    page, script = in_process(get("/")), in_process(get("/console/main.js"))
    again = in_process(get("/console/main.js", **{"if-none-match": script.headers["etag"]}))
    other = in_process(get("/console/main.js", **{"if-none-match": page.headers["etag"]}))
    statuses = [response.status_code for response in (page, script, again, other)]
    assert statuses == [200, 200, 304, 200]
    assert page.headers["content-type"].startswith("text/html")
    assert script.headers["content-type"].startswith("text/javascript")
    assert again.content == b""
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
    assert response.status_code == 404
    assert response.json()["code"] == "route-not-found"


def test_no_markup_is_made_of_text_and_nothing_comes_from_elsewhere() -> None:
    page = (CONSOLE / "index.html").read_text()
    assert "<script>" not in page
    assert "style=" not in page
    assert not re.search(r"\son\w+=", page)
    for file in CONSOLE.iterdir():
        text = file.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
        )
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file
        assert "localStorage" not in text


def test_every_import_of_a_script_is_a_file_and_every_script_is_imported() -> None:
    imported = {"main.js"}
    for file in SCRIPTS:
        found = re.findall(r'from "\./([\w.]+)"', file.read_text())
        assert all((CONSOLE / name).exists() for name in found), file
        imported |= set(found)
    pages = re.findall(r"PAGES = \[(.*)\]", (CONSOLE / "main.js").read_text())[0]
    imported |= {f"{name}.js" for name in re.findall(r'"(\w+)"', pages)}
    assert imported == {file.name for file in SCRIPTS}


def test_scripts_are_short() -> None:
    assert {file.name: n for file in SCRIPTS if (n := len(file.read_text().splitlines())) > 400} == {}


def test_a_server_starts_without_reading_the_files() -> None:
    script = (
        "from service.server.app import create_app; from service.base.settings import read_settings;"
        "create_app(read_settings());"
        "from service.api.routes.pages import static_files; print(static_files.cache_info().misses)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XYLEM_")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "0"


def test_a_wheel_has_the_files(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    root = CONSOLE.parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, capture_output=True, check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"service/console/{file.name}" for file in CONSOLE.iterdir()} <= names
