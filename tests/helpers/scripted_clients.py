"""Clients of servers that answer by scripts, and pieces of chunked answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import xylem
from tests.helpers.scripted_server import Script, ScriptedServer

QUICK = xylem.Retries(times=3, first_seconds=0.001, retry_after_seconds_max=0.01, seed=1)


@contextmanager
def scripted(*scripts: Script, **options: Any) -> Iterator[tuple[ScriptedServer, xylem.Client]]:
    """Run a server with these scripts; yield it and a client of it."""
    chosen = {"retries": QUICK, **options}
    with ScriptedServer(scripts) as server, xylem.Client(server.url, **chosen) as client:
        yield server, client


def chunk(data: bytes) -> bytes:
    """Return a chunk of an answer with chunked transfer encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)
