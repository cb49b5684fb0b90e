"""Requests of every kind that predict meets, of this checkout and of
another one (`--against`), in turns.

The models are of the descriptions in examples/debtags, which every checkout has: one of texts, one
of named features.
"""

import gzip
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import orjson

from benchmarks.client import ANSWERED, closed_loop, one_by_one, overload, post, stream
from benchmarks.ours import instances_of
from benchmarks.runs import Settings, note, show, spread
from benchmarks.server import ROOT, cpu_nanoseconds, family, run_cli, served
from xylem.engine.features.registry import load_featurizer
from xylem_store.store import Store

EXAMPLES = ROOT / "examples" / "debtags"
THIS_CHECKOUT = "this checkout"
SECONDS = 1.0
"""Of a turn of one kind on one server."""

SHORT_SECONDS = 0.12
SHORT_TURNS = 18
WARM_UP = 4
"""Of the processor's times: of a turn, and turns of one start."""

BODIES = 256
COPIES = 40
"""So many times is each body a line of a batch."""

BATCH_TURNS = 5
EVENT_REQUESTS = 4000
CONNECTIONS = 512
FACTORS = (2, 5, 10)
REFUSALS = frozenset({b"422"})
WITH_ID = "x-request-id: bench\r\n"
SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
"""What it is in lower case says its place in a word: kernels leave such a text to Python."""


class Kind(NamedTuple):
    """Requests of one kind."""

    name: str
    requests: list[bytes]
    statuses: frozenset[bytes] = ANSWERED


def run(settings: Settings) -> None:
    checkouts = trained_stores(settings)
    kinds = kinds_of(checkouts[THIS_CHECKOUT][1])
    kinds += tensor_kinds({kind.name: kind.requests for kind in kinds})
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(served(of, 1, checkout, own_database=True))
            for name, (checkout, of) in checkouts.items()
        }
        ports = {name: port for name, (_, _, port) in servers.items()}
        _speeds(settings, kinds, ports)
        for name, port in ports.items():
            _overload(settings, name, kinds, port)
    _batches(settings, kinds, checkouts)
    if settings.against is not None:
        _processor_times(settings, kinds, checkouts)


def trained_stores(settings: Settings) -> dict[str, tuple[Path, Path]]:
    """Return this checkout and the one to compare with by name: its directory, and its store.

    Each checkout trains its own store, because another one may not be able to read it.
    """
    work = settings.out / "requests"
    checkouts = {THIS_CHECKOUT: (ROOT, trained(work / "this", ROOT))}
    if (other := settings.against) is not None:
        checkouts["the other one"] = (other, trained(work / f"other-{other.name}", other))
    return checkouts


def trained(work: Path, checkout: Path) -> Path:
    """Return a store with a model of texts and one of named features, which a checkout has trained.

    work  a directory for this checkout; what it has trained there is used again
    """
    store = work / "store"
    if not (work / "ready").exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        named = work / "named.jsonl"
        with named.open("w") as out:
            for text, labels in described("train"):
                out.write(json.dumps({"features": _words(text), "labels": labels}) + "\n")
        for name, data in (("text", EXAMPLES / "train.jsonl.gz"), ("named", named)):
            note(f"trains {name}")
            options = ["label-tree", "--data", str(data), "--model", name, "--store", str(store)]
            run_cli(checkout, "train", *options)
        (work / "ready").touch()
    return store


