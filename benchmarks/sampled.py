"""What a sampled request costs beside the others of its server: the event loop's thread, and other threads.

The client chooses what is sampled, by the flag in `traceparent`: so all is measured on one server, and what
two servers differ by, which is more, is left out.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.client import closed_loop, post
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import family, served, thread_nanoseconds
from benchmarks.span_receiver import span_receiver
from benchmarks.traces import prepared, rows_of

SECONDS = 0.25
TURNS = 15
WARM_UP = 2
SETTLE_SECONDS = 0.01
"""After a turn its last requests are noted."""

REQUESTS = 700
EVERY = (33, 10, 1)
"""One of so many requests is sampled."""

_VARIABLES = {
    "XYLEM_TRACES": "true",
    "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    "NO_PROXY": "127.0.0.1",
}


def run(settings: Settings) -> None:
    """Print the table."""
    store, _ = prepared(settings.out / "traces")
    requests = {every: _requests(every) for every in (0, *EVERY)}
    loop: dict[int, list[float]] = {every: [] for every in requests}
    others: dict[int, list[float]] = {every: [] for every in requests}
    for start in range(settings.repeats):
        note(f"server started {start + 1} of {settings.repeats}")
        for every, (of_loop, of_others) in _measure(store, requests).items():
            loop[every].append(of_loop)
            others[every].append(of_others)
    rows = [("a request that is not sampled", spread(loop[0], 1), spread(others[0], 1))]
    for every in EVERY:
        share = sum(_is_sampled(i, every) for i in range(REQUESTS)) / REQUESTS
        more = (
            [(one - none) / share for one, none in zip(found[every], found[0], strict=True)]
            for found in (loop, others)
        )
        rows.append((f"more for each sampled one, {100 * share:.0f}% sampled", *(spread(x, 1) for x in more)))
    title = f"microseconds of the processor, {settings.repeats} starts of {TURNS} turns of {SECONDS} s"
    show(settings, title, ("", "the event loop's thread", "other threads"), rows)


def _measure(store: Path, requests: dict[int, list[bytes]]) -> dict[int, tuple[float, float]]:
    """Return the microseconds for a request of the loop's thread and of the others, by what is sampled."""
    used = {every: [0, 0] for every in requests}
    answered = dict.fromkeys(requests, 0.0)
    with span_receiver() as url:
        variables = {**_VARIABLES, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        with served(store, 1, own_database=True, variables=variables) as (pid, _, port):
            pids, loop = family(pid), None
            for turn in range(TURNS + WARM_UP):
                for every, sent in requests.items():
                    began = _threads(pids)
                    n = SECONDS * closed_loop(port, sent, SECONDS)
                    time.sleep(SETTLE_SECONDS)
                    more = {task: at - began.get(task, 0) for task, at in _threads(pids).items()}
                    loop = loop or max(more, key=lambda task: more[task])
                    if turn >= WARM_UP:
                        used[every][0] += more[loop]
                        used[every][1] += sum(more.values()) - more[loop]
                        answered[every] += n
    return {
        every: (1e-3 * of_loop / answered[every], 1e-3 * of_others / answered[every])
        for every, (of_loop, of_others) in used.items()
    }


def _threads(pids: list[int]) -> dict[str, int]:
    """Return the nanoseconds that each thread of the processes has used."""
    return {task: used for pid in pids for task, used in thread_nanoseconds(pid).items()}


def _requests(every: int) -> list[bytes]:
    """Return requests of which one of so many is sampled; 0: none is."""
    bodies = rows_of(REQUESTS)
    return [
        post(
            "/v1/models/tiny/predict",
            body,
            more=f"traceparent: 00-{i + 1:032x}-{i + 1:016x}-{_is_sampled(i, every):02d}\r\n",
        )
        for i, body in enumerate(bodies)
    ]


def _is_sampled(i: int, every: int) -> bool:
    return every > 0 and i % every == 0
