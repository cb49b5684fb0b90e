"""Feedback for the tests: replicas over one database, events and requests."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import SecretStr

from tests.conftest import serving, settings_of
from tests.helpers.small_models import small_draft
from xylem.base.db.engine import Database
from xylem.base.rows import SparseRows
from xylem.engine.predictor import Predictor
from xylem.serving.dialects.predict.prediction_json import Spans, predictions_json
from xylem.serving.feedback.tokens import Tokens, model_hash
from xylem.thresholds.live import events as event_columns
from xylem.thresholds.live.feedback import FeedbackWriter
from xylem.thresholds.live.served import ServedThresholds
from xylem.thresholds.live.shadow import put_shadow
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import lock_head
from xylem_store.names import build_names
from xylem_store.store import Store

N_LABELS, N_FEATURES = 12, 40


@cache
def predictor() -> Predictor:
    """Return the predictor of a small label tree."""
    store = Store(Path(mkdtemp()) / "store")
    store.publish("m", small_draft(3, n_labels=N_LABELS, n_features=N_FEATURES))
    return Predictor(store.open("m"))


class Event(NamedTuple):
    """One event of feedback that can be counted.

    key        `event_keys` of its identity
    labels     int32[..], the true labels, ascending, without repeats
    row        the instance, one row; None if `predicted` is given
    predicted  int32[..], the predicted labels, as `labels`; None: predicted for `row` with the
               current thresholds
    epoch      the epoch of a prediction that was made before; else None
    line       the line that is stored as a row for training; None: nothing is stored
    """

    key: bytes
    labels: NDArray[np.int32]
    row: SparseRows | None = None
    predicted: NDArray[np.int32] | None = None
    epoch: int | None = None
    line: bytes | None = None


def as_columns(events: Sequence[Event], n_features: int, n_labels: int) -> event_columns.Events:
    """Return events as columns."""
    rows, none = [event.row for event in events], event_columns.NO_LABELS
    no_row = SparseRows(
        np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), n_features
    )
    return event_columns.Events(
        [event.key for event in events],
        SparseRows.join([no_row, *(no_row if row is None else row for row in rows)]).cut(
            1, len(rows) + 1
        ),
        event_columns.label_rows([event.labels for event in events], n_labels),
        event_columns.label_rows(
            [none if e.predicted is None else e.predicted for e in events], n_labels
        ),
        np.array(
            [event_columns.NO_EPOCH if event.epoch is None else event.epoch for event in events],
            np.int64,
        ),
        [event.line for event in events],
    )


class Replica:
    """The thresholds of model m, version 1, as one process has them."""

    def __init__(self, url: str, halve_events: int | None = None) -> None:
        self.database = Database(url)
        self.writer = FeedbackWriter(
            self.database, queue_max=10_000, days_max=30, halve_events=halve_events
        )
        self.live = ServedThresholds("m", 1, N_LABELS, predictor())

    def send(self, *events: Event) -> list[event_columns.Result]:
        """Count events, and wait until they are durable."""
        return self.writer.submit(self.live, columns(*events), may_wait=False).result(300)

    def catch_up(self) -> None:
        """Read the changes that other replicas wrote."""
        with self.live.lock, self.database.read() as connection:
            self.live.catch_up(connection)

    def bits(self) -> tuple[bytes, bytes, bytes, int]:
        """Return all that must be equal in replicas: thresholds, hits, marks and the epoch.

        Fails unless the thresholds of nodes belong to those of the labels.
        """
        state = self.live.snapshot()
        expected = predictor().node_thresholds(state.thresholds)
        assert np.array_equal(self.live.prepared, expected)
        hits, marks = state.counters.hits, state.counters.marks
        return state.thresholds.tobytes(), hits.tobytes(), marks.tobytes(), self.live.epoch

    def close(self) -> None:
        self.writer.close()
        self.database.close()


def put_candidate(database: Database, version: int, tuned: Tuned) -> int:
    """Put a candidate beside the thresholds of a version of model m; return the new epoch."""
    with database.write() as connection:
        return put_shadow(connection, lock_head(connection, "m", version), tuned).epoch


def columns(*events: Event) -> event_columns.Events:
    """Return events of the small model as columns."""
    return as_columns(events, N_FEATURES, N_LABELS)


def labels_of(*labels: int) -> np.ndarray:
    return np.array(sorted(set(labels)), np.int32)


def token_event(name: str, true: list[int], predicted: list[int], epoch: int = 0) -> Event:
    """Return an event whose prediction was made before."""
    return Event(
        event_columns.event_keys("m", [name])[0],
        labels_of(*true),
        None,
        labels_of(*predicted),
        epoch,
    )


def instance_event(name: str, true: list[int], seed: int) -> Event:
    """Return an event with an instance of random features."""
    rng = np.random.default_rng(seed)
    features = np.flatnonzero(rng.random(N_FEATURES) < 0.3).astype(np.int32)
    values = rng.standard_normal(len(features)).astype(np.float32)
    row = SparseRows(np.array([0, len(features)], np.int64), features, values, N_FEATURES)
    return Event(event_columns.event_keys("m", [name])[0], labels_of(*true), row)


RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
PATH = "/v1/models/raw/feedback"
ADMIN_KEY = "correct-horse-battery-staple"
NDJSON = {"content-type": "application/x-ndjson"}


def event(name: str, labels: list[str], **fields: Any) -> dict[str, Any]:
    return {"event_id": name, "labels": labels, **(fields or {"instance": RAW})}


@contextlib.asynccontextmanager
async def client_of(
    store: Store, as_admin: bool = False, **changes: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Run the service, which reads changed thresholds every 50 ms; yield a client of it.

    as_admin  whether the client has the admin key
    """
    changes = {"threshold_refresh_ms": 50, **changes}
    if as_admin:
        changes["admin_key"] = SecretStr(ADMIN_KEY)
    async with serving(settings_of(store.root, **changes)) as (_, client):
        if as_admin:
            client.headers["authorization"] = f"Bearer {ADMIN_KEY}"
        yield client


async def predict(client: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    body = {"instances": [RAW], "top_r": 11, "threshold": "tuned", **options}
    response = await client.post("/v1/models/raw/predict", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def send(client: httpx.AsyncClient, *events: Any, path: str = PATH) -> list[dict[str, Any]]:
    response = await client.post(path, json={"events": list(events)})
    assert response.status_code == 200, response.text
    return response.json()["results"]


def fault(response: httpx.Response) -> tuple[int, str]:
    """Return the status and the error code of a response."""
    return response.status_code, response.json()["code"]


async def outcomes(client: httpx.AsyncClient, *events: Any, path: str = PATH) -> list[str]:
    """Send events; return the outcome of each: `applied`, or as `rejected: bad-request`."""
    results = await send(client, *events, path=path)
    return [
        f"{outcome['result']}: {outcome['reason']}" if "reason" in outcome else outcome["result"]
        for outcome in results
    ]


def signed(tokens: Tokens, model: str, version: int, epoch: int, labels: Sequence[int]) -> str:
    """Return a signed id of a prediction of these labels."""
    names = build_names([f"l{i}" for i in range(max(labels, default=0) + 1)])
    scores = np.ones(len(labels), np.float32)
    spans = Spans(
        np.array([0]),
        np.array([len(labels)]),
        np.array(labels, np.int32),
        scores,
        np.zeros(1, np.uint8),
    )
    seal = tokens.seal(model_hash(model), version, epoch)
    (prediction,) = predictions_json(names, np.empty(0, np.float32), seal, tokens.serials(1), spans)
    return orjson.loads(prediction)["prediction_id"]