def described(part: str) -> list[tuple[str, list[str]]]:
    with gzip.open(EXAMPLES / f"{part}.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    return [(row["text"], row["labels"]) for row in rows]


def _words(text: str) -> dict[str, float]:
    return {word: float(n) for word, n in Counter(text.lower().split()).items()}


def kinds_of(store: Path) -> list[Kind]:
    """Return requests of each kind that predict meets."""
    texts = [text for text, _ in described("test") if len(text) >= 300][:BODIES]
    short, long = ([{"text": text[:n]} for text in texts] for n in (60, 300))
    greek = [{"text": f"{instance['text']} {SIGMA}"} for instance in long]
    named = [{"features": _words(text[:300])} for text in texts]
    model = Store(store).open("text")
    featurizer = load_featurizer(model.manifest.features, model.arrays, model.manifest.n_features)
    rows = featurizer.transform_texts([text[:300] for text in texts])
    sparse = instances_of(rows)
    allowed = [label for _, labels in described("test")[:20] for label in labels][:20]
    found = []
    for name, instances, more in (
        ("sparse", sparse, {}),
        ("text, 60 characters", short, {}),
        ("text, 300 characters", long, {}),
        ("text, 300 characters, the last one for Python", greek, {}),
        ("named features", named, {}),
        ("text, allow_labels", long, {"allow_labels": sorted(set(allowed))}),
        ("text, explain", long, {"explain": True}),
        ("refused: an unknown field", long, {"unknown": 1}),
    ):
        path = f"/v1/models/{'named' if name.startswith('named') else 'text'}/predict"
        bodies = [orjson.dumps({"instances": [instance], **more}) for instance in instances]
        statuses = REFUSALS if name.startswith("refused") else ANSWERED
        for ending, headers in (("", ""), (", X-Request-ID", WITH_ID)):
            requests = [post(path, body, more=headers) for body in bodies]
            found.append(Kind(name + ending, requests, statuses))
    return found


def tensor_kinds(requests: dict[str, list[bytes]]) -> list[Kind]:
    """Return requests for sparse rows and for texts as those of the Open Inference Protocol."""
    path = "/v2/models/text/infer"
    instances = [_instance_of(request) for request in requests["sparse"]]
    texts = [_instance_of(request)["text"] for request in requests["text, 300 characters"]]
    binary = [as_binary(instance) for instance in instances]
    return [
        Kind(
            "sparse, as tensors in JSON", [post(path, as_json(instance)) for instance in instances]
        ),
        Kind(
            "sparse, as binary tensors", [post(path, body, more=header) for body, header in binary]
        ),
        Kind("text, as a tensor in JSON", [post(path, text_as_json(text)) for text in texts]),
    ]


def _speeds(settings: Settings, kinds: list[Kind], ports: dict[str, int]) -> None:
    rows = []
    for kind in kinds:
        note(kind.name)
        rates: dict[str, list[float]] = {name: [] for name in ports}
        waits: dict[str, list[float]] = {name: [] for name in ports}
        for turn in range(settings.repeats + 1):
            for name, port in ports.items():
                rate = closed_loop(port, kind.requests, SECONDS, statuses=kind.statuses)
                wait = one_by_one(port, kind.requests, SECONDS / 2, kind.statuses)
                if turn:  # the first one warms up
                    rates[name].append(rate)
                    waits[name].append(1e3 * wait)
        cells = [
            spread(values[name], digits)
            for name in ports
            for values, digits in ((rates, 0), (waits, 3))
        ]
        ours, *others = (rates[name] for name in ports)
        ratio = [
            f"{median(a / b for a, b in zip(ours, other, strict=True)):.2f}" for other in others
        ]
        rows.append((kind.name, *cells, *ratio))
    columns = ["", *(f"{name}: {what}" for name in ports for what in ("requests/s", "p50, ms"))]
    title = (
        "one worker, one instance a request: 4 connections in a closed loop; p50 on one connection"
    )
    show(settings, title, [*columns, *(["ratio of requests/s"] if len(ports) > 1 else [])], rows)


def _processor_times(
    settings: Settings, kinds: list[Kind], checkouts: dict[str, tuple[Path, Path]]
) -> None:
    """Print the processor's time for a request, and how many a second, in short turns.

    What else runs falls on all alike then. Two servers that are alike differ by some percent for as
    long as they live, by where things lie in memory: they are started anew `--repeats` times.
    """
    used: dict[str, dict[str, list[float]]] = {
        kind.name: {name: [] for name in checkouts} for kind in kinds
    }
    ratios: dict[str, list[tuple[float, float]]] = {kind.name: [] for kind in kinds}
    for start in range(settings.repeats):
        note(f"servers started {start + 1} of {settings.repeats}")
        with ExitStack() as stack:
            servers = {}
            for name, (checkout, store) in checkouts.items():
                pid, _, port = stack.enter_context(served(store, 1, checkout, own_database=True))
                servers[name] = family(pid), port
            for kind in kinds:
                ours, other = turns(
                    {name: Asked(kind, *server) for name, server in servers.items()}, SHORT_TURNS
                ).values()
                for name, (microseconds, _) in zip(servers, (ours, other), strict=True):
                    used[kind.name][name].append(microseconds)
                ratios[kind.name].append((other[0] / ours[0], ours[1] / other[1]))
    rows = [
        (
            kind.name,
            *(spread(used[kind.name][name], 1) for name in checkouts),
            *(spread([each[which] for each in ratios[kind.name]], 2) for which in (0, 1)),
        )
        for kind in kinds
    ]
    says = ("ratio of processor's speed", "ratio of requests/s")
    columns = ["", *(f"{name}: us of the processor" for name in checkouts), *says]
    title = f"a request, {settings.repeats} starts of {SHORT_TURNS} turns of {SHORT_SECONDS} s"
    show(settings, title, columns, rows)


class Asked(NamedTuple):
    """Requests of one kind, and the processes and port of the server that is asked."""

    kind: Kind
    pids: list[int]
    port: int


def turns(asked: Mapping[str, Asked], n_turns: int) -> dict[str, tuple[float, float]]:
    """Return the processor's microseconds for a request, and requests a
    second, of each: medians of turns.
    """
    used: dict[str, list[float]] = {name: [] for name in asked}
    rates: dict[str, list[float]] = {name: [] for name in asked}
    names = list(asked)
    for turn in range(n_turns + WARM_UP):
        first = turn % len(names)
        for name in [*names, *names][first : first + len(names)]:
            kind, pids, port = asked[name]
            began = sum(map(cpu_nanoseconds, pids))
            rate = closed_loop(port, kind.requests, SHORT_SECONDS, statuses=kind.statuses)
            if turn >= WARM_UP:
                used[name].append(
                    (sum(map(cpu_nanoseconds, pids)) - began) / (rate * SHORT_SECONDS) / 1e3
                )
                rates[name].append(rate)
    return {name: (median(used[name]), median(rates[name])) for name in asked}


def _batches(
    settings: Settings, kinds: list[Kind], checkouts: dict[str, tuple[Path, Path]]
) -> None:
    """Print rows a second of batches, and events a second of feedback, of servers started anew."""
    requests = {kind.name: kind.requests for kind in kinds}
    sparse = [_instance_of(request) for request in requests["sparse"]]
    texts = [_instance_of(request) for request in requests["text, 300 characters"]]

    def rows_a_second(port: int, instances: list[dict[str, Any]]) -> float:
        lines = b"".join(orjson.dumps(instance) + b"\n" for instance in instances) * COPIES
        answer, took = stream(port, "/v1/models/text/batch", lines)
        if answer.count(b'"labels":[') != len(instances) * COPIES:
            raise SystemExit(f"expected a prediction a line, found {answer[:300]!r}")
        return len(instances) * COPIES / took

    def events_a_second(port: int, size: int) -> float:
        requests = [_feedback(texts, size) for _ in range(EVENT_REQUESTS)]
        return size * closed_loop(port, requests, SECONDS)

    loads: dict[str, Callable[[int], float]] = {
        "batch of sparse lines": lambda port: rows_a_second(port, sparse),
        "batch of texts, 300 characters": lambda port: rows_a_second(port, texts),
        "feedback, 64 events of texts a request": lambda port: events_a_second(port, 64),
        "feedback, one event a request": lambda port: events_a_second(port, 1),
    }
    speeds: dict[str, dict[str, list[float]]] = {
        name: {of: [] for of in checkouts} for name in loads
    }
    for _ in range(settings.repeats):
        with ExitStack() as stack:
            ports = {
                name: stack.enter_context(served(store, 1, checkout, own_database=True))[2]
                for name, (checkout, store) in checkouts.items()
            }
            for name, rate in loads.items():
                for turn in range(BATCH_TURNS + 1):
                    for server, port in ports.items():
                        found = rate(port)
                        if turn:  # the first one warms up
                            speeds[name][server].append(found)
    rows = [_compared(name, of_servers) for name, of_servers in speeds.items()]
    columns = ["", *(f"{server}: rows or events a second" for server in checkouts)]
    title = f"batches and feedback, {settings.repeats} starts of {BATCH_TURNS} turns"
    show(settings, title, [*columns, *(["ratio"] if len(checkouts) > 1 else [])], rows)


def _instance_of(request: bytes) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(request.partition(b"\r\n\r\n")[2])["instances"][0]
    return found


def _compared(name: str, speeds: dict[str, list[float]]) -> tuple[str, ...]:
    ours, *others = speeds.values()
    ratios = [f"{median(a / b for a, b in zip(ours, other, strict=True)):.2f}" for other in others]
    return name, *(spread(values, 0) for values in speeds.values()), *ratios


def _feedback(instances: list[dict[str, Any]], size: int) -> bytes:
    events = [
        {"event_id": uuid4().hex, "instance": instances[i % len(instances)], "labels": []}
        for i in range(size)
    ]
    return post("/v1/models/text/feedback", orjson.dumps({"events": events}))


def _overload(settings: Settings, name: str, kinds: list[Kind], port: int) -> None:
    """Print what becomes of more requests than can be answered;
    the best rate of a closed loop is 1x.
    """
    rows = []
    for kind in kinds:
        if kind.name not in ("sparse", "text, 60 characters"):
            continue
        capacity = max(closed_loop(port, kind.requests, SECONDS, 16) for _ in range(3))
        for factor in FACTORS:
            note(f"{kind.name}: {factor} times as many as can be answered")
            found = overload(port, kind.requests, factor * capacity, 3 * SECONDS, CONNECTIONS)
            goodput = 100 * found.answered / (3 * SECONDS * capacity)
            rows.append(
                (
                    f"{kind.name}, {factor}x of {capacity:,.0f}/s",
                    f"{found.due:,}",
                    f"{found.sent:,}",
                    f"{found.refused:,}",
                    f"{goodput:.0f}",
                    f"{1e3 * found.p99:.0f}",
                )
            )
    columns = ("", "due", "sent", "refused 503", "answered, % of capacity", "p99 of these, ms")
    show(settings, f"{name}: overload, {CONNECTIONS} connections", columns, rows)


_TENSORS = (("indptr", "INT64", "<i8"), ("indices", "INT32", "<i4"), ("values", "FP32", "<f4"))


def text_as_json(text: str) -> bytes:
    """Return the body with a text as a tensor in the JSON."""
    return orjson.dumps(
        {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]}
    )


def as_json(instance: dict[str, Any]) -> bytes:
    """Return the body with the three tensors of a sparse row in the JSON."""
    inputs = [
        {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}
        for (name, datatype, _), data in zip(_TENSORS, _csr(instance), strict=True)
    ]
    return orjson.dumps({"inputs": inputs})


def as_binary(instance: dict[str, Any]) -> tuple[bytes, str]:
    """Return the body with the tensors behind the JSON, answers too,
    and the header's line that says so.
    """
    parts = [
        np.array(data, dtype).tobytes()
        for (_, _, dtype), data in zip(_TENSORS, _csr(instance), strict=True)
    ]
    inputs = [
        {
            "name": name,
            "shape": [len(data)],
            "datatype": datatype,
            "parameters": {"binary_data_size": len(part)},
        }
        for (name, datatype, _), data, part in zip(_TENSORS, _csr(instance), parts, strict=True)
    ]
    head = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    return b"".join([head, *parts]), f"inference-header-content-length: {len(head)}\r\n"


def _csr(instance: dict[str, Any]) -> tuple[list[int], list[int], list[float]]:
    return [0, len(instance["indices"])], instance["indices"], instance["values"]
