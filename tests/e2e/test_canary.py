"""Canaries and shadows on real servers: sticky everywhere, changed under load, promoted, rolled back."""

import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import xylem
from model_store.store import Store
from service.serving.split import Chooser
from tests.oip_requests import binary_body, csr
from tests.served_models import publish_model
from tests.servers import ServerProcess, wait_for

KEY = "correct-horse-battery-staple"
ADMIN = {"authorization": f"Bearer {KEY}"}
ROW = {"indices": [1, 5, 9], "values": [1.0, 0.5, 2.0]}
BODY = json.dumps({"instances": [ROW], "top_r": 6}).encode()
ROUTE = "/v1/admin/models/raw/aliases/latest"
PATH = "/v1/models/raw/predict"
AS_A_ROUTE = {"origin": "https://shop.example"}
"""With which a request is no plain whole one."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("canary") / "store"
    for seed in (1, 2, 3):
        publish_model(Store(root), "raw", "raw", seed=seed)
    Store(root).promote("raw", 1)
    return root


@pytest.fixture(scope="module")
def replicas(root: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with (
        ServerProcess(root, admin_key=KEY, store_poll_seconds=0.05) as here,
        ServerProcess(root, admin_key=KEY, store_poll_seconds=0.05) as there,
    ):
        yield here, there


@pytest.fixture
def here(replicas: tuple[ServerProcess, ServerProcess]) -> Iterator[ServerProcess]:
    """A replica; afterwards `latest` names 1 again, alone."""
    yield replicas[0]
    assert replicas[0].ask("POST", "/v1/admin/models/raw/promote", {"version": 1}, **ADMIN)[0] == 200


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close what a test has opened."""
    yield
    while Connection.opened:
        Connection.opened.pop().close()


class Connection:
    """Asks over one connection, so that heads are remembered."""

    opened: ClassVar[list[http.client.HTTPConnection]] = []

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.opened.append(self._connection)

    def ask(self, path: str = PATH, body: bytes = BODY, **headers: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.exchange(path, body, **headers))
        return found

    def exchange(self, path: str, body: bytes, **headers: str) -> bytes:
        given = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        self._connection.request("POST", path, body, given)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    def version(self, **headers: str) -> int:
        return int(self.ask(**headers)["version"])


def put(server: ServerProcess, role: str, **body: object) -> Any:
    status, answer = server.ask("PUT", f"{ROUTE}/{role}", body, **ADMIN)
    assert status == 200, answer
    return answer


def figures(server: ServerProcess, pattern: str) -> dict[Any, float]:
    text = server.ask("GET", "/metrics")[1].decode()
    return {m.groups()[:-1]: float(m.groups()[-1]) for m in re.finditer(pattern, text)}


def canary_serves(server: ServerProcess, weight: float | None) -> bool:
    splits = server.ask("GET", "/v1/models/raw")[1]["splits"]
    return (splits.get("latest") or {"canary": None})["canary"] == (
        None if weight is None else {"version": 2, "weight": weight}
    )


def test_a_key_meets_one_version_on_every_replica_and_way(
    here: ServerProcess, replicas: tuple[ServerProcess, ServerProcess], root: Path
) -> None:
    put(here, "canary", version=2, weight=0.3, stable_weight=0.7, reason="some first")
    wait_for(lambda: canary_serves(replicas[1], 0.3))
    keys = [f"user-{i}" for i in range(120)]
    chooser = Chooser("canary", "raw", 2, 3000)
    expected = [2 if chooser.takes(key.encode()) else 1 for key in keys]
    assert 20 < sum(version == 2 for version in expected) < 55
    line = json.dumps(ROW).encode() + b"\n"
    for server in replicas:
        connection = Connection(server)
        for _ in range(2):  # a head that is new, and one that is remembered
            assert [connection.version(xylem_canary_key=key) for key in keys] == expected
        assert [connection.version(Xylem_Canary_Key=key, **AS_A_ROUTE) for key in keys] == expected
        assert [connection.version(x_request_id=key) for key in keys] == expected
        assert [connection.version(x_request_id=key, **AS_A_ROUTE) for key in keys[:30]] == expected[:30]
        given = [connection.version(xylem_canary_key=key, x_request_id="any") for key in keys]
        assert given == expected
        for key, version in list(zip(keys, expected, strict=True))[:12]:
            _, headers, _ = server.exchange(
                "POST",
                "/v1/models/raw/batch",
                3 * line,
                **{"xylem-canary-key": key, "content-type": "application/x-ndjson"},
            )
            assert headers["xylem-version"] == str(version)
        score = json.dumps({"instances": [{**ROW, "labels": ["label::0"]}]}).encode()
        asked = [connection.ask("/v1/models/raw/score", score, xylem_canary_key=key) for key in keys[:12]]
        assert [one["version"] for one in asked] == expected[:12]
        # a number is that version, and another alias is not split
        assert connection.ask("/v1/models/raw/versions/1/predict", xylem_canary_key=keys[0])["version"] == 1
    with ServerProcess(root, admin_key=KEY) as restarted:
        connection = Connection(restarted)
        assert [connection.version(xylem_canary_key=key) for key in keys] == expected


