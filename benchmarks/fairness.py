"""What one key's flood does to another key: p99 of a quiet key beside one at its limit, and beside
one that sends twice its limit.
"""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import orjson

from benchmarks.client import ANSWERED, closed_loop, open_loop, overload, post
from benchmarks.data import Prepared
from benchmarks.ours import instances_of, store_of, test_rows
from benchmarks.runs import Settings, note, show, spread, trained
from benchmarks.server import served
from benchmarks.systems import OURS
from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem.base.db.engine import Database, default_url

SECONDS = 5.0
"""How long each load is kept up, for each of the repeats."""

SHARE = 0.25
"""Of what the server answers in a closed loop: the limit of each key."""

LIMITED = ANSWERED | {b"429"}
BODIES = 512


def run(settings: Settings) -> None:
    for data in settings.data:
        trained(OURS, data, settings.threads)
        _flood(settings, data)


def _flood(settings: Settings, data: Prepared) -> None:
    store = store_of(data.work, 1)
    bodies = [
        orjson.dumps({"instances": [instance]})
        for instance in instances_of(test_rows(data.work))[:BODIES]
    ]
    unlimited = _requests(bodies, _key(store, None))
    with served(store, 1, variables={"XYLEM_OPEN_SCOPES": "none"}) as (_, _, port):
        rate = closed_loop(port, unlimited, SECONDS)
    limit = round(SHARE * rate)
    flood, quiet = (_requests(bodies, _key(store, limit)) for _ in range(2))
    ratios = []
    p99s: dict[float, list[float]] = {1.0: [], 2.0: []}
    refused: list[float] = []
    with served(store, 1, variables={"XYLEM_OPEN_SCOPES": "none"}) as (_, _, port):
        closed_loop(port, quiet, 1.0, statuses=LIMITED)
        for _ in range(settings.repeats):
            for factor, found in p99s.items():
                with _flooding(port, flood, factor * limit) as answers:
                    found.append(open_loop(port, quiet, limit / 2, SECONDS)[1])
                if factor > 1:
                    due, answered = answers()
                    refused.append(100 * (1 - answered / due))
            ratios.append(p99s[2.0][-1] / p99s[1.0][-1])
    note(f"{data.name}: {rate:,.0f} requests/s in a closed loop, limit {limit:,}")
    rows = [
        (f"the other sends {factor:g} x its limit", spread([1e3 * each for each in p99], 2), "")
        for factor, p99 in p99s.items()
    ]
    rows.append(("twice / once", "", spread(ratios, 2)))
    rows.append(("refused of the flood, %", "", spread(refused, 0)))
    title = f"{data.name}: a key that sends half of its limit of {limit:,} requests/s"
    show(settings, title, ("", "p99, ms", ""), rows)


def _key(store: Path, limit: float | None) -> str:
    """Return the header line of a new key."""
    with contextlib.closing(Database(default_url(store))) as database:
        keys = AccessKeys(database)
        new_key = keys.create("bench", [AccessScope.PREDICT], requests_per_second=limit)
    return f"authorization: Bearer {new_key.text}\r\n"


def _requests(bodies: Sequence[bytes], key: str) -> list[bytes]:
    return [post("/v1/models/model/predict", body, more=key) for body in bodies]


@contextlib.contextmanager
def _flooding(
    port: int, requests: Sequence[bytes], rate: float
) -> Iterator[Callable[[], tuple[int, int]]]:
    """Send requests from another process; yield a function that tells how many were due and
    answered 200.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send, args=(theirs, port, requests, rate))
    process.start()
    try:
        ours.recv()
        yield ours.recv
    finally:
        process.join()


def _send(connection: Connection, port: int, requests: Sequence[bytes], rate: float) -> None:
    connection.send("begun")
    load = overload(port, requests, rate, SECONDS + 1, 16, LIMITED)
    connection.send((load.due, load.answered))
