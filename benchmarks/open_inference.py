"""What the Open Inference Protocol costs beside predict: the same rows and texts, in turns, on one server.

The server's processor time counts, of all threads of its process. A server differs by some percent from one
that is alike, by where things lie in memory: it is started anew several times, and only ratios within a start
are compared.
"""

from benchmarks.requests import SHORT_SECONDS, Asked, kinds_of, prepared, tensor_kinds, turns
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import family, served

TURNS = 24

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
            pids = family(pid)
            asked = {kind.name: Asked(kind, pids, port) for kind in kinds}
            for name, (microseconds, rate) in turns(asked, TURNS).items():
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
    title = (
        f"one worker, one instance a request, {settings.repeats} starts of {TURNS} turns of {SHORT_SECONDS} s"
    )
    columns = ("", "us of the processor", "of predict's", "requests/s, of predict's")
    show(settings, title, columns, rows)
