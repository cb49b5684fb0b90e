"""`xylem feedback`: a file of events to a server, or to a store's database; again, where it was cut off."""

from __future__ import annotations

import http.client
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from service.cli.console import print_facts, print_json, print_table, progress
from service.cli.database import opened_learning
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference
from service.cli.server_options import KeyFile, read_key
from service.errors import BadData, BadInput, BadParameter, Unavailable
from service.serving.line_files import STDIN, blocks, opened

if TYPE_CHECKING:
    from service.serving.events import CheckedEvent, Verdict
    from service.serving.served import ServedVersion
    from service.settings import Limits
    from service.thresholds.live.feedback import FeedbackWriter

EVENTS_A_BLOCK = 64
REQUEST_BYTES = 1 << 20
"""Bytes of a request's events, at most, unless one event has more: a server takes some millions."""

TIMEOUT_SECONDS = 60.0
TRIES_MAX = 20
RETRY_SECONDS_MAX = 60.0
FAULTS_MAX = 10
"""Events that were not counted of which it is told what was wrong, at most."""

DETAIL_MAX = 300
RESULTS = ("applied", "duplicate", "late", "rejected")

Send = Callable[[list[Any]], list[dict[str, Any]]]
"""Sends events, as JSON values, and returns what became of each."""

Events = Annotated[
    str, typer.Option("--data", metavar="FILE", help="Lines of events, also as .gz; - is standard input.")
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="A server, as https://HOST or http://127.0.0.1:8080; else the database."
    ),
]


