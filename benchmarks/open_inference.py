"""What the Open Inference Protocol costs beside predict: the same rows and texts, in turns, on one server.

The server's processor time counts, of all threads of its process. A server differs by some percent from one
that is alike, by where things lie in memory: it is started anew several times, and only ratios within a start
are compared.
"""

from __future__ import annotations

from statistics import median

from benchmarks.client import closed_loop
from benchmarks.requests import Kind, kinds_of, prepared, tensor_kinds
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import cpu_nanoseconds, family, served

SECONDS = 0.12
"""Of a turn of one kind: short, so that what else the machine does falls on all of them alike."""

TURNS = 24
WARM_UP = 4

BESIDE = {
    "sparse, as tensors in JSON": "sparse",
    "sparse, as binary tensors": "sparse",
    "text, as a tensor in JSON": "text, 300 characters",
}
"""Each kind, and that of predict that says the same."""


def run(settings: Settings) -> None:
    """Print the table."""
    store = prepared(settings.out / "requests", None)
    ours = {kind.name: kind for kind in kinds_of(store)}
    tensors = tensor_kinds({name: kind.requests for name, kind in ours.items()})
    kinds = [*(ours[name] for name in dict.fromkeys(BESIDE.values())), *tensors]
    times: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    rates: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    for start in range(settings.repeats):
        note(f"server started {start + 1} of {settings.repeats}")
        with served(store, 1, own_database=True) as (pid, _, port):
            for name, (microseconds, rate) in _turns(kinds, family(pid), port).items():
                times[name].append(microseconds)
                rates[name].append(rate)
    rows = []
    for kind in kinds:
        ratios = [spread(times[kind.name], 1)]
        beside = BESIDE.get(kind.name)
        if beside is not None:
            ratios += [
                spread([a / b for a, b in zip(times[kind.name], times[beside], strict=True)], 2),
                spread([a / b for a, b in zip(rates[kind.name], rates[beside], strict=True)], 2),
            ]
        rows.append((kind.name, *ratios, *[""] * (3 - len(ratios))))
    title = f"one worker, one instance a request, {settings.repeats} starts of {TURNS} turns of {SECONDS} s"
    columns = ("", "us of the processor", "of predict's", "requests/s, of predict's")
    show(settings, title, columns, rows)


def _turns(kinds: list[Kind], pids: list[int], port: int) -> dict[str, tuple[float, float]]:
    """Return the processor's microseconds for a request of each kind, and requests a second: medians."""
    used: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    rates: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    for turn in range(TURNS + WARM_UP):
        first = turn % len(kinds)
        for kind in [*kinds, *kinds][first : first + len(kinds)]:
            began = sum(map(cpu_nanoseconds, pids))
            rate = closed_loop(port, kind.requests, SECONDS)
            if turn >= WARM_UP:
                used[kind.name].append((sum(map(cpu_nanoseconds, pids)) - began) / (rate * SECONDS) / 1e3)
                rates[kind.name].append(rate)
    return {name: (median(used[name]), median(rates[name])) for name in used}
