"""`xylem feedback`: a file of events to a server, or to a store's database; again, where it was cut off."""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from service.cli.console import print_facts, print_json, progress
from service.cli.database import opened_learning
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference
from service.cli.predict import STDIN, blocks, opened
from service.errors import BadData, BadInput, BadParameter, Unavailable

if TYPE_CHECKING:
    from service.settings import Limits

EVENTS_A_BLOCK = 64
REQUEST_BYTES = 1 << 20
"""Bytes of a request's events, at most, unless one event has more: a server takes some millions."""

TIMEOUT_SECONDS = 60.0
TRIES_MAX = 20
RESULTS = ("applied", "duplicate", "late", "rejected")

Send = Callable[[list[Any]], list[dict[str, Any]]]
"""Sends events, as JSON values, and returns what became of each."""

Events = Annotated[
    str, typer.Option("--data", metavar="FILE", help="Lines of events, also as .gz; - is standard input.")
]
Url = Annotated[
    str | None, typer.Option(metavar="URL", help="A server, as http://127.0.0.1:8080; else the database.")
]


def feedback(
    model: Model, data: Events = STDIN, url: Url = None, store: StoreDir = DEFAULT_STORE, json: Json = False
) -> None:
    """Send true labels, so that thresholds learn: one JSON object a line.

    A line is {"event_id": ..., "labels": [...]} with "instance" or "prediction_id" (docs/feedback.md). Each
    event counts once: a file that was sent in part can be sent again as a whole. Exit status 2 when some were
    rejected.
    """
    from service.api.lines import value_of
    from service.settings import read_settings

    limits = read_settings().limits
    counts: Counter[str] = Counter()
    first_fault = ""
    sender = _to_database(model, store, limits) if url is None else _to_server(model, url)
    with opened(data) as source, progress(json or data == STDIN) as show, sender as send:
        for block in blocks(source, limits.line_bytes_max, EVENTS_A_BLOCK, keep_labels=True):
            values = [value_of(line, limits) for line in block.lines]
            for number, verdict in enumerate(_sent(values, send), block.first):
                counts[verdict["result"]] += 1
                if verdict["result"] == "rejected" and not first_fault:
                    first_fault = f"line {number}: {verdict.get('detail')}"
            show("feedback", source.raw.tell() if source.n_bytes else 0, source.n_bytes)
    facts = {result: counts[result] for result in RESULTS}
    if json:
        print_json(facts)
    else:
        print_facts("", facts)
    if first_fault:
        n = counts["rejected"]
        raise BadData(f"{data}: expected events that can be used, found {n} others, at first {first_fault}")


def _sent(values: list[Any], send: Send) -> list[dict[str, Any]]:
    """Send the lines that have a value; return what became of each line."""
    from service.api.events import refused, verdict_line

    found = [value for value in values if not isinstance(value, BadInput)]
    sent = iter(send(found) if found else ())
    return [
        verdict_line(refused(None, value), {}) if isinstance(value, BadInput) else next(sent)
        for value in values
    ]


@contextmanager
def _to_server(model: str, url: str) -> Iterator[Send]:
    """Yield what sends events to a server, again while it answers 503."""
    import orjson

    host, port, prefix = _address(url)
    name, reference = map(partial(quote, safe=""), parse_reference(model))
    kind = "versions" if reference.isdigit() else "aliases"
    path = f"{prefix}/v1/models/{name}/{kind}/{reference}/feedback"
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    def request(body: bytes) -> list[dict[str, Any]]:
        found = ""
        for _ in range(TRIES_MAX):
            try:
                connection.request("POST", path, body, {"content-type": "application/json"})
                response = connection.getresponse()
                answer = orjson.loads(response.read())
            except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
                connection.close()
                found = str(error) or type(error).__name__
                time.sleep(1.0)
                continue
            fields = answer if isinstance(answer, dict) else {}
            if response.status == http.client.OK and "results" in fields:
                results: list[dict[str, Any]] = fields["results"]
                return results
            found = str(fields.get("detail", "an answer of another kind"))
            if response.status != http.client.SERVICE_UNAVAILABLE:
                raise BadData(f"{url}: expected an answer to feedback, found {response.status}: {found}")
            time.sleep(float(response.headers.get("retry-after") or 1))
        raise Unavailable(f"{url}: expected an answer to feedback, found {found}; send the file again")

    def send(values: list[Any]) -> list[dict[str, Any]]:
        return [verdict for body in _bodies(values) for verdict in request(body)]

    try:
        yield send
    finally:
        connection.close()


def _address(url: str) -> tuple[str, int, str]:
    """Return the host, the port, and what comes before each path. Raises BadParameter."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname:
            return parts.hostname, parts.port or http.client.HTTP_PORT, parts.path.rstrip("/")
    except ValueError:  # a port that is none, half an IPv6 address
        pass
    raise BadParameter(f"--url: expected http://HOST:PORT, found {url!r}")


def _bodies(values: list[Any]) -> Iterator[bytes]:
    """Yield the bodies of requests that have these events, in their order."""
    import orjson

    waiting: list[bytes] = []
    for event in map(orjson.dumps, values):
        if waiting and sum(map(len, waiting)) + len(event) > REQUEST_BYTES:
            yield b'{"events":[%b]}' % b",".join(waiting)
            waiting.clear()
        waiting.append(event)
    yield b'{"events":[%b]}' % b",".join(waiting)


@contextmanager
def _to_database(model: str, store: Path, limits: Limits) -> Iterator[Send]:
    """Yield what counts events in the database of the store; servers that share it follow."""
    from model_store.store import Store
    from service.api.events import Checked, Verdict, check_event, columns_of, to_events, verdict_line
    from service.api.opening import serve_model

    name, reference = parse_reference(model)
    opened_model = Store(store).open(name, reference)
    with opened_learning(store, create=True) as learning:
        assert learning is not None
        served = serve_model(opened_model, learning)

        def check(value: Any) -> Checked | Verdict:
            checked = check_event(value, name, learning.tokens, limits)
            if (
                isinstance(checked, Verdict)
                or checked.token is None
                or checked.token.version == served.version
            ):
                return checked
            detail = f"expected a prediction of version {served.version}, found {checked.token.version}"
            return Verdict(checked.feedback.event_id, "rejected", "version-gone", detail)

        def send(values: list[Any]) -> list[dict[str, Any]]:
            checked = [check(value) for value in values]
            good = [one for one in checked if isinstance(one, Checked)]
            found = to_events(good, served)
            faults = [one if isinstance(one, Verdict) else None for one in found]
            events = [one for one in found if not isinstance(one, Verdict)]
            submit = learning.writer.submit
            outcome = (
                submit(served.thresholds, columns_of(events, served), may_wait=True).result()
                if events
                else None
            )
            results = iter(outcome.results if outcome else ())
            verdicts = iter(
                fault or Verdict(one.feedback.event_id, next(results))
                for one, fault in zip(good, faults, strict=True)
            )
            return [verdict_line(one if isinstance(one, Verdict) else next(verdicts), {}) for one in checked]

        yield send
