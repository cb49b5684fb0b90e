"""Through how many of our modules a predict request passes, from socket to kernel and back."""

import ast
import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.conftest import settings_of
from tests.helpers.checkout import PACKAGES, SOURCE_ROOTS

from xylem.api.app import create_app
from xylem.api.door.protocol import bounded_protocol

ROOT = Path(__file__).resolve().parents[2]
MODULES_MAX = 8
"""Kernels not counted; docs/architecture.md lists them all."""

STATEMENTS_MAX = 950
"""Of what docs/architecture.md tells to read of the way of a request."""

INSTANCES: dict[str, dict[str, Any]] = {
    "raw": {"indices": [1, 5], "values": [1.0, 0.5]},
    "text": {"text": "a text editor for the terminal"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "top_r and beam_width": {"top_r": 3, "beam_width": 4},
}


async def ask(port: int, model: str, body: dict[str, Any]) -> bytes:
    """Send one request over a connection of its own, and return the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/models/{model}/predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    )
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    answer = await reader.readuntil(b"\r\n\r\n")
    [length] = re.findall(rb"content-length: (\d+)", answer.lower())
    answer += await reader.readexactly(int(length))
    writer.close()
    return answer


async def traced(store: Path, model: str, body: dict[str, Any]) -> set[str]:
    """The files that a request passes through whose head has been seen before."""
    settings = settings_of(store, access_log=False)
    app = create_app(settings, opens_first=True)
    state = app.state
    protocol = bounded_protocol(
        settings.limits,
        state.slow_readers,
        state.unparsed_requests,
        state.whole_requests,
        state.metrics.count_aborted,
    )
    config = uvicorn.Config(app, port=0, http=protocol, ws="none", lifespan="on", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    called = set()
    for _ in range(3):
        assert (await ask(port, model, body)).startswith(b"HTTP/1.1 200")
    sys.setprofile(
        lambda frame, event, _: called.add(frame.f_code.co_filename) if event == "call" else None
    )
    try:
        assert (await ask(port, model, body)).startswith(b"HTTP/1.1 200")
    finally:
        sys.setprofile(None)
    server.should_exit = True
    await serving
    roots = {
        Path(name): root
        for name in called
        for root in SOURCE_ROOTS
        if Path(name).is_relative_to(root)
    }
    return {str(file.relative_to(root)) for file, root in roots.items()}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("model", INSTANCES)
def test_a_request_passes_few_modules(shared_store: Path, model: str, options: str) -> None:
    body = {"instances": [INSTANCES[model]], **OPTIONS[options]}
    files = asyncio.run(traced(shared_store, model, body))
    ours = {file for file in files if "/kernels/" not in file}
    assert {"xylem/api/door/protocol.py", "xylem/serving/dialects/predict/dialect.py"} <= ours
    assert len(ours) <= MODULES_MAX, sorted(ours)
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert not [file for file in files if f"`{file.removeprefix('xylem/')}`" not in page]


def test_the_way_of_a_request_is_read_in_few_statements() -> None:
    """Each row of the page's table says a file, its parts and their statements."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\|.*\| `(\S+\.py)` \| (`.*`) \| (\d+) \|$", page, re.MULTILINE)
    n_statements = 0
    for file, parts, stated in rows:
        sizes = {
            node.name: sum(isinstance(each, ast.stmt) for each in ast.walk(node))
            for node in ast.walk(ast.parse((PACKAGES[0] / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        n = sum(sizes[part] for part in re.findall(r"`(\w+)`", parts))
        assert abs(n - int(stated)) <= max(8, n // 4), (file, n)
        n_statements += n
    assert len(rows) > 10
    assert n_statements < STATEMENTS_MAX
