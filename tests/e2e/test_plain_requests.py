"""Plain requests, which the server answers from their bytes: the
same answers, figures and log lines.
"""

import itertools
import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeAlias

import pytest
from tests.helpers.served_models import publish_model
from tests.helpers.servers import ServerProcess, wait_for

from xylem_store.store import Store

PATH = "/v1/models/raw/predict"
RAW = {"indices": [33, 1, 5], "values": [-2.0, 1.0, 0.5]}
BODY = json.dumps({"instances": [RAW, RAW], "top_r": 3}).encode()


Answer: TypeAlias = tuple[int, dict[str, str], Any]
"""Status, headers, body."""


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store, top_r_max=10) as process:
        yield process
        assert process.terminate() == 0, process.log()


class Connection:
    """A connection that sends bytes as they are."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._file = self._socket.makefile("rb")

    def send(self, *parts: bytes) -> None:
        for i, part in enumerate(parts):
            time.sleep(0.05 if i else 0)
            self._socket.sendall(part)

    def answer(self) -> Answer:
        status = int(self._file.readline().split()[1])
        lines = iter(self._file.readline, b"\r\n")
        headers = dict(line.decode().rstrip().split(": ", 1) for line in lines)
        return status, headers, json.loads(self._file.read(int(headers["content-length"])))

    def ask(self, *parts: bytes) -> Answer:
        self.send(*parts)
        return self.answer()

    def is_closed(self) -> bool:
        return self._file.read(1) == b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


Connect: TypeAlias = Callable[[], Connection]


@pytest.fixture
def connect(server: ServerProcess) -> Iterator[Connect]:
    """What makes connections, which end with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Connection(server.port))


def request(body: bytes = BODY, extra: bytes = b"", path: str = PATH) -> bytes:
    head = (
        b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: "
        b"application/json\r\n%bcontent-length: %d\r\n\r\n"
    )
    return head % (path.encode(), extra, len(body)) + body


def content(answer: Answer) -> Any:
    """What does not differ from request to request."""
    status, headers, body = answer
    for prediction in body.get("predictions", ()):
        prediction.pop("prediction_id", None)
    body.pop("request_id", None)
    return status, sorted(headers), body


def counted(server: ServerProcess, figure: str) -> float:
    """The sum of a figure, which is given as a regular expression."""
    text = server.ask("GET", "/metrics")[1].decode()
    return sum(map(float, re.findall(rf"^xylem_{figure} (\S+)$", text, re.MULTILINE)))


ANSWERED = r'requests_total\{.*/predict",status="200",.*\}'
ROWS = r'rows_total\{model="raw"\}'
IN_FLIGHT = "requests_in_flight"
"""Requests being answered, with the one that asks."""


def test_the_same_answers_figures_and_log_lines(server: ServerProcess, connect: Connect) -> None:
    before = [counted(server, figure) for figure in (ANSWERED, ROWS)]
    connection = connect()
    general, *plain = [connection.ask(request()) for _ in range(5)]
    ids = {headers["x-request-id"] for _, headers, _ in (general, *plain)}
    tokens = [p["prediction_id"] for _, _, body in (general, *plain) for p in body["predictions"]]
    assert [content(answer) for answer in plain] == [content(general)] * 4
    assert content(general)[0] == 200
    assert len(set(tokens)) == 10
    assert [counted(server, figure) for figure in (ANSWERED, ROWS)] == [
        before[0] + 5,
        before[1] + 10,
    ]
    events = server.requests(ids)
    assert len(events) == len(ids) == 5
    told = ("POST", "/v1/models/{model}/predict", PATH, 200, None)
    assert {(e["method"], e["route"], e["path"], e["status"], e["code"]) for e in events} == {told}
    assert {(e["model"], e["version"], e["alias"]) for e in events} == {("raw", 2, "latest")}


