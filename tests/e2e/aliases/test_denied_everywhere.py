"""Labels that an alias denies are denied by all replicas."""

from tests.helpers.alias_helpers import split
from tests.helpers.alias_requests import (
    ALIAS,
    AS_A_ROUTE,
    LABELS,
    Connect,
    Replicas,
    move,
    put,
    split_of,
)
from tests.helpers.servers import ServerProcess, wait_for

from xylem_store.store import Store

DENIED = ["label::1", "label::4"]


def test_all_replicas_deny_labels(
    here: ServerProcess, replicas: Replicas, connect: Connect
) -> None:
    first, second = connections = [connect(server) for server in replicas]
    for connection in connections:
        for _ in range(3):
            assert connection.labels() == LABELS
    answer = put(here, "denied", labels=DENIED, reason="retired")
    assert (answer["labels"], answer["unknown"]) == (DENIED, [])
    change = here.admin("GET", "/models/raw/history")[1]["changes"][0]
    assert (change["action"], change["why"]) == ("denied", "retired")
    others = LABELS - set(DENIED)
    assert first.labels() == others  # at once, where the request came
    wait_for(lambda: second.labels() == others)
    for connection in connections:
        assert connection.labels(**AS_A_ROUTE) == others
        for version in (2, 1):
            assert connection.labels(f"/v1/models/raw/versions/{version}/predict") == LABELS
    split(Store(here.store), "raw", (2, 5000))
    wait_for(lambda: split_of(here) != {})
    for i in range(12):
        assert first.labels(xylem_canary_key=f"user-{i}") == others
    move(here, "promote", 2, version=2)
    assert first.labels() == others
    assert here.admin("DELETE", f"{ALIAS}/denied")[0] == 200
    assert first.labels() == LABELS
    assert here.admin("GET", f"{ALIAS}/denied")[1]["labels"] == []
    entries = here.admin("GET", "/audit")[1]["entries"]
    told = [entry["action"] for entry in entries if entry["target"].endswith("/denied")]
    assert told[:2] == ["endDenied", "putDenied"]
