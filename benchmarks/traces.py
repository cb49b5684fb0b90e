"""What traces cost a server: the processor's time for a request with traces off, on, and on at 1%, in turns.

A process of its own takes the spans and drops them. The server's time is that of all threads of its process
and of those that it has started, from one turn to the next: spans that are sent later count, too. Two servers
that are alike differ by some percent, by where things lie in memory: they are started anew several times.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from benchmarks.client import closed_loop, post
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import cpu_nanoseconds, family, served
from model_store.store import Store
from service.workflows.train import TrainRequest, train_and_publish

SECONDS = 0.12
"""Of a turn of one server: short, so that what else the machine does falls on all of them alike."""

TURNS = 30
WARM_UP = 4
SEND_SECONDS = 6
"""So long after the last turn the last spans have been sent."""

ROWS = 200

_RATIO = {"XYLEM_TRACES": "true", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
SERVERS = {
    "off": {"XYLEM_TRACES": "false"},
    "on, nothing sampled": {**_RATIO, "OTEL_TRACES_SAMPLER_ARG": "0"},
    "on, 1% sampled": {**_RATIO, "OTEL_TRACES_SAMPLER_ARG": "0.01"},
}


def run(settings: Settings) -> None:
    """Print the table."""
    store, requests = prepared(settings.out / "traces")
    launches = []
    for launch in range(settings.repeats):
        note(f"servers started {launch + 1} of {settings.repeats}")
        launches.append(_measure(store, requests))
    rows = []
    for name in SERVERS:
        microseconds = [launch[name].nanoseconds / launch[name].answered / 1e3 for launch in launches]
        more = [_more(launch[name], launch["off"]) for launch in launches]
        rates = [100 * (1 - launch[name].answered / launch["off"].answered) for launch in launches]
        n = sum(launch[name].answered for launch in launches)
        rows.append((name, f"{n:,.0f}", *(spread(values, 1) for values in (microseconds, more, rates))))
    columns = ("traces", "requests", "processor, us a request", "more than off, %", "fewer requests/s, %")
    title = f"a server's processor time for a request, {settings.repeats} times {TURNS} turns of {SECONDS} s"
    show(settings, title, columns, rows)


class _Used(NamedTuple):
    """The nanoseconds of the processor that a server used, and how many requests it answered."""

    nanoseconds: int
    answered: float


def _more(one: _Used, other: _Used) -> float:
    """Return how much more a request cost than with the other server, in percent."""
    return 100 * (one.nanoseconds / one.answered / (other.nanoseconds / other.answered) - 1)


def _measure(store: Path, requests: list[bytes]) -> dict[str, _Used]:
    """Return what each server used in all its turns, and between them."""
    with ExitStack() as stack:
        url = stack.enter_context(span_receiver())
        servers = {}
        for name, variables in SERVERS.items():
            given = {**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": url, "NO_PROXY": "127.0.0.1"}
            pid, _, port = stack.enter_context(served(store, 1, own_database=True, variables=given))
            servers[name] = (family(pid), port)
        answered = dict.fromkeys(servers, 0.0)
        began = dict.fromkeys(servers, 0)
        for turn in range(TURNS + WARM_UP):
            first = turn % len(servers)
            for name in [*servers, *servers][first : first + len(servers)]:
                pids, port = servers[name]
                n = SECONDS * closed_loop(port, requests, SECONDS)
                if turn >= WARM_UP:
                    answered[name] += n
                elif turn == WARM_UP - 1:
                    began[name] = sum(map(cpu_nanoseconds, pids))
        time.sleep(SEND_SECONDS)
        return {
            name: _Used(sum(map(cpu_nanoseconds, servers[name][0])) - began[name], answered[name])
            for name in servers
        }


def prepared(work: Path) -> tuple[Path, list[bytes]]:
    """Return a store with a tiny model, and requests for it."""
    store, data = work / "store", work / "rows.txt"
    if not store.exists():
        work.mkdir(parents=True, exist_ok=True)
        lines = [f"{i % 3} {i % 7}:1 {7 + i % 5}:0.5\n" for i in range(ROWS)]
        data.write_text(f"{ROWS} 13 3\n" + "".join(lines))
        train_and_publish(Store(store), "tiny", TrainRequest("label-tree", data))
    return store, [post("/v1/models/tiny/predict", row) for row in rows_of(7)]


def rows_of(n: int) -> list[bytes]:
    """Return n bodies for the tiny model."""
    rows = ((i % 7, 7 + i % 5) for i in range(n))
    return [b'{"instances":[{"indices":[%d,%d],"values":[1,0.5]}]}' % row for row in rows]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def span_receiver() -> Iterator[str]:
    """Run what takes spans and drops them, in a process of its own, which prints its port; yield its URL."""
    command = [sys.executable, "-m", "benchmarks.traces"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
