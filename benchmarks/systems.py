"""The systems that are compared, ours and the peers: all run alike, in fresh processes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.environments import HERE, NotInstalled, python_of

Figures = dict[str, float]


class Failed(Exception):
    """A system that did not do what it was run for; the message has the end of what it said."""


@dataclass(frozen=True)
class System:
    """A system with its options; `name` is what tables call it,
    `found` the file of its predictions.
    """

    name: str
    command: Callable[[], list[str]]
    options: tuple[str, ...]
    found: str

    def run(self, what: str, work: Path, *options: str) -> Figures:
        """Run `train` or `predict` on the rows in `work`, and return its figures.

        Of a figure that it prints several times, for variants of itself, the least counts.
        """
        command = [*self.command(), what, str(work), *self.options, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{self.name}: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
        figures: Figures = {}
        for line in done.stdout.splitlines():
            if line.startswith('{"figure"'):
                said = json.loads(line)
                figures[said["figure"]] = min(
                    said["value"], figures.get(said["figure"], said["value"])
                )
        return figures


def _ours() -> list[str]:
    return [sys.executable, "-m", "benchmarks.ours"]


def _peer(name: str) -> Callable[[], list[str]]:
    return lambda: [str(python_of(name)), str(HERE / f"{name}_peer.py")]


OURS = System("Xylem, 1 tree", _ours, ("--trees", "1"), "xylem-1.found.npz")
OURS_3 = System("Xylem, 3 trees", _ours, ("--trees", "3"), "xylem-3.found.npz")
LIBPECOS = System("libpecos 1.2.8", _peer("libpecos"), (), "libpecos.found.npz")
OMIKUJI = System("omikuji 0.5.2, 1 tree", _peer("omikuji"), ("--trees", "1"), "omikuji-1.found.npz")
OMIKUJI_3 = System(
    "omikuji 0.5.2, 3 trees", _peer("omikuji"), ("--trees", "3"), "omikuji-3.found.npz"
)
NAPKINXC = System("napkinXC 0.7.2", _peer("napkinxc"), (), "napkinxc.found.npz")
LIBMULTILABEL = System(
    "LibMultiLabel 0.10.0", _peer("libmultilabel"), (), "libmultilabel.found.npz"
)

SYSTEMS = (OURS, LIBPECOS, OMIKUJI, NAPKINXC, LIBMULTILABEL, OURS_3, OMIKUJI_3)


def installed(systems: Iterable[System]) -> list[System]:
    """Return the systems that are installed, now if need be; say which cannot be, and why."""
    found = []
    for system in systems:
        try:
            system.command()
            found.append(system)
        except NotInstalled as reason:
            print(f"{system.name} is left out, it cannot be installed: {reason}", flush=True)
    return found
