"""One worker of `xylem serve` against a bare ASGI echo of the same
bodies, and its batches against no HTTP.

Both servers are uvicorn with uvloop and httptools, one process each; the client is the same.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean, median

import orjson

from benchmarks.client import closed_loop, open_loop, post, stream
from benchmarks.data import Prepared
from benchmarks.ours import instances_of, store_of, test_rows
from benchmarks.runs import Settings, note, show, spread, trained
from benchmarks.server import READY_SECONDS_MAX, cpu_seconds, free_port, served
from benchmarks.systems import OURS
from xylem.base.rows import SparseRows
from xylem.engine.predictor import PredictOptions, Predictor
from xylem_store.store import Store

TOP_R, BEAM_WIDTH = 10, 10
SECONDS = 3.0
"""How long each load is kept up, for each of the repeats."""

TURNS = 6
"""Into so many turns is the closed loop cut, the servers taking them one after the other: whatever
else the machine does in a repeat then slows both.
"""

BODIES = 512
BATCH_ROWS = 20_000


def run(settings: Settings) -> None:
    for data in settings.data:
        trained(OURS, data, settings.threads)
        rows = test_rows(data.work)
        instances = instances_of(rows)
        with served(store_of(data.work, 1), 1) as (pid, _, port):
            note(f"{data.name}: single requests")
            _single(settings, data, (pid, port), instances)
            note(f"{data.name}: batches")
            _batch(settings, data, (pid, port), instances, rows)


def _single(
    settings: Settings,
    data: Prepared,
    ours: tuple[int, int],
    instances: list[dict[str, list[float]]],
) -> None:
    """Print requests a second, each of one sparse instance, what they
    cost, and latencies at half of them.

    `ours` is the process and the port of Xylem. Where others use the machine too, the seconds of
    processor that a request costs say more than requests a second.
    """
    options = {"top_r": TOP_R, "beam_width": BEAM_WIDTH}
    bodies = [orjson.dumps({"instances": [instance], **options}) for instance in instances[:BODIES]]
    requests = [post("/v1/models/model/predict", body) for body in bodies]
    with _echo() as bare:
        servers = {"bare ASGI echo": bare, "xylem serve": ours}
        for _, port in servers.values():
            closed_loop(port, requests, 0.5)
        found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in servers}
        for _ in range(settings.repeats):
            turns = [
                {name: _turn(*server, requests) for name, server in servers.items()}
                for _ in range(TURNS)
            ]
            for name, (_, port) in servers.items():
                rate = mean(turn[name][0] for turn in turns)
                cost = sum(turn[name][1] for turn in turns) / (rate * SECONDS)
                found[name].append((rate, cost, *open_loop(port, requests, rate / 2, SECONDS)))
    rows = []
    bare_rates, bare_costs, _, _ = zip(*found["bare ASGI echo"], strict=True)
    for name, runs in found.items():
        rates, costs, p50, p99 = zip(*runs, strict=True)
        share = [100 * rate / of for rate, of in zip(rates, bare_rates, strict=True)]
        cost_share = [100 * of / cost for cost, of in zip(costs, bare_costs, strict=True)]
        cells = [spread(rates, 0), spread(share, 0), spread([1e6 * cost for cost in costs], 0)]
        milliseconds = [spread([1e3 * value for value in values], 2) for values in (p50, p99)]
        rows.append((name, *cells, spread(cost_share, 0), *milliseconds))
    n_bytes = mean(map(len, bodies))
    title = (
        f"{data.name}: one worker, one sparse instance a request, bodies of {n_bytes:,.0f} bytes"
    )
    columns = (
        "",
        "requests/s",
        "% of bare",
        "CPU, us",
        "bare/own, %",
        "p50 at half the load, ms",
        "p99, ms",
    )
    show(settings, title, columns, rows)


def _turn(pid: int, port: int, requests: list[bytes]) -> tuple[float, float]:
    """Return requests a second of one turn of a closed loop, and the
    processor's seconds of the server.
    """
    before = cpu_seconds(pid)
    rate = closed_loop(port, requests, SECONDS / TURNS)
    return rate, cpu_seconds(pid) - before


def _batch(
    settings: Settings,
    data: Prepared,
    ours: tuple[int, int],
    instances: list[dict[str, list[float]]],
    rows: SparseRows,
) -> None:
    """Print rows a second, and their cost, of the batch endpoint and of predict in this process."""
    pid, port = ours
    copies = -(-BATCH_ROWS // rows.n_rows)
    lines = b"".join(orjson.dumps(instance) + b"\n" for instance in instances) * copies
    n_rows = copies * rows.n_rows
    path = f"/v1/models/model/batch?top_r={TOP_R}&beam_width={BEAM_WIDTH}"
    predictor = Predictor(Store(store_of(data.work, 1)).open("model"))
    options = PredictOptions(TOP_R, BEAM_WIDTH)
    predictor.predict(rows, options, 1)
    stream(port, path, lines[: lines.index(b"\n") + 1])
    speeds: list[list[float]] = [[], []]
    costs: list[list[float]] = [[], []]
    for _ in range(settings.repeats):
        start, used = time.perf_counter(), time.process_time()
        predictor.predict(rows, options, 1)
        speeds[0].append(rows.n_rows / (time.perf_counter() - start))
        costs[0].append(1e6 * (time.process_time() - used) / rows.n_rows)
        used = cpu_seconds(pid)
        answer, took = stream(port, path, lines)
        costs[1].append(1e6 * (cpu_seconds(pid) - used) / n_rows)
        n_found = answer.count(b'"labels":[')
        if n_found != n_rows:
            raise SystemExit(f"expected {n_rows} predictions, found {n_found}: {answer[:500]!r}")
        speeds[1].append(n_rows / took)
    share = 100 * median(speeds[1]) / median(speeds[0])
    shown = [
        ("predict, in process, 1 thread", spread(speeds[0], 0), "100", spread(costs[0], 1)),
        (
            "batch endpoint, sparse rows as NDJSON, 1 worker",
            spread(speeds[1], 0),
            f"{share:.0f}",
            spread(costs[1], 1),
        ),
    ]
    columns = ("", "rows a second", "% of in process", "CPU, us a row")
    show(settings, f"{data.name}: batches", columns, shown)


@contextmanager
def _echo() -> Iterator[tuple[int, int]]:
    """Serve the bare echo; yield its process and its port."""
    port = free_port()
    options = ["--http", "httptools", "--loop", "uvloop", "--lifespan", "off", "--ws", "none"]
    quiet = [
        "--no-access-log",
        "--log-level",
        "warning",
        "--no-proxy-headers",
        "--no-server-header",
    ]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "benchmarks.echo:app",
        "--port",
        str(port),
        *options,
        *quiet,
    ]
    with subprocess.Popen(command) as process:
        try:
            deadline = time.monotonic() + READY_SECONDS_MAX
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit("the echo did not become ready") from None
                    time.sleep(0.01)
            yield process.pid, port
        finally:
            process.terminate()
            process.wait()