def feedback(
    model: Model,
    data: Events = STDIN,
    url: Url = None,
    key_file: KeyFile = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Send true labels, so that thresholds learn: one JSON object a line.

    A line is {"event_id": ..., "labels": [...]} with "instance" or "prediction_id" (docs/feedback.md). Each
    event counts once: a file that was sent in part can be sent again as a whole. Events that were not counted
    are told by reason, the first of them with their lines. Exit status 2 when some were rejected.
    """
    from service.serving.lines import value_of
    from service.settings import read_settings

    limits = read_settings().limits
    tally = _Tally()
    sender = _to_database(model, store, limits) if url is None else _to_server(model, url, read_key(key_file))
    with opened(data) as source, progress(json or data == STDIN) as show, sender as send, tally.told():
        for block in blocks(source, limits.line_bytes_max, EVENTS_A_BLOCK):
            values = [value_of(line, limits) for line in block.lines]
            for number, verdict in enumerate(_sent(values, send), block.first):
                tally.add(number, verdict)
            show("feedback", source.raw.tell() if source.n_bytes else 0, source.n_bytes)
    tally.show(json=json)
    if tally.first_rejected:
        n = tally.results["rejected"]
        first = tally.first_rejected
        raise BadData(f"{data}: expected events that can be used, found {n} others, at first {first}")


class _Tally:
    """What became of the events of a file, in memory that does not grow with it."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.first_rejected = ""
        self._reasons: Counter[str] = Counter()
        self._faults: list[dict[str, object]] = []

    def add(self, line: int, verdict: Mapping[str, Any]) -> None:
        """Count an event by what became of it."""
        result = verdict["result"]
        self.results[result] += 1
        if result not in ("late", "rejected"):
            return
        reason, detail = str(verdict.get("reason")), str(verdict.get("detail"))[:DETAIL_MAX]
        self._reasons[reason] += 1
        if result == "rejected" and not self.first_rejected:
            self.first_rejected = f"line {line}: {detail}"
        if len(self._faults) < FAULTS_MAX:
            self._faults.append({"line": line, "result": result, "reason": reason, "detail": detail})

    @contextmanager
    def told(self) -> Iterator[None]:
        """Have an error that ends the sending say how far it came, and what to do."""
        try:
            yield
        except Unavailable as error:
            n = sum(self.results.values())
            hint = f"{n} lines of the file had been answered: send it again, each event counts once"
            raise type(error)(f"{error}; {hint}") from error

    def show(self, *, json: bool) -> None:
        """Print it, as an object or for a person."""
        results = {result: self.results[result] for result in RESULTS}
        reasons = dict(self._reasons.most_common())
        if json:
            print_json({**results, "reasons": reasons, "faults": self._faults})
            return
        print_facts("", {**results, **{f"because of {reason}": n for reason, n in reasons.items()}})
        if self._faults:
            n = len(self._faults)
            title = "Not counted:" if n == sum(reasons.values()) else f"Not counted, the first {n}:"
            rows = [tuple(fault.values()) for fault in self._faults]
            print_table(title, ("line", "result", "reason", "detail"), rows)


def _sent(values: list[Any], send: Send) -> list[dict[str, Any]]:
    """Send the lines that have a value; return what became of each line."""
    from service.serving.events import refused, verdict_line

    found = [value for value in values if not isinstance(value, BadInput)]
    sent = iter(send(found) if found else ())
    return [
        dict(verdict_line(refused(None, value))) if isinstance(value, BadInput) else next(sent)
        for value in values
    ]


@contextmanager
def _to_server(model: str, url: str, key: str | None) -> Iterator[Send]:
    """Yield what sends events to a server, again while it answers 503."""
    import orjson

    connection, prefix = _connection(url)
    headers = _headers(key)
    name, reference = map(partial(quote, safe=""), parse_reference(model))
    kind = "versions" if reference.isdigit() else "aliases"
    path = f"{prefix}/v1/models/{name}/{kind}/{reference}/feedback"

    def request(body: bytes, n_events: int) -> list[dict[str, Any]]:
        found = ""
        for _ in range(TRIES_MAX):
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                answer = orjson.loads(response.read())
            except ssl.SSLError as error:
                said = getattr(error, "verify_message", None) or error.reason or error
                raise Unavailable(
                    f"{url}: expected a server with a certificate to trust, found: {said}"
                ) from None
            except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
                connection.close()
                found = str(error) or type(error).__name__
                time.sleep(1.0)
                continue
            fields = answer if isinstance(answer, dict) else {}
            if response.status == http.client.OK and _are_verdicts(fields.get("results"), n_events):
                verdicts: list[dict[str, Any]] = fields["results"]
                return verdicts
            found = str(fields.get("detail", "an answer of another kind"))
            if response.status != http.client.SERVICE_UNAVAILABLE:
                raise BadData(f"{url}: expected an answer to feedback, found {response.status}: {found}")
            time.sleep(_seconds(response.headers.get("retry-after")))
        raise Unavailable(f"{url}: expected an answer to feedback, found {found}")

    def send(values: list[Any]) -> list[dict[str, Any]]:
        return [verdict for body, n_events in _bodies(values) for verdict in request(body, n_events)]

    try:
        yield send
    finally:
        connection.close()


def _headers(key: str | None) -> dict[str, str]:
    """Return the headers of a request. Raises BadParameter for a key that no header takes."""
    if key is None:
        return {"content-type": "application/json"}
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise BadParameter("--key-file: expected a key of visible characters, found others")
    return {"content-type": "application/json", "authorization": f"Bearer {key}"}


def _connection(url: str) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection, not opened yet, and what comes before each path. Raises BadParameter.

    Over https the server's certificate is verified, by the authorities that the system trusts.
    """
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    try:
        parts = urlsplit(url)
        is_plain = parts.username is None and not parts.query and not parts.fragment
        if parts.scheme in kinds and parts.hostname and is_plain:
            connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
            return connection, parts.path.rstrip("/")
    except (ValueError, http.client.InvalidURL):  # a port that is none, half an IPv6 address, a space
        pass
    raise BadParameter(f"--url: expected http://HOST:PORT or https://HOST:PORT, found {url!r}")


def _are_verdicts(results: object, n_events: int) -> bool:
    """Return whether an answer has a verdict on each event."""
    return (
        isinstance(results, list)
        and len(results) == n_events
        and all(isinstance(one, dict) and one.get("result") in RESULTS for one in results)
    )


def _seconds(retry_after: str | None) -> float:
    """Return how long to wait before it is tried again; a date, which may stand there, is not read."""
    text = retry_after or ""
    return min(float(text), RETRY_SECONDS_MAX) if text.isascii() and text.isdigit() else 1.0


def _bodies(values: list[Any]) -> Iterator[tuple[bytes, int]]:
    """Yield the bodies of requests that have these events, in their order, and how many each has."""
    import orjson

    waiting: list[bytes] = []
    for event in map(orjson.dumps, values):
        if waiting and sum(map(len, waiting)) + len(event) > REQUEST_BYTES:
            yield b'{"events":[%b]}' % b",".join(waiting), len(waiting)
            waiting.clear()
        waiting.append(event)
    yield b'{"events":[%b]}' % b",".join(waiting), len(waiting)


@contextmanager
def _to_database(model: str, store: Path, limits: Limits) -> Iterator[Send]:
    """Yield what counts events in the database of the store; servers that share it follow.

    As a server does, it counts events with an instance for the version that is named, those with a
    prediction_id for the version that predicted.
    """
    from model_store.errors import VersionNotFound
    from model_store.store import Store
    from service.serving.events import CheckedEvent, Verdict, check_event, verdict_line
    from service.serving.opening import serve_model

    name, reference = parse_reference(model)
    opened_model = Store(store).open(name, reference)
    with opened_learning(store, create=True) as learning:
        assert learning is not None
        named = serve_model(opened_model, learning)
        others: dict[int, ServedVersion] = {}

        def find(version: int) -> ServedVersion | str:
            """Return what serves a version, or why there is none."""
            if version == named.version:
                return named
            if version not in others:
                try:
                    found = Store(store).open(name, str(version))
                except VersionNotFound as error:
                    return str(error)
                if len(others) == limits.versions_max:
                    others.pop(next(iter(others)))
                others[version] = serve_model(found, learning)
            return others[version]

        def send(values: list[Any]) -> list[dict[str, Any]]:
            checked = [check_event(value, name, learning.tokens, limits) for value in values]
            verdicts = {place: one for place, one in enumerate(checked) if isinstance(one, Verdict)}
            versions: dict[int, dict[int, CheckedEvent]] = {}
            for place, one in enumerate(checked):
                if isinstance(one, CheckedEvent):
                    version = one.token.version if one.token else named.version
                    versions.setdefault(version, {})[place] = one
            for version, places in versions.items():
                verdicts |= _counted(places, find(version), learning.writer)
            return [dict(verdict_line(verdicts[place])) for place in range(len(values))]

        yield send


def _counted(
    places: Mapping[int, CheckedEvent], served: ServedVersion | str, writer: FeedbackWriter
) -> dict[int, Verdict]:
    """Count the events of a version, by their places; a text is why there is no such version."""
    from service.serving.events import Verdict, columns_of, to_events, verdict_on

    ids = {place: one.feedback.event_id for place, one in places.items()}
    if isinstance(served, str):
        return {place: Verdict(event_id, "late", "version-gone", served) for place, event_id in ids.items()}
    found = dict(zip(places, to_events(list(places.values()), served), strict=True))
    verdicts = {place: one for place, one in found.items() if isinstance(one, Verdict)}
    events = {place: one for place, one in found.items() if not isinstance(one, Verdict)}
    if events:
        columns = columns_of(list(events.values()), served)
        outcome = writer.submit(served.thresholds, columns, may_wait=True).result()
        for place, result in zip(events, outcome.results, strict=True):
            verdicts[place] = verdict_on(ids[place], result)
    return verdicts
