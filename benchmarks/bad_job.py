"""A job that misbehaves as its model's name says: `python -m benchmarks.bad_job`, as a worker starts it."""

from __future__ import annotations

import json
import os
import signal
import sys
from multiprocessing import Process
from pathlib import Path

from service.jobs.confinement import confine
from service.jobs.messages import settings_of_json

_PIECE = 8 << 20


def spin() -> None:
    """Compute for ever, on all processors."""
    others = [Process(target=_spin, daemon=True) for _ in range(len(os.sched_getaffinity(0)) - 1)]
    for other in others:
        other.start()
    _spin()


def eat() -> None:
    """Touch memory until there is no more."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1) * _PIECE))


def fill() -> None:
    """Write a file until nobody lets us."""
    with (Path(os.environ["TMPDIR"]) / "large").open("wb") as file:
        while True:
            file.write(b"x" * _PIECE)


def crash() -> None:
    """Die as a fault of memory makes a process die."""
    os.kill(os.getpid(), signal.SIGSEGV)


WAYS = {function.__name__: function for function in (spin, eat, fill, crash)}


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    order = json.loads(sys.stdin.buffer.readline())
    confine(settings_of_json(order["settings"]).limits, int(sys.argv[2]))
    WAYS[order["model"]]()
