"""Canaries on servers: each key meets one version, on all replicas."""

import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from tests.helpers.alias_requests import (
    ALIAS,
    AS_A_ROUTE,
    PREDICT,
    ROW,
    Connect,
    Replicas,
    move,
    put,
    split_of,
)
from tests.helpers.servers import KEY, ServerProcess, busy, wait_for

import xylem
from xylem.serving.live.split import Chooser

PATHS = (PREDICT, "/v1/models/raw/aliases/latest/predict")
N_FEATURES = 34


def test_a_key_meets_one_version_on_every_way(
    here: ServerProcess, replicas: Replicas, connect: Connect
) -> None:
    put(here, "canary", version=2, weight=0.3, stable_weight=0.7, reason="some first")
    told = {"latest": {"canary": {"version": 2, "weight": 0.3}, "shadow": None}}
    wait_for(lambda: split_of(replicas[1]) == told)
    keys = [f"user-{i}" for i in range(120)]
    chooser = Chooser("canary", "raw", 2, 3000)
    expected = [2 if chooser.takes(key.encode()) else 1 for key in keys]
    assert 20 < sum(version == 2 for version in expected) < 55
    line = json.dumps(ROW).encode() + b"\n"
    score = {"instances": [{**ROW, "labels": ["label::0"]}]}
    for server in replicas:
        connection = connect(server)
        for _ in range(2):  # a head that is new, and one that is remembered
            assert [connection.version(xylem_canary_key=key) for key in keys] == expected
        assert [connection.version(Xylem_Canary_Key=key, **AS_A_ROUTE) for key in keys] == expected
        assert [connection.version(x_request_id=key) for key in keys] == expected
        assert [
            connection.version(x_request_id=key, **AS_A_ROUTE) for key in keys[:30]
        ] == expected[:30]
        assert [
            connection.version(xylem_canary_key=key, x_request_id="any") for key in keys
        ] == expected
        for key, version in zip(keys[:12], expected, strict=False):
            given = {"xylem_canary_key": key, "content_type": "application/x-ndjson"}
            _, headers, _ = connection.exchange("POST", "/v1/models/raw/batch", 3 * line, **given)
            assert headers["xylem-version"] == str(version)
            _, scored = connection.ask("POST", "/v1/models/raw/score", score, xylem_canary_key=key)
            assert scored["version"] == version
        # a number is that version, and another alias is not split
        first = connection.answer("/v1/models/raw/versions/1/predict", xylem_canary_key=keys[0])
        assert first["version"] == 1
    with ServerProcess(here.store, admin_key=KEY) as restarted:
        connection = connect(restarted)
        assert [connection.version(xylem_canary_key=key) for key in keys] == expected
    assert here.admin("DELETE", f"{ALIAS}/canary")[1]["canary"] is None
    assert {connect(here).version(xylem_canary_key=key) for key in keys} == {1}


def test_promote_finishes_and_rollback_ends(here: ServerProcess) -> None:
    canary, shadow = {"version": 2, "weight": 0.1}, {"version": 3, "share": 0.5}
    alone, both = {"canary": canary, "shadow": None}, {"canary": canary, "shadow": shadow}
    answered = put(here, "canary", **canary, reason="one in ten")
    assert answered == {"model": "raw", "alias": "latest", "version": 1, **alone}
    assert put(here, "shadow", **shadow)["canary"] == canary
    for version, user in ((2, "canary"), (3, "shadow")):
        for query in ("", "?with_aliases=true"):
            status, refused = here.admin("DELETE", f"/models/raw/versions/{version}{query}")
            assert (status, refused["code"]) == (409, "version-in-use")
            assert f"found {user} of latest" in refused["detail"]
    with xylem.Client(here.url, key=KEY) as client:
        assert client.model("raw").splits == {"latest": both}
        ended = client.rollback("raw", reason="too slow")
        assert (ended["version"], ended["previous_version"], client.model("raw").splits) == (
            1,
            1,
            {},
        )
        assert client.call("DELETE", f"/v1/admin{ALIAS}/shadow")["shadow"] is None
        fault = "expected a version, or a canary of latest, found neither"
        with pytest.raises(xylem.ProblemError, match=fault):
            client.promote("raw")
        put(here, "canary", **canary)
        assert client.promote("raw", reason="good")["version"] == 2
        assert (client.model("raw").aliases["latest"], client.model("raw").splits) == (2, {})
        assert client.rollback("raw")["version"] == 1
        changes = client.history("raw", limit=6)["changes"]
        entries = client.call("GET", "/v1/admin/audit", limit=20)["entries"]
    fields = ("action", "from_version", "to_version", "why", "verdict")
    assert [tuple(row[field] for field in fields) for row in reversed(changes)] == [
        ("split", 1, 1, "one in ten", alone),
        ("split", 1, 1, "", both),
        ("rolled-back", 1, 1, "too slow", None),
        ("split", 1, 1, "", alone),
        ("promoted", 1, 2, "good", None),
        ("rolled-back", 2, 1, "", None),
    ]
    done = [(entry["action"], entry["target"]) for entry in entries]
    assert ("putCanary", "models/raw/aliases/latest/canary") in done


