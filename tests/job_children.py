"""Processes of jobs that misbehave, each in its way: the job's `model` says which. Run
as `python -m tests.job_children`.
"""

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from xylem.admin.jobs.confinement import confine
from xylem.admin.jobs.messages import Reporter
from xylem.base.settings import Settings

PIECE = 8 << 20


def eat() -> None:
    """Ask for memory and touch it, until there is no more."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1) * PIECE))


def eat_slowly() -> None:
    """Touch memory that was asked for within the limit of what may be
    asked for: only who watches sees it.
    """
    kept = []
    while True:
        kept.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.002)


def eat_shared() -> None:
    """Touch 256 MiB of shared memory, which counts for nobody's data, and keep it.

    It ends there: eating on, this process could meet its limit of processor time first.
    """
    kept = []
    for _ in range((256 << 20) // PIECE):
        shared = mmap.mmap(-1, PIECE)
        for place in range(0, PIECE, 4096):
            shared[place] = 1
        kept.append(shared)
        time.sleep(0.005)
    sleep()


def eat_in_a_child() -> None:
    """Have a child of one's own touch the memory."""
    subprocess.run(
        [sys.executable, "-c", "import tests.job_children as c; c.eat_shared()"], check=True
    )


def map_a_file() -> None:
    """Touch more bytes of a mapped file than there may be memory."""
    path = Path(os.environ["TMPDIR"]) / "large"
    with path.open("w+b") as file:
        file.truncate(128 << 20)
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        found = sum(mapped[place] for place in range(0, len(mapped), 4096))
    print(found)


def spin() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(3600)


def crash() -> None:
    """Die as a fault of memory makes a process die."""
    os.kill(os.getpid(), signal.SIGSEGV)


def fail() -> None:
    sys.exit(3)


def fill_a_disk() -> None:
    with (Path(os.environ["TMPDIR"]) / "large").open("wb") as file:
        while True:
            file.write(b"x" * PIECE)


def fill_a_store() -> None:
    """Publish a version that is larger than a file may be, into the
    store that the work directory is in.
    """
    from tests.small_models import small_draft
    from xylem_store.errors import StoreUnwritable
    from xylem_store.store import Store

    try:
        Store(Path(os.environ["TMPDIR"]).parents[2]).publish(
            "m", small_draft(n_labels=300, n_features=900)
        )
    except StoreUnwritable as error:
        raise OSError(0, str(error)) from error


def wait_for_a_word() -> None:
    """Go on until somebody makes a file."""
    while not (Path(os.environ["TMPDIR"]) / "go-on").exists():
        time.sleep(0.05)


def open_files() -> None:
    kept = []
    while True:
        kept.append(os.open(os.devnull, os.O_RDONLY))


def write_a_long_log() -> None:
    for number in range(4_000):
        print(f"line {number} " + 50 * "x")


def leave_a_child() -> None:
    """End, and leave a process of one's own behind, its number on standard output."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    print(f"left {child.pid}", flush=True)


def tell_number_and_sleep() -> None:
    """Say which process one is, and go on for ever."""
    print(f"left {os.getpid()}", flush=True)
    sleep()


def look_around() -> None:
    """Say what one was started with."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("XYLEM_")}
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    group, session, nice = (int(stat[place]) for place in (2, 3, 16))
    print(json.dumps({"environment": ours, "group": group, "session": session, "nice": nice}))


def main() -> None:
    messages, parent = int(sys.argv[1]), int(sys.argv[2])
    order = json.loads(sys.stdin.buffer.readline())
    confine(Settings(**order["settings"]).limits, parent)
    reporter = Reporter(messages)
    reporter.progress("begin", 1, 3)
    try:
        globals()[order["model"].replace("-", "_")]()
    except MemoryError:
        reporter.error("MemoryError", "memory")
        sys.exit(1)
    except OSError as error:
        reporter.error(error.strerror or "", "os-error")
        sys.exit(1)
    reporter.progress("begin", 3, 3)
    reporter.result({"done": True})


if __name__ == "__main__":
    main()