def test_weights_grow_without_moving_a_key_back(here: ServerProcess) -> None:
    keys = [f"buyer {i}" for i in range(200)]  # with a blank: on their route
    connection, moved = Connection(here), set()
    for weight in (0.05, 0.2, 0.6):
        put(here, "canary", version=2, weight=weight)
        now = {key for key in keys if connection.version(xylem_canary_key=key) == 2}
        assert moved < now
        moved = now
    assert here.ask("DELETE", f"{ROUTE}/canary", **ADMIN)[1]["canary"] is None
    assert {connection.version(xylem_canary_key=key) for key in keys} == {1}


def test_promote_finishes_and_rollback_ends(here: ServerProcess, root: Path) -> None:
    with xylem.Client(f"http://127.0.0.1:{here.port}", key=KEY) as client:
        put_answer = client.call("PUT", f"{ROUTE}/canary", version=2, weight=0.1, reason="one in ten")
        assert put_answer == {
            "model": "raw",
            "alias": "latest",
            "version": 1,
            "canary": {"version": 2, "weight": 0.1},
            "shadow": None,
        }
        shadow = f"{ROUTE}/shadow"
        assert client.call("PUT", shadow, version=3, share=0.5)["canary"] == {"version": 2, "weight": 0.1}
        assert client.model("raw").splits == {
            "latest": {"canary": {"version": 2, "weight": 0.1}, "shadow": {"version": 3, "share": 0.5}}
        }
        for version, user in ((2, "canary"), (3, "shadow")):
            for query in ("", "?with_aliases=true"):
                status, refused = here.ask(
                    "DELETE", f"/v1/admin/models/raw/versions/{version}{query}", **ADMIN
                )
                assert (status, refused["code"]) == (409, "version-in-use")
                assert f"found {user} of latest" in refused["detail"]
        ended = client.rollback("raw", reason="too slow")
        assert (ended["version"], ended["previous_version"]) == (1, 1)
        assert client.model("raw").splits == {}
        assert client.call("DELETE", shadow)["shadow"] is None
        with pytest.raises(
            xylem.ProblemError, match="expected a version, or a canary of latest, found neither"
        ):
            client.promote("raw")
        client.call("PUT", f"{ROUTE}/canary", version=2, weight=0.1)
        assert client.promote("raw", reason="good")["version"] == 2
        assert (client.model("raw").aliases["latest"], client.model("raw").splits) == (2, {})
        assert client.rollback("raw")["version"] == 1
        told = [
            (row["action"], row["from_version"], row["to_version"], row["why"], row["verdict"])
            for row in reversed(client.history("raw", limit=6)["changes"])
        ]
        first = {"canary": {"version": 2, "weight": 0.1}, "shadow": None}
        assert told == [
            ("split", 1, 1, "one in ten", first),
            ("split", 1, 1, "", {**first, "shadow": {"version": 3, "share": 0.5}}),
            ("rolled-back", 1, 1, "too slow", None),
            ("split", 1, 1, "", first),
            ("promoted", 1, 2, "good", None),
            ("rolled-back", 2, 1, "", None),
        ]
        entries = client.call("GET", "/v1/admin/audit", limit=20)["entries"]
        done = [(entry["action"], entry["target"]) for entry in entries]
        assert ("putCanary", "models/raw/aliases/latest/canary") in done


@pytest.mark.parametrize(
    ("role", "body", "status", "code", "found"),
    [
        ("canary", {"version": 2, "weight": 0.1, "stable_weight": 0.8}, 422, "bad-split", "add up to 1"),
        ("canary", {"version": 2, "weight": 0.12345}, 422, "bad-split", "multiple of 0.0001"),
        ("canary", {"version": 1, "weight": 0.5}, 422, "bad-split", "another version than the alias names"),
        ("canary", {"version": 2, "weight": 1.0}, 422, "bad-request", "weight"),
        ("canary", {"version": 2, "weight": 0}, 422, "bad-request", "weight"),
        ("canary", {"version": 2}, 422, "bad-request", "weight"),
        ("canary", {"version": 9, "weight": 0.5}, 404, "version-not-found", "9"),
        ("shadow", {"version": 2, "share": 1.1}, 422, "bad-request", "share"),
        ("shadow", {"version": 1}, 422, "bad-split", "another version than the alias names"),
    ],
)
def test_what_does_not_fit_is_refused(
    replicas: tuple[ServerProcess, ServerProcess], role: str, body: object, status: int, code: str, found: str
) -> None:
    answered, problem = replicas[0].ask("PUT", f"{ROUTE}/{role}", body, **ADMIN)
    assert (answered, problem["code"]) == (status, code)
    assert found in json.dumps(problem)
    assert replicas[0].ask("PUT", f"{ROUTE}/{role}", body)[0] == 401
    assert replicas[0].ask("GET", "/v1/models")[1]["models"][0]["splits"] == {}


