"""Bodies that are made to cost much: how long the event loop is held by each, and the memory that it takes.

The service runs in this process, beside a task that looks at the clock all the time. The bodies are of the
lengths of LENGTHS, the longest that the limits allow among them; most are refused. Of several times the least
counts: what else runs on the machine holds the loop too.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from fastapi import FastAPI

from benchmarks.requests import prepared
from benchmarks.runs import Settings, note, show
from service.base.settings import read_settings
from service.server.app import create_app
from service.server.serve import SWITCH_SECONDS

LENGTHS = (64 << 10, 1 << 20, 8 << 20)
NAMES_BYTES = 17 * 90_000  # of an object of named features, fewer than `features_max`
CHUNK_BYTES = 64 << 10  # that a server hands on at a time, at most
LOOK_SECONDS = 0.0002
_PREDICT, _SCORE = "/v1/models/text/predict", "/v1/models/text/score"
_FEEDBACK, _INFER = "/v1/models/text/feedback", "/v2/models/text/infer"
_ANNIF, _ADMIN = "/v1/projects/text/suggest-batch", "/v1/admin/models/text/aliases/latest/denied"
_KEY = "the key of a benchmark"


class Hostile(NamedTuple):
    """A body: what it is, where it goes, what is repeated in it, and what stands around that."""

    name: str
    path: str
    head: bytes
    item: bytes
    tail: bytes
    media: bytes = b"application/json"

    def body(self, n_bytes: int) -> bytes:
        n = (n_bytes - len(self.head) - len(self.tail)) // (len(self.item) + 1)
        return self.head + b",".join([self.item] * max(n, 1)) + self.tail


def _bodies() -> Iterator[Hostile]:
    instances = b'{"instances":['
    for path, what in ((_PREDICT, "predict"), (_SCORE, "score")):
        yield Hostile(f"{what}: numbers as instances", path, instances, b"1", b"]}")
        yield Hostile(f"{what}: empty instances", path, instances, b"{}", b"]}")
        labels = b'{"text":"a","labels":['
        yield Hostile(f"{what}: numbers as labels", path, instances + labels, b"1", b"]}]}")
    text = instances + b'{"text":"a"}],"allow_labels":['
    yield Hostile("predict: numbers as allowed labels", _PREDICT, text, b"1", b"]}")
    yield Hostile("predict: names as allowed labels", _PREDICT, text, b'"a"', b"]}")
    one = instances + b'{"indices":[1],"values":['
    yield Hostile("predict: lists as values", _PREDICT, one, b"[]", b"]}]}")
    yield Hostile("predict: too many values", _PREDICT, one, b"0.5", b"]}]}")
    row = b'{"indices":[' + b",".join([b"3"] * 90) + b'],"values":[' + b",".join([b"0.5"] * 90) + b"]}"
    yield Hostile("predict: sparse rows, all right", _PREDICT, instances, row, b"]}")
    yield Hostile("predict: sparse rows, and a field", _PREDICT, instances, row, b'],"more":1}')
    named = instances + b'{"features":{'
    yield Hostile("predict: one name again and again", _PREDICT, named, b'"a":1', b"}}]}")
    yield Hostile("predict: a text", _PREDICT, instances + b'{"text":"', b"word", b'"}]}')
    yield Hostile("predict: lists in lists", _PREDICT, b'{"instances":' + b"[" * 900, b"1", b"]" * 900 + b"}")
    inputs = b'{"inputs":['
    yield Hostile("tensors: numbers as tensors", _INFER, inputs, b"1", b"]}")
    tensor = b'{"name":"text","shape":[1],"datatype":"BYTES","data":['
    yield Hostile("tensors: lists as data", _INFER, inputs + tensor, b"[]", b"]}]}")
    yield Hostile("tensors: texts", _INFER, inputs + tensor, b'"a"', b"]}]}")
    yield Hostile("tensors: a shape", _INFER, inputs + b'{"shape":[', b"1", b"]}]}")
    events = b'{"events":['
    yield Hostile("feedback: numbers as events", _FEEDBACK, events, b"1", b"]}")
    labels = b'{"event_id":"1","instance":{"text":"a"},"labels":['
    yield Hostile("feedback: numbers as labels", _FEEDBACK, events + labels, b"1", b"]}]}")
    yield Hostile("Annif: numbers as documents", _ANNIF, b'{"documents":[', b"1", b"]}")
    yield Hostile("Annif: documents", _ANNIF, b'{"documents":[', b'{"text":"a"}', b"]}")
    yield Hostile("denied labels: numbers", _ADMIN, b'{"labels":[', b"1", b"]}")
    batch = "/v1/models/text/batch"
    yield Hostile("batch: a line of numbers", batch, b'{"indices":[', b"1", b"]}\n", b"application/x-ndjson")


def fields_of(n_bytes: int) -> bytes:
    """Return an object of as many fields as there is room for."""
    names = (b'"field%07d":1' % i for i in range((n_bytes - 2) // 17))
    return b"{" + b",".join(names) + b"}"


def names_of(n_bytes: int) -> bytes:
    """Return instances of named features, each of nearly as many as the limit allows."""
    each = NAMES_BYTES // 17 * 17
    bodies = [b'{"features":%s}' % fields_of(min(each, left)) for left in range(n_bytes - 40, 40, -each)]
    return b'{"instances":[' + b",".join(bodies) + b"]}"


def run(settings: Settings) -> None:
    """Print the table."""
    store = prepared(settings.out / "requests", settings.against)
    sys.setswitchinterval(SWITCH_SECONDS)
    with tempfile.TemporaryDirectory() as directory:
        show(
            settings,
            f"the least, and the median of the memory, of {settings.repeats}",
            ("", "bytes", "status", "milliseconds that the loop was held", "MB"),
            asyncio.run(_measure(store, Path(directory), settings.repeats)),
        )


async def _measure(store: Path, directory: Path, repeats: int) -> list[tuple[str, ...]]:
    url = f"sqlite:///{directory / 'figures.db'}"
    app = create_app(read_settings(store=store, access_log=False, database_url=url, admin_key=_KEY))
    rows = []
    async with app.router.lifespan_context(app):
        while await _ask(app, "GET", "/readyz", b"", b"") != 200:
            await asyncio.sleep(0.05)
        for n_bytes in LENGTHS:
            bodies = [(each, each.body(n_bytes)) for each in _bodies()]
            for each, body in bodies:
                rows.append(await _row(app, each, body, repeats))
            for path in (_PREDICT, _INFER, _ADMIN):
                each = Hostile(f"{path}: fields", path, b"", b"", b"")
                rows.append(await _row(app, each, fields_of(n_bytes), repeats))
            each = Hostile("predict: names, each another", _PREDICT, b"", b"", b"")
            rows.append(await _row(app, each, names_of(n_bytes), repeats))
        for path in ("/livez", "/metrics"):
            rows.append(await _row(app, Hostile(f"GET {path}", path, b"", b"", b""), b"", repeats))
    return rows


async def _row(app: FastAPI, each: Hostile, body: bytes, repeats: int) -> tuple[str, ...]:
    """Send a body; return what it cost. The first time is not counted."""
    note(f"{each.name}, {len(body)} bytes")
    method = ("PUT" if each.path == _ADMIN else "POST") if body else "GET"
    held, taken, status = [], [], 0
    for turn in range(repeats + 1):
        before = _reset_peak()
        looking = asyncio.create_task(_longest_gap())
        await asyncio.sleep(0.01)
        status = await _ask(app, method, each.path, body, each.media)
        await asyncio.sleep(0.01)
        looking.cancel()
        gap = await looking
        if turn:
            held.append(1e3 * gap)
            taken.append((_peak() - before) / 1e6)
    return (each.name, str(len(body)), str(status), f"{min(held):.1f}", f"{median(taken):.0f}")


async def _longest_gap() -> float:
    """Return the longest time for which this task could not go on, once it is cancelled."""
    longest = 0.0
    try:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest


async def _ask(app: FastAPI, method: str, path: str, body: bytes, media: bytes) -> int:
    """Send a request to the app as its server does; return the status."""
    headers = [(b"host", b"here"), (b"content-type", media), (b"content-length", b"%d" % len(body))]
    headers.append((b"authorization", b"Bearer " + _KEY.encode()))
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    starts = range(0, max(len(body), 1), CHUNK_BYTES)
    messages = iter(
        {"type": "http.request", "body": body[at : at + CHUNK_BYTES], "more_body": at != starts[-1]}
        for at in starts
    )
    found: list[int] = []

    async def receive() -> Any:
        message = next(messages, None)
        if message is None:
            await asyncio.sleep(3600)
        return message

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await app(scope, receive, send)
    return found[0]


def _reset_peak() -> int:
    """Begin to look for the most memory; return what the process has now."""
    Path(f"/proc/{os.getpid()}/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