def test_thresholds_and_refusals_are_the_same_on_both_ways(
    tmp_path: Path,
) -> None:
    """A narrow beam is sure of some rows only; the others go to a
    thread, as all do that have a deadline.
    """
    publish_model(Store(tmp_path), "raw", "raw", n_labels=60, n_trees=1)
    kinds = ({"exact": True}, {"threshold": 0.01}, {"threshold": 0.3}, {"threshold": 0})
    with ServerProcess(tmp_path) as server, Connection(server.port) as connection:

        def asked(**body: Any) -> Answer:
            return connection.ask(request(json.dumps({**body, "top_r": 10}).encode()))

        for more, beam_width, feature in itertools.product(kinds, (1, 3, 60), range(0, 60, 7)):
            row = {"indices": [feature, feature + 1], "values": [1.0, -0.5]}
            body = {"instances": [row], "beam_width": beam_width, **more}
            found = asked(**body)
            assert content(found) == content(asked(**body, deadline_ms=30_000))
            assert found[2]["predictions"][0]["exact"] is True
        tuned: dict[str, Any] = {"instances": [RAW, RAW], "threshold": "tuned"}
        status, _, problem = asked(**tuned)
        assert (status, problem["code"]) == (409, "thresholds-not-tuned")
        epochs = []
        for number in range(3):
            event = {"event_id": str(number), "instance": RAW, "labels": ["label::3"]}
            assert server.ask("POST", "/v1/models/raw/feedback", event)[0] == 200
            plain, again, general = asked(**tuned), asked(**tuned), asked(**tuned, explain=False)
            assert content(plain) == content(again) == content(general)
            assert plain[0] == 200
            epochs.append(plain[2]["threshold_epoch"])
        assert epochs == sorted(set(epochs))


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b'"top_r": 3', b'"top_r":11'),  # beyond the limit
        BODY.replace(b'"top_r": 3', b'"top_r":"a'),
        BODY.replace(b"33", b"-3"),
        BODY.replace(b"33", b"99"),
        BODY.replace(b'"top_r": 3', b'"exact":1 '),
    ],
)
def test_what_is_not_plain_is_refused_as_ever(connect: Connect, body: bytes) -> None:
    """All of one length: the head is known."""
    assert len(body) == len(BODY)
    connection = connect()
    connection.ask(request())
    assert connection.ask(request())[0] == 200
    found = connection.ask(request(body))
    assert content(found) == content(connect().ask(request(body, b"x-request-id: me\r\n")))
    assert found[0] in (400, 422)
    assert connection.ask(request())[0] == 200


def test_requests_in_pieces_and_several_at_once(connect: Connect) -> None:
    connection = connect()
    whole = request()
    expected = content(connection.ask(whole))
    for cut in (1, 30, whole.index(b"\r\n\r\n") + 2, len(whole) - 1):
        assert content(connection.ask(whole[:cut], whole[cut:])) == expected
        assert content(connection.ask(whole)) == expected
    for parts in ([whole * 3], [whole + whole[:9], whole[9:] + whole], [whole, whole, whole]):
        connection.send(*parts)
        assert [content(connection.answer()) for _ in range(3)] == [expected] * 3


def test_what_a_head_asks_for_is_done(connect: Connect) -> None:
    for _ in range(2):
        closing = connect()
        assert closing.ask(request(extra=b"connection: close\r\n"))[1]["connection"] == "close"
        assert closing.is_closed()
        assert connect().ask(request(path="/v1/models/raw/versions/1/predict"))[2]["version"] == 1
        assert connect().ask(request(path="/v1/models/none/predict"))[0] == 404
        assert connect().ask(request(path="/v1/models/raw/aliases/1/predict"))[0] == 404
        assert connect().ask(request().replace(b"application/json", b"text/plain"))[0] == 415


def test_each_request_gets_the_id_that_it_brings(server: ServerProcess, connect: Connect) -> None:
    connection = connect()
    expected = content(connection.ask(request()))
    ids = [f"id-{number}.{'x' * number}" for number in range(5)]
    for name in ids:
        for spelt in (b"x-request-id: ", b"X-Request-ID:", b"X-Request-Id:  \t"):
            found = connection.ask(request(extra=spelt + name.encode() + b"\r\n"))
            assert content(found) == expected
            assert found[1]["x-request-id"] == name
    assert {event["request_id"] for event in server.requests(ids)} == set(ids)
    for odd in (b"two words", b"x" * 129, b"\xe9", b"", b'"quoted"'):
        found = connection.ask(request(extra=b"x-request-id: %b\r\n" % odd))
        assert content(found) == expected
        assert found[1]["x-request-id"] not in (*ids, odd.decode("latin-1"))
    twice = b"x-request-id: one\r\nx-request-id: two\r\n"
    for _ in range(3):
        assert connection.ask(request(extra=twice))[1]["x-request-id"] == "one"
    refused = request(BODY.replace(b'"top_r": 3', b'"topr":33'), b"x-request-id: mine\r\n")
    for _ in range(2):
        status, headers, problem = connection.ask(refused)
        assert (status, headers["x-request-id"], problem["request_id"]) == (422, "mine", "mine")
        assert problem["detail"].endswith("did you mean top_r?")


