"""R5: an open model reads the same bytes, whatever other processes do to its store.

python -m tests.helpers.mappers churn ROOT ROUNDS SEED: processes that are killed at random moments
do random operations. python -m tests.helpers.mappers truncate ROOT 0 0: cut mapped files, as no
operation of a store does. The parent process maps versions and reads them again after each round:
it counts those whose bytes changed, and dies of SIGBUS if a mapped file was cut. It prints one JSON
object.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft
from xylem_store.errors import StoreError
from xylem_store.store import Store
from xylem_store.version import Model

DRAFTS = [small_draft(seed, n_labels=3, n_features=40, n_trees=1) for seed in range(3)]
NAMES = ["a", "b"]
OPEN_MAX = 12
CHANGES_MAX = 12
OPENED_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC


def digest(model: Model) -> str:
    content = b"".join(array.tobytes() for _, array in sorted(model.arrays.items()))
    return hashlib.sha256(content).hexdigest()


def change_one_thing(store: Store, rng: random.Random) -> None:
    """Do one random operation; if it is refused, nothing is done."""
    name, other = rng.choice(NAMES), rng.choice(NAMES)
    with contextlib.suppress(StoreError):
        match rng.randrange(7):
            case 0 | 1:
                store.publish(name, rng.choice(DRAFTS))
            case 2:
                store.promote(
                    name, rng.choice(store.versions(name)), rng.choice(["latest", "stable"])
                )
            case 3:
                store.rollback(name)
            case 4 | 5:
                for version in store.versions(name)[:-2]:
                    with contextlib.suppress(StoreError):
                        store.delete(name, version)
                store.collect()
            case 6:
                file = io.BytesIO()
                store.export(name, rng.choice(store.versions(name)), file)
                file.seek(0)
                store.import_(file, other)


def watch_writes(root: Path) -> None:
    """End this process if it opens an existing file of a version for writing, or cuts a file."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.truncate" or (event == "open" and (arguments[2] or 0) & OPENED_FOR_WRITING):
            path = str(arguments[0])
            if f"{root}/models/" in path and "/versions/" in path and Path(path).exists():
                os.write(2, f"{event} {path}\n".encode())
                os._exit(3)

    sys.addaudithook(look)


def churn_for_ever(root: Path, seed: int, ready: int) -> None:
    watch_writes(root)
    store, rng = Store(root, fs=QuickFileSystem()), random.Random(seed)
    while True:
        change_one_thing(store, rng)
        os.write(ready, b"!")


def churn(root: Path, rounds: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    store = Store(root)
    for name in NAMES:
        store.publish(name, DRAFTS[0])
    open_models: list[tuple[Model, str]] = []
    counts = {"changed": 0, "forbidden": 0, "outlived": 0, "opened": 0}
    for number in range(rounds):
        for name in NAMES:
            with contextlib.suppress(StoreError):
                model = store.open(name, rng.choice(store.versions(name)))
                open_models.append((model, digest(model)))
                counts["opened"] += 1
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            churn_for_ever(root, seed + number, write_end)
        os.close(write_end)
        for _ in range(rng.randint(1, CHANGES_MAX)):
            if not os.read(read_end, 1):  # it has ended itself
                break
        counts["changed"] += sum(
            digest(model) != digest_when_opened for model, digest_when_opened in open_models
        )  # while it goes on
        os.kill(child, signal.SIGKILL)
        counts["forbidden"] += os.waitpid(child, 0)[1] != signal.SIGKILL
        os.close(read_end)
        counts["changed"] += sum(
            digest(model) != digest_when_opened for model, digest_when_opened in open_models
        )
        present = {(name, version) for name in NAMES for version in store.versions(name)}
        counts["outlived"] += sum(
            (m.manifest.model, m.manifest.version) not in present for m, _ in open_models
        )
        open_models = open_models[-OPEN_MAX:]
    return counts


def truncate(root: Path, rounds: int, seed: int) -> dict[str, Any]:
    store = Store(root)
    store.publish("a", DRAFTS[0])
    model = store.open("a")
    for file in root.rglob("*.npy"):
        file.chmod(0o644)
        os.truncate(file, 0)
    return {"digest": digest(model)}


if __name__ == "__main__":
    action = {"churn": churn, "truncate": truncate}[sys.argv[1]]
    print(json.dumps(action(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
