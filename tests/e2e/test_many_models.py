"""Models are opened, closed, moved and asked at random: no answer is wrong, nothing leaks."""

import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.alias_helpers import deny, split
from tests.helpers.served_models import publish_model, reply_of
from tests.helpers.servers import KEY, Connection, ServerProcess, busy, wait_for

from xylem.client import Client
from xylem.errors import ProblemError
from xylem.serving.live.opening import open_version
from xylem_store.alias import PARTS
from xylem_store.errors import StoreError
from xylem_store.store import Store

N_MODELS = 8
LOADED = 3
BODY = {"instances": [{"indices": [1, 5, 9], "values": [1.0, 0.5, 0.25]}], "top_r": 3}
AUTHORIZATION = {"authorization": f"Bearer {KEY}"}

Answers = dict[tuple[str, int], Any]
"""The predictions of each version, by its model and number."""


def scored(answer: dict[str, Any]) -> Any:
    """Return the labels and scores of an answer."""
    return [
        [(label["label"], label["score"]) for label in prediction["labels"]]
        for prediction in answer["predictions"]
    ]


def models_of(root: Path) -> tuple[Store, Answers]:
    """Publish models with two versions each; return the store, and what each version answers."""
    store = Store(root)
    answers: Answers = {}
    for number in range(N_MODELS):
        for seed in (2 * number, 2 * number + 1):
            version = publish_model(store, f"m{number}", "raw", seed=seed).version
            served = open_version(store.open(f"m{number}", version))
            reply = reply_of(json.dumps(BODY).encode(), served)
            answers[f"m{number}", version] = scored(json.loads(b"".join(reply.parts)))
        store.promote(f"m{number}", 1, "beside")
    return store, answers


def asking(
    connection: Connection, answers: Answers, rng: random.Random, faults: list[Any]
) -> Callable[[], None]:
    """Return a function that asks a model, and notes an answer that is lost or wrong."""

    def ask() -> None:
        name = f"m{rng.randrange(N_MODELS)}"
        path = rng.choice(["", "", "/versions/1", "/versions/2", "/aliases/beside"])
        body = BODY if rng.random() < 0.8 else {**BODY, "deadline_ms": 30_000}
        status, answer = connection.ask("POST", f"/v1/models/{name}{path}/predict", body)
        if status != 200 or scored(answer) != answers[name, answer["version"]]:
            faults.append((name, path, status, answer))

    return ask


def changing(connection: Connection, store: Store, rng: random.Random) -> Callable[[], None]:
    """Return a function that changes a model in the store, or what is open of it."""

    def change() -> None:
        name = f"m{rng.randrange(N_MODELS)}"
        version = rng.randint(1, 2)
        other = 3 - store.alias(name).version
        verb = rng.choice(["load", "unload"])
        rng.choice(
            [
                lambda: store.promote(name, version),
                lambda: store.promote(name, version, "beside"),
                lambda: split(store, name, (other, 5000), (other, PARTS)),
                lambda: deny(store, name, ["no such label"] if version == 1 else []),
                lambda: connection.ask(
                    "POST", f"/v2/repository/models/{name}/{verb}", **AUTHORIZATION
                ),
            ]
        )()
        time.sleep(0.01)

    return change


def deleting(connection: Connection, store: Store, faults: list[Any]) -> Callable[[], None]:
    """Return a function that deletes a model while it is asked, and publishes it again."""

    def delete() -> None:
        publish_model(store, "gone", "raw")
        for step in range(4):
            status, answer = connection.ask("POST", "/v1/models/gone/predict", BODY)
            if status not in (200, 404):
                faults.append(("gone", step, status, answer))
            if step == 1:
                store.delete_model("gone")
            time.sleep(0.2 * (step % 2))

    return delete


def mapped_files(server: ServerProcess, store: Store) -> list[str]:
    """Return the files of models that the server has mapped or open."""
    process = Path(f"/proc/{server.process.pid}")
    maps = (process / "maps").read_text().splitlines()
    files = [str(fd.readlink()) for fd in (process / "fd").iterdir() if fd.is_symlink()]
    return [line for line in (*maps, *files) if f"{store.root}/models/" in line]


@pytest.mark.parametrize("seconds", [8, pytest.param(600, marks=pytest.mark.soak)])
def test_models_come_and_go(tmp_path: Path, seconds: int, seed: int) -> None:
    rng = random.Random(seed)
    store, answers = models_of(tmp_path / "store")
    faults: list[Any] = []
    settings = {"models_loaded": LOADED, "admin_key": KEY, "store_poll_seconds": 0.05}
    with ServerProcess(store.root, access_log=False, **settings) as server, ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in range(6)]
        asks = [
            asking(connection, answers, random.Random(rng.random()), faults)
            for connection in connections[:4]
        ]
        changes = changing(connections[4], store, random.Random(rng.random()))
        with busy(*asks, changes, deleting(connections[5], store, faults)):
            time.sleep(seconds)
        assert not faults, (faults[:5], server.events("failure")[:3])
        n_opened = len(server.events("model_opened"))
        assert n_opened > 2 * LOADED and len(server.events("model_closed")) > LOADED
        for name in [*(info.name for info in store.models())]:
            server.ask("POST", f"/v2/repository/models/{name}/unload", **AUTHORIZATION)
        wait_for(lambda: not mapped_files(server, store))


def test_a_damaged_model_and_an_unknown_one(tmp_path: Path) -> None:
    store, answers = models_of(tmp_path / "store")
    (store.root / "models" / "m3" / "versions" / "2" / "manifest.json").write_text("{")
    with ServerProcess(store.root, models_loaded=LOADED, preload="m1") as server:
        for name, status, code in (
            ("m3", 503, "model-unavailable"),
            ("m9", 404, "model-not-found"),
        ):
            answered = server.ask("POST", f"/v1/models/{name}/predict", BODY)
            assert (answered[0], answered[1]["code"]) == (status, code)
        status, answer = server.ask("POST", "/v1/models/m4/predict", BODY)
        assert (status, scored(answer)) == (200, answers["m4", 2])
        assert next(event["model"] for event in server.events("model_opened")) == "m1"
        with pytest.raises(StoreError):
            store.open("m3", 2)


def test_a_client_loads_and_unloads(tmp_path: Path) -> None:
    store, _ = models_of(tmp_path / "store")
    with (
        ServerProcess(store.root, models_loaded=LOADED, admin_key=KEY) as server,
        Client(f"http://127.0.0.1:{server.port}", KEY) as admin,
    ):

        def opened() -> set[str]:
            index = "/v2/repository/index"
            _, entries = server.ask("POST", index, {"ready": True}, **AUTHORIZATION)
            return {entry["name"] for entry in entries}

        admin.load_model("m5")
        assert opened() == {"m5"}
        admin.unload_model("m5")
        assert opened() == set()
        with pytest.raises(ProblemError, match="expected one of the store, found 'm99'"):
            admin.load_model("m99")
