"""What goes wrong while clients ask: each fault lasts a while and
is over when its function returns.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.disturbed import Disturbance, Network
from tests.helpers.replicas import Replica

CLOCK_SECONDS = 3600
"""The clock of the day jumps by so much at most; 30 days on, the numbers of events
are forgotten.
"""


@dataclass
class Stage:
    """What can be broken."""

    store: Path
    replicas: list[Replica]
    random: random.Random
    seconds: float
    disturbance: Disturbance
    network: Network | None
    database_pid: int | None
    small_disk: Path | None
    """A directory of the file system that store and data are on, if
    that is small enough to be filled.
    """


Fault = Callable[[Stage], None]


def killed(stage: Stage) -> None:
    """kill -9 of a replica, which is started again."""
    replica = stage.random.choice(stage.replicas)
    replica.stop(signal.SIGKILL)
    time.sleep(stage.seconds)
    replica.start()


def restarted(stage: Stage) -> None:
    """SIGTERM of a replica, which ends in order and is started again."""
    replica = stage.random.choice(stage.replicas)
    assert replica.stop(signal.SIGTERM) == 0, replica.log()
    replica.start()


def stopped(stage: Stage) -> None:
    """A replica that stands still: SIGSTOP."""
    replica = stage.random.choice(stage.replicas)
    replica.process.send_signal(signal.SIGSTOP)
    time.sleep(stage.seconds)
    replica.process.send_signal(signal.SIGCONT)


def slow_disk(stage: Stage) -> None:
    """Each write to a disk waits for 20 to 200 ms."""
    stage.disturbance.set(disk_seconds=stage.random.uniform(0.02, 0.2))
    time.sleep(stage.seconds)
    stage.disturbance.set()


def clock_jumps(stage: Stage) -> None:
    """The clock of the day jumps to and fro."""
    until = time.monotonic() + stage.seconds
    while time.monotonic() < until:
        stage.disturbance.set(clock_seconds=stage.random.uniform(-CLOCK_SECONDS, CLOCK_SECONDS))
        time.sleep(0.2)
    stage.disturbance.set()


def full_disk(stage: Stage) -> None:
    """The file system of store, data and SQLite is full to the last byte."""
    assert stage.small_disk
    filler = stage.small_disk / "filler"
    with filler.open("wb", buffering=0) as out:
        size = 1 << 20
        while size:
            try:
                out.write(bytes(size))
            except OSError:
                size //= 2
        time.sleep(stage.seconds)
    filler.unlink()


def database_stands(stage: Stage) -> None:
    """SIGSTOP of PostgreSQL, all of its processes."""
    assert stage.database_pid
    children = Path(f"/proc/{stage.database_pid}/task/{stage.database_pid}/children").read_text()
    pids = [stage.database_pid, *map(int, children.split())]
    _send(pids, signal.SIGSTOP)
    time.sleep(stage.seconds)
    _send(pids, signal.SIGCONT)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a connection's process that has ended
            os.kill(pid, number)


def connections_cut(stage: Stage) -> None:
    """All connections to the database break, again and again."""
    assert stage.network
    until = time.monotonic() + stage.seconds
    while time.monotonic() < until:
        stage.network.cut()
        time.sleep(stage.random.uniform(0.05, 0.3))


def network(state: str) -> Fault:
    """The fault of a network between replicas and database in a state."""

    def fault(stage: Stage) -> None:
        assert stage.network
        stage.network.state = state
        time.sleep(stage.seconds)
        stage.network.state = "flows"

    fault.__name__ = f"network_{state}"
    return fault


def possible(stage: Stage) -> list[Fault]:
    """The faults that can be had on a stage."""
    found: list[Fault] = [killed, restarted, stopped, slow_disk, clock_jumps]
    if stage.small_disk:
        found.append(full_disk)
    if stage.network:
        found += [database_stands, connections_cut]
        found += map(network, ("stands", "slow", "halves", "refuses"))
    return found