def test_who_is_idle_or_whose_body_does_not_come_is_given_up(shared_store: Path) -> None:
    with ServerProcess(shared_store, keep_alive_seconds=2, body_seconds_max=0.5) as process:
        with Connection(process.port) as connection:
            connection.ask(request())
            started = time.monotonic()
            while time.monotonic() < started + 2.5:  # longer than the limit, but not idle
                assert connection.ask(request())[0] == 200
                time.sleep(0.1)
            started = time.monotonic()
            assert connection.is_closed()
            assert time.monotonic() - started > 1.5
        with Connection(process.port) as connection:
            for _ in range(3):  # its head is known
                assert connection.ask(request())[0] == 200
            connection.send(request()[:-1])
            assert connection.answer()[0] == 408


def test_one_request_too_many_replaces_one_that_waits_for_a_body(
    shared_store: Path,
) -> None:
    with (
        ServerProcess(shared_store, requests_max=1) as process,
        Connection(process.port) as plain,
        Connection(process.port) as other,
    ):
        for _ in range(3):
            assert plain.ask(request())[0] == 200
        other.send(request(extra=b"x-request-id: me\r\n")[:-1])
        wait_for(lambda: counted(process, IN_FLIGHT) == 2)  # this one, and the one that asks
        assert plain.ask(request())[0] == 200
        status, headers, body = other.answer()
        assert (status, body["code"], "retry-after" in headers) == (503, "overloaded", True)
        assert plain.ask(request())[0] == 200


def test_another_version_is_served_from_one_request_to_the_next(own_store: Store) -> None:
    publish_model(own_store, "raw", "raw", seed=5)
    by_number = PATH.replace("/predict", "/versions/%d/predict")
    with (
        ServerProcess(own_store.root, store_poll_seconds=3600) as process,
        Connection(process.port) as connection,
    ):
        for version in (1, 2, 3, 1):
            own_store.promote("raw", version, "latest")
            process.process.send_signal(signal.SIGHUP)
            wait_for(lambda version=version: connection.ask(request())[2]["version"] == version)  # type: ignore[misc]
            found = [content(connection.ask(request())) for _ in range(3)]
            with Connection(process.port) as other:
                assert found == [content(other.ask(request(path=by_number % version)))] * 3


def test_log_lines_name_the_key_that_let_a_request_pass(own_store: Store) -> None:
    admin = "correct-horse-battery-staple"
    with ServerProcess(
        own_store.root, admin_key=admin, open_scopes="none", top_r_max=10
    ) as process:

        def asked(key: str, body: bytes = BODY) -> list[Any]:
            """What the log says of a request that was asked for four times: later
            ones are plain.
            """

            def lines() -> list[Any]:
                return [line for line in process.events("request") if line["path"] == PATH]

            before = len(lines())
            with Connection(process.port) as connection:
                for _ in range(4):
                    connection.ask(request(body, f"authorization: Bearer {key}\r\n".encode()))
            wait_for(lambda: len(lines()) == before + 4)
            return [(line["status"], line.get("key")) for line in lines()[before:]]

        headers = {"authorization": f"Bearer {admin}"}
        made = process.ask(
            "POST", "/v1/admin/keys", {"name": "k", "scopes": ["predict"]}, **headers
        )[1]
        bad = json.dumps({"instances": [RAW], "top_r": 11}).encode()
        assert asked(made["key"]) == [(200, made["id"])] * 4
        assert asked(made["key"], bad) == [(422, made["id"])] * 4
        assert asked(admin) == [(200, "environment")] * 4
        assert asked(made["key"][:-2]) == [(401, None)] * 4
        assert asked("nothing") == [(401, None)] * 4
        assert made["key"][16:] not in process.log()
