"""Calls of gRPC beside the same requests over HTTP, of one server, in turns.

The rows and texts are those of `requests`. Clients differ: for HTTP the loop of `client.py`, for
gRPC its own library, which takes several times as much of the processor. So the server's processor
time for a request is there too, and that of a bare server of gRPC, which returns each message.
"""

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from statistics import median
from typing import Any, NamedTuple

import grpc
import orjson
import uvloop

from benchmarks.client import closed_loop
from benchmarks.requests import (
    SECONDS,
    THIS_CHECKOUT,
    kinds_of,
    tensor_kinds,
    trained_stores,
)
from benchmarks.runs import Settings, show, spread
from benchmarks.server import cpu_nanoseconds, family, free_port, served
from xylem.extras.grpc.messages import SERVICE, message_class

CONNECTIONS = 4
TURNS = 6


BARE = "bare gRPC echo"
SERVERS = ("HTTP", "gRPC", BARE)


class Load(NamedTuple):
    """The processes of a server, and what asks it and returns answered requests a second."""

    pids: list[int]
    loop: Callable[[], float]


class Pair(NamedTuple):
    """The same requests over HTTP and as calls of gRPC."""

    name: str
    requests: list[bytes]
    messages: list[bytes]


def run(settings: Settings) -> None:
    _, store = trained_stores(settings)[THIS_CHECKOUT]
    by_name = {kind.name: kind.requests for kind in kinds_of(store)}
    tensors = {kind.name: kind.requests for kind in tensor_kinds(by_name)}
    pairs = [
        Pair(name, tensors[name], [message_of(request) for request in tensors[name]])
        for name in ("sparse, as binary tensors", "text, as a tensor in JSON")
    ]
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(settings.repeats):
        grpc_port = free_port()
        variables = {"XYLEM_GRPC_PORT": str(grpc_port)}
        with (
            served(store, 1, own_database=True, variables=variables) as (pid, _, port),
            _echo() as (echo_pid, echo_port),
        ):
            for pair in pairs:
                loads = {
                    "HTTP": Load(family(pid), partial(closed_loop, port, pair.requests, SECONDS)),
                    "gRPC": Load(family(pid), partial(call_loop, grpc_port, pair.messages)),
                    BARE: Load([echo_pid], partial(call_loop, echo_port, pair.messages)),
                }
                for name, turn in _turns(loads).items():
                    figures.setdefault((pair.name, name), []).append(turn)
    rows = [_row(pair.name, figures) for pair in pairs]
    columns = (
        "",
        *(f"{name}: {what}" for name in SERVERS for what in ("requests/s", "CPU, us")),
        "gRPC/HTTP, requests/s",
        "HTTP/gRPC, CPU",
    )
    title = f"one worker, one instance a request, {CONNECTIONS} connections in a closed loop"
    show(settings, f"{title}, {settings.repeats} starts", columns, rows)


def _row(name: str, figures: dict[tuple[str, str], list[tuple[float, float]]]) -> tuple[str, ...]:
    http, calls = figures[name, "HTTP"], figures[name, "gRPC"]
    cells = [
        spread([turn[which] for turn in figures[name, server]], 0)
        for server in SERVERS
        for which in (0, 1)
    ]
    rates = [b[0] / a[0] for a, b in zip(http, calls, strict=True)]
    speeds = [a[1] / b[1] for a, b in zip(http, calls, strict=True)]
    return (name, *cells, spread(rates, 2), spread(speeds, 2))


def _turns(loads: dict[str, Load]) -> dict[str, tuple[float, float]]:
    """Return requests a second, and the server's microseconds for each: medians of turns."""
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in loads}
    for turn in range(TURNS + 1):
        for name, (pids, loop) in loads.items():
            began = sum(map(cpu_nanoseconds, pids))
            rate = loop()
            used = sum(map(cpu_nanoseconds, pids)) - began
            if turn:  # the first one warms up
                turns[name].append((rate, used / (rate * SECONDS) / 1e3))
    return {
        name: (median(rate for rate, _ in each), median(used for _, used in each))
        for name, each in turns.items()
    }


def call_loop(port: int, messages: list[bytes], seconds: float = SECONDS) -> float:
    """Return answered calls a second of CONNECTIONS clients, each in a thread and a closed loop."""
    options = (("grpc.use_local_subchannel_pool", 1),)  # else all would share one connection
    counts = [0] * CONNECTIONS
    begin = threading.Barrier(CONNECTIONS)

    def ask(client: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            infer: Any = channel.unary_unary(f"/{SERVICE}/ModelInfer")
            infer(messages[0])  # the connection is there then
            begin.wait()
            deadline = time.perf_counter() + seconds
            for message in islice(cycle(messages), client, None):
                if time.perf_counter() >= deadline:
                    break
                infer(message)
                counts[client] += 1

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def message_of(request: bytes) -> bytes:
    """Return the call of a request over HTTP: with raw contents for binary tensors, else typed."""
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"inference-header-content-length: (\d+)", head)
    n_json = int(length[1]) if length else len(body)
    call = message_class("ModelInferRequest")(model_name="text")
    for tensor in orjson.loads(body[:n_json])["inputs"]:
        names = {name: tensor[name] for name in ("name", "shape", "datatype")}
        if length:
            end = n_json + tensor["parameters"]["binary_data_size"]
            call.inputs.add(**names)
            call.raw_input_contents.append(body[n_json:end])
            n_json = end
        else:
            texts = [text.encode() for text in tensor["data"]]
            call.inputs.add(**names, contents={"bytes_contents": texts})
    return bytes(call.SerializeToString())


@contextmanager
def _echo() -> Iterator[tuple[int, int]]:
    """Serve the bare echo; yield its process and its port."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "benchmarks.grpc_calls", str(port)]) as process:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(60)
            yield process.pid, port
        finally:
            process.kill()


async def _serve_echo(port: int) -> None:
    """Return each message, as gRPC's library does by itself."""

    async def echo(message: bytes, _: object) -> bytes:
        return message

    server = grpc.aio.server()
    handlers = {"ModelInfer": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve_echo(int(sys.argv[1])))
