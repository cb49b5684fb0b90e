"""R1: publishers that are killed at random moments, by a process that forks them.

A publisher is killed after a number of calls of the file system, not after a time, so that it is
within a publication on any machine.

python -m tests.helpers.publishers kill ROOT ROUNDS SEED: kill -9 one publisher in each round, and
check the store. python -m tests.helpers.publishers race ROOT PROCESSES PUBLICATIONS: several
processes publish the same model at the same time, each that often. Each prints one JSON object. The
parent has loaded everything before it forks, so that a round takes milliseconds.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.helpers.faulty_fs import FaultyFileSystem
from tests.helpers.small_models import small_draft
from xylem_store.errors import ModelNotFound
from xylem_store.fs import FileSystem
from xylem_store.store import Store
from xylem_store.version import Draft

PUBLICATIONS_MAX = 2
"""A publisher is killed when it has published and promoted about this often, or before."""


class SignallingFileSystem(FaultyFileSystem):
    """A file system that writes a byte to a pipe before each call."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._calls = calls

    def _call(self, name: str, *arguments: Any) -> Any:
        os.write(self._calls, b"!")
        return getattr(FileSystem, name)(self, *arguments)


def publish_for_ever(root: Path, draft: Draft, calls: int) -> None:
    store = Store(root, fs=SignallingFileSystem(calls))
    while True:
        store.publish("m", draft)
        store.promote("m", store.resolve("m"), "stable")


def kill_after(calls: int, run: Callable[[int], object]) -> None:
    """Call a function in a forked process; kill the process after `calls` calls or at its end.

    run  the function; it gets the descriptor of a pipe, and writes a byte for each call
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        run(write_end)
        os._exit(0)
    os.close(write_end)
    for _ in range(calls):
        if not os.read(read_end, 1):
            break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read_end)


def latest(store: Store) -> int:
    try:
        return store.open("m").manifest.version
    except ModelNotFound:
        return 0


def kill(root: Path, rounds: int, seed: int) -> dict[str, Any]:
    """Kill publishers; count stores that cannot be served, and steps back to older versions."""
    draft, rng = small_draft(n_labels=3, n_features=40, n_trees=1), random.Random(seed)
    Store(root).publish("warm", draft)
    Store(root).open("warm")
    counted = Store(root, fs=(counting := FaultyFileSystem()))
    counted.publish("counted", draft)
    counted.promote("counted", 1, "stable")
    calls_max = PUBLICATIONS_MAX * len(counting.log)
    counts = {"published": 0, "unservable": 0, "backwards": 0, "abandoned": 0, "left": 0}
    for _ in range(rounds):
        kill_after(rng.randint(1, calls_max), partial(publish_for_ever, root, draft))
        store = Store(root)
        counts["abandoned"] += len(list((root / "staging").iterdir()))
        try:
            now = latest(store)
            for version in store.versions("m")[-2:]:
                store.verify("m", version)
        except Exception as error:
            counts["unservable"] += 1
            print(error, file=sys.stderr)
            continue
        counts["backwards"] += now < counts["published"]
        counts["published"] = now
        if now > 40:
            for version in store.versions("m")[:-3]:
                if version not in [store.resolve("m"), store.resolve("m", "stable")]:
                    store.delete("m", version)
    store = Store(root)
    store.collect()
    counts["left"] = len(list((root / "staging").iterdir()))
    return counts


def race(root: Path, processes: int, n_publications: int) -> dict[str, Any]:
    """Publish from several processes at the same time, while another one collects garbage."""
    draft = small_draft(n_labels=3, n_features=40, n_trees=1)
    Store(root).publish("warm", draft)
    children = []
    for number in range(processes + 1):
        child = os.fork()
        if child == 0:
            for _ in range(n_publications):
                Store(root).collect() if number == processes else Store(root).publish("m", draft)
            os._exit(0)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    store = Store(root)
    for version in store.versions("m"):
        store.verify("m", version)
    return {"statuses": statuses, "versions": store.versions("m"), "latest": store.resolve("m")}


if __name__ == "__main__":
    action = {"kill": kill, "race": race}[sys.argv[1]]
    print(json.dumps(action(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