def test_a_shadow_answers_too_and_is_never_returned(here: ServerProcess) -> None:
    plain = Connection(here).ask()["predictions"][0]["labels"]
    put(here, "shadow", version=3)
    counted = r'xylem_shadow_version_requests_total\{model="raw",result="(\w+)",version="3"\} (\S+)'
    connection = Connection(here)
    n = 60
    for i in range(n):
        answer = connection.ask(**(AS_A_ROUTE if i % 3 == 0 else {}))
        assert (answer["version"], answer["predictions"][0]["labels"]) == (1, plain)
    wait_for(lambda: sum(figures(here, counted).values()) >= n)
    assert figures(here, counted) == {("answered",): n}
    labels = r'\{answered="1",model="raw",top="(\d)",version="3"\} (\S+)'
    pairs = rf"xylem_shadow_version_(compared|agreed)_total{labels}"
    found = figures(here, pairs)
    assert (found["compared", "1"], found["compared", "5"]) == (n, 5 * n)
    assert found["agreed", "5"] < 5 * n
    requests = r'xylem_requests_total\{model="raw",route="[^"]*",status="200",version="(\d)"\} (\S+)'
    assert ("3",) not in figures(here, requests)  # whose answers no request got
    parts = r'xylem_alias_part\{alias="latest",model="raw",role="(\w+)",version="(\d)"\} (\S+)'
    assert figures(here, parts) == {("stable", "1"): 1.0, ("shadow", "3"): 1.0}
    put(here, "shadow", version=3, share=0.0001)
    for _ in range(20):
        connection.ask()
    assert sum(figures(here, counted).values()) <= n + 3


def test_a_shadow_hears_of_tensors_too(here: ServerProcess) -> None:
    """In JSON and as binary data, of heads that are new and remembered, and on the route."""
    put(here, "shadow", version=2)
    counted = r'xylem_shadow_version_requests_total\{model="raw",result="(\w+)",version="2"\} (\S+)'
    labels = r'\{answered="1",model="raw",top="5",version="2"\} (\S+)'
    agreed, compared = (rf"xylem_shadow_version_({what})_total{labels}" for what in ("agreed", "compared"))
    before = [figures(here, pattern) for pattern in (counted, agreed, compared)]
    connection = Connection(here)
    n = 5
    for more in ({}, AS_A_ROUTE):
        for _ in range(n):
            connection.ask(**more)
    wait_for(lambda: sum(figures(here, counted).values()) >= sum(before[0].values()) + 2 * n)
    middle = [figures(here, pattern) for pattern in (counted, agreed, compared)]
    request = {"inputs": csr([ROW]), "parameters": {"top_r": 6, "binary_data_output": False}}
    in_binary = {**request, "parameters": {"top_r": 6, "binary_data_output": True}}
    bodies: list[tuple[bytes, dict[str, str]]] = [(json.dumps(request).encode(), {}), binary_body(in_binary)]
    answers = []
    for body, header in bodies:
        for more in ({}, AS_A_ROUTE):
            answers += [connection.exchange("/v2/models/raw/infer", body, **header, **more) for _ in range(n)]
    assert len(set(answers)) == 2  # those in JSON, and those in binary: the shadow's is never returned
    wait_for(lambda: sum(figures(here, counted).values()) >= sum(middle[0].values()) + 4 * n)
    after = [figures(here, pattern) for pattern in (counted, agreed, compared)]
    assert set(after[0]) == {("answered",)}
    for pattern in range(1, 3):
        of_predict = sum(middle[pattern].values()) - sum(before[pattern].values())
        of_tensors = sum(after[pattern].values()) - sum(middle[pattern].values())
        assert of_tensors == 2 * of_predict  # twice as many requests for the same row


def test_weights_change_under_load_without_a_failure(
    here: ServerProcess, replicas: tuple[ServerProcess, ServerProcess]
) -> None:
    connection = Connection(here)
    answers = {v: connection.ask(f"/v1/models/raw/versions/{v}/predict") for v in (1, 2)}
    expected = {v: answer["predictions"][0]["labels"] for v, answer in answers.items()}
    stopping, faults, seen = threading.Event(), [], Counter[int]()

    def call(number: int) -> None:
        connection = Connection(replicas[number % 2])
        try:
            for i in range(1_000_000):
                if stopping.is_set():
                    return
                given = {"xylem_canary_key": f"k{i % 97}"} | (AS_A_ROUTE if number > 1 else {})
                answer = connection.ask(**given)
                if answer["predictions"][0]["labels"] != expected[answer["version"]]:
                    faults.append(answer)
                seen[answer["version"]] += 1
        except Exception as error:
            faults.append(error)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    steps: list[Callable[[], Any]] = [
        lambda: put(here, "canary", version=2, weight=0.2),
        lambda: put(here, "shadow", version=3),
        lambda: put(here, "canary", version=2, weight=0.7),
        lambda: here.ask("POST", "/v1/admin/models/raw/promote", {}, **ADMIN),
        lambda: here.ask("POST", "/v1/admin/models/raw/rollback", {}, **ADMIN),
    ]
    for _ in range(4):
        for step in steps:
            step()
            time.sleep(0.03)
    stopping.set()
    for caller in callers:
        caller.join()
    assert faults == []
    assert set(seen) == {1, 2}