@pytest.mark.parametrize(
    ("path", "body", "code", "said"),
    [
        (
            "latest/canary",
            {"version": 2, "weight": 0.1, "stable_weight": 0.8},
            "bad-split",
            "add up to 1",
        ),
        ("latest/canary", {"version": 2, "weight": 0.12345}, "bad-split", "multiple of 0.0001"),
        (
            "latest/canary",
            {"version": 1, "weight": 0.5},
            "bad-split",
            "another version than the alias names",
        ),
        ("latest/canary", {"version": 2, "weight": 1.0}, "bad-request", "weight"),
        ("latest/canary", {"version": 2, "weight": 0}, "bad-request", "weight"),
        ("latest/canary", {"version": 2}, "bad-request", "weight"),
        ("latest/canary", {"version": 9, "weight": 0.5}, "version-not-found", "9"),
        ("latest/shadow", {"version": 2, "share": 1.1}, "bad-request", "share"),
        ("latest/shadow", {"version": 1}, "bad-split", "another version than the alias names"),
        ("latest/denied", {"labels": ["lable::1"]}, "unknown-label", "lable::1"),
        (
            "latest/denied",
            {"labels": [f"label {i}" for i in range(10_001)]},
            "limit-exceeded",
            "labels",
        ),
        ("latest/denied", {"labels": "label::1"}, "bad-request", "labels"),
        ("latest/denied", {}, "bad-request", "labels"),
        ("none/denied", {"labels": []}, "alias-not-found", "none"),
    ],
)
def test_what_does_not_fit(
    replicas: Replicas, path: str, body: object, code: str, said: str
) -> None:
    status, problem = replicas[0].admin("PUT", f"/models/raw/aliases/{path}", body)
    assert (status, problem["code"]) == (404 if "not-found" in code else 422, code), problem
    assert said in json.dumps(problem)
    assert replicas[0].ask("PUT", f"/v1/admin/models/raw/aliases/{path}", body)[0] == 401
    assert split_of(replicas[0]) == {}


def bodies(seed: int) -> list[bytes]:
    """Requests of one row, of many rows, and of a row that is long."""
    rng = random.Random(seed)

    def row(n: int) -> dict[str, Any]:
        indices = sorted(rng.sample(range(N_FEATURES), n))
        return {"indices": indices, "values": [round(rng.gauss(0, 1), 3) for _ in indices]}

    requests: list[dict[str, Any]] = [{"instances": [row(4)], "top_r": 5} for _ in range(10)]
    requests.append({"instances": [row(30) for _ in range(200)], "top_r": 3})
    requests.append({"instances": [row(5)], "exact": True, "deadline_ms": 30_000})
    return [json.dumps(request).encode() for request in requests]


def labels_of(answer: dict[str, Any]) -> list[Any]:
    """The labels and scores, without what is new in each answer: the predictions' ids."""
    return [prediction["labels"] for prediction in answer["predictions"]]


@pytest.mark.parametrize(
    ("seconds", "workers"),
    [(3.0, 1), pytest.param(120.0, 2, marks=pytest.mark.soak)],
    ids=["quick", "soak"],
)
def test_answers_are_of_the_version_they_name_while_it_changes(
    replicas: Replicas, connect: Connect, seconds: float, workers: int, seed: int
) -> None:
    """R12: the alias and its weights change ten times a second."""
    with ExitStack() as stack:
        servers: Sequence[ServerProcess] = replicas
        if workers > 1:
            own = (ServerProcess(replicas[0].store, workers, admin_key=KEY) for _ in replicas)
            servers = [stack.enter_context(server) for server in own]
        here, expected = servers[0], {}
        for body, version in itertools.product(bodies(seed), (1, 2)):
            status, answer = here.ask("POST", f"/v1/models/raw/versions/{version}/predict", body)
            assert (status, answer.get("version")) == (200, version), answer
            expected[body, version] = labels_of(answer)
        assert all(expected[body, 1] != expected[body, 2] for body, _ in expected)
        steps: list[Callable[[], Any]] = [
            lambda: put(here, "canary", version=2, weight=0.2),
            lambda: put(here, "shadow", version=3),
            lambda: put(here, "canary", version=2, weight=0.7),
            lambda: move(here, "promote", 2),
            lambda: move(here, "rollback", 1),
        ]
        seen: list[list[int]] = []

        def caller(server: ServerProcess, headers: dict[str, str]) -> Callable[[], None]:
            connection, versions = connect(server), list[int]()
            todo = itertools.cycle(itertools.product(bodies(seed), PATHS))
            seen.append(versions)

            def ask() -> None:
                body, path = next(todo)
                key = f"k{len(versions) % 97}"
                status, found = connection.ask("POST", path, body, xylem_canary_key=key, **headers)
                assert status == 200, found
                assert expected[body, found["version"]] == labels_of(found)
                versions.append(found["version"])

            return ask

        callers = [caller(*way) for way in itertools.product(servers, ({}, AS_A_ROUTE))]
        until, n_steps = time.monotonic() + seconds, 0
        with busy(*callers) as running:
            while time.monotonic() < until and not any(caller.done() for caller in running):
                steps[n_steps % len(steps)]()
                n_steps += 1
                time.sleep(0.1)
        move(here, "promote", 1, version=1)
    print(f"{n_steps} steps, {sum(map(len, seen))} requests")
    for versions in seen:  # each saw versions come and go
        assert sum(a != b for a, b in itertools.pairwise(versions)) > n_steps // 4
