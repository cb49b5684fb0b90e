"""The console's files, small and strict; answers that clients keep
by tags; a service under a prefix.
"""

import asyncio
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import InProcess, answered_from_bytes, get, serving, settings_of
from tests.helpers.feedback_helpers import NDJSON, RAW, client_of

from xylem.api.routes.pages import CONSOLE, static_files
from xylem.base.errors import BadParameter
from xylem.base.settings import read_settings
from xylem_store.store import Store

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
    assert {
        file.name: n for file in SCRIPTS if (n := len(file.read_text().splitlines())) > 400
    } == {}


def test_the_page_and_its_files_have_a_strict_policy(
    in_process: InProcess,
) -> None:
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
    "name",
    ["none.js", "%2e%2e%2fdocs.py", "..%2f..%2fapp.py", "%2fetc%2fpasswd", "a%09b", "a" * 5000],
)
def test_no_other_file_is_answered(in_process: InProcess, name: str) -> None:
    response = in_process(get(f"/console/{name}"))
    assert (response.status_code, response.json()["code"]) == (404, "route-not-found")


def test_no_markup_is_made_of_text_or_comes_from_elsewhere() -> None:
    page = (CONSOLE / "index.html").read_text()
    assert not re.search(r"<script>|style=|\son\w+=", page)
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    for file in CONSOLE.iterdir():
        text = file.read_text()
        assert not re.search(rf"{markup}|localStorage", text), file
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file


def test_every_import_of_a_script_is_a_file_and_all_are_used() -> None:
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
        "from xylem.api.app import create_app; from xylem.base.settings import read_settings;"
        "create_app(read_settings());"
        "from xylem.api.routes.pages import static_files; print(static_files.cache_info().misses)"
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("XYLEM_")
    }
    command = [sys.executable, "-c", script]
    assert (
        subprocess.run(command, capture_output=True, check=True, env=environment).stdout == b"0\n"
    )


TAGGED = [
    "/openapi.json",
    "/v1/models",
    "/v1/models/raw",
    "/v1/models/raw/versions/2",
    "/",
    "/docs",
]


@pytest.mark.parametrize("path", [*TAGGED, "/console/main.js"])
def test_what_a_client_has_is_not_sent_again(in_process: InProcess, path: str) -> None:
    plain, packed = in_process(get(path, accept_encoding="identity")), in_process(get(path))
    assert plain.content == packed.content
    tag = plain.headers["etag"]
    assert tag.startswith('W/"')
    assert packed.headers["etag"] == tag
    assert plain.headers["vary"] == "Accept-Encoding"
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = in_process(get(path, if_none_match=known))
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert "content-type" not in again.headers
    assert in_process(get(path, if_none_match='"other"')).status_code == 200


async def test_the_tag_of_the_models_changes_with_them(own_store: Store) -> None:
    async with serving(settings_of(own_store.root, store_poll_seconds=0.01)) as (_, client):
        tag = (await client.get("/v1/models")).headers["etag"]
        own_store.promote("raw", 1, "old")
        async with asyncio.timeout(60):
            while (
                answer := await client.get("/v1/models", headers={"if-none-match": tag})
            ).is_redirect:
                await asyncio.sleep(0.01)
        assert answer.status_code == 200
        assert answer.headers["etag"] != tag


ROOT = "/apps/xylem"


@pytest.mark.parametrize("sent", ["", ROOT], ids=["cut off by the proxy", "left by it"])
async def test_all_that_names_a_path_has_the_prefix(shared_store: Path, sent: str) -> None:
    async with serving(settings_of(shared_store, root_path=ROOT)) as (app, client):
        body, predict = {"instances": [RAW]}, f"{sent}/v1/models/raw/predict"
        assert (await client.post(predict, json=body)).status_code == 200
        assert (await client.get(f"{sent}/livez")).status_code == 200
        assert (await client.get(f"{sent}/console/main.js")).status_code == 200
        assert (await client.get(f"{sent}/openapi.json")).json()["servers"] == [{"url": ROOT}]
        for path in ("/v1/models/none", "/none", "/v1/models/none/predict"):
            problem = (await client.get(f"{sent}{path}")).json()
            assert problem["instance"] == f"{ROOT}{path}"
            assert problem["type"] == f"{ROOT}/docs#{problem['code']}"
        lines = json.dumps(RAW).encode() + b"\n"
        batch = await client.post(f"{sent}/v1/models/raw/batch", content=lines, headers=NDJSON)
        assert batch.status_code == 200
        answer = answered_from_bytes(app, predict, json.dumps(body).encode())
        assert answer.startswith(b"HTTP/1.1 200")
        refused = answered_from_bytes(app, predict, json.dumps({**body, "top_r": 10**6}).encode())
        problem = json.loads(refused.partition(b"\r\n\r\n")[2])
        assert problem["instance"] == f"{ROOT}/v1/models/raw/predict"
        _, _, content = app.state.unparsed_requests(f"{sent}/livez".encode(), 0, None)
        assert json.loads(content)["instance"] == f"{ROOT}/livez"


async def test_a_job_is_found_where_its_location_says(own_store: Store, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(RAW) + "\n")
    async with client_of(
        own_store, as_admin=True, root_path=ROOT, data_dir=tmp_path, jobs=0
    ) as client:
        answer = await client.post(
            "/v1/admin/batch-jobs", json={"model": "raw", "data": "rows.jsonl"}
        )
        assert answer.status_code == 202, answer.text
        assert answer.headers["location"].startswith(f"{ROOT}/v1/admin/jobs/")
        assert (await client.get(answer.headers["location"])).json()["id"] == answer.json()["id"]


@pytest.mark.parametrize("path", ["/xylem", "/apps/xylem", "/a.b/~c_d-1"])
def test_prefixes(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("XYLEM_ROOT_PATH", path)
    assert read_settings().root_path == path


@pytest.mark.parametrize(
    "path",
    [
        "//xylem",
        "/a//b",
        "xylem",
        "/",
        "/xylem/",
        "/a b",
        "/a/../b",
        "/.",
        "/a?b",
        "/ä",
        "/v1",
        "/docs/x",
    ],
)
def test_what_is_no_prefix_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("XYLEM_ROOT_PATH", path)
    with pytest.raises(
        BadParameter, match=r"XYLEM_ROOT_PATH: .*expected a prefix such as /xylem .*, found"
    ):
        read_settings()
