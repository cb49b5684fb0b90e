"""Processes of jobs that misbehave; the job's `model` is the name of a function here.

They are run as `python -m tests.helpers.job_children`.
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
    """Allocate memory and write to it, until there is no more."""
    pieces = []
    while True:
        pieces.append(bytearray(os.urandom(1) * PIECE))


def eat_slowly() -> None:
    """Allocate memory slowly and write to it; only a process that watches this one notices."""
    pieces = []
    while True:
        pieces.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.002)


def eat_shared() -> None:
    """Write to 256 MiB of shared memory, which no process's data include, and keep it.

    With more, this process could reach its limit of processor time first.
    """
    maps = []
    for _ in range((256 << 20) // PIECE):
        shared = mmap.mmap(-1, PIECE)
        for place in range(0, PIECE, 4096):
            shared[place] = 1
        maps.append(shared)
        time.sleep(0.005)
    sleep()


def eat_in_a_child() -> None:
    """Let a child process allocate the shared memory."""
    subprocess.run(
        [sys.executable, "-c", "import tests.helpers.job_children as c; c.eat_shared()"], check=True
    )


def map_a_file() -> None:
    """Read more bytes of a mapped file than the limit of memory."""
    path = Path(os.environ["TMPDIR"]) / "large"
    with path.open("w+b") as file:
        file.truncate(128 << 20)
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        total = sum(mapped[place] for place in range(0, len(mapped), 4096))
    print(total)


def spin() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(3600)


def crash() -> None:
    """Die as of a segmentation fault."""
    os.kill(os.getpid(), signal.SIGSEGV)


def fail() -> None:
    sys.exit(3)


def fill_a_disk() -> None:
    with (Path(os.environ["TMPDIR"]) / "large").open("wb") as file:
        while True:
            file.write(b"x" * PIECE)


def fill_a_store() -> None:
    """Publish a version that exceeds the limit of a file, in the store of the work directory."""
    from tests.helpers.small_models import small_draft
    from xylem_store.errors import StoreUnwritable
    from xylem_store.store import Store

    try:
        Store(Path(os.environ["TMPDIR"]).parents[2]).publish(
            "m", small_draft(n_labels=300, n_features=900)
        )
    except StoreUnwritable as error:
        raise OSError(0, str(error)) from error


def wait_for_a_word() -> None:
    """Run until the file `go-on` exists."""
    while not (Path(os.environ["TMPDIR"]) / "go-on").exists():
        time.sleep(0.05)


def open_files() -> None:
    descriptors = []
    while True:
        descriptors.append(os.open(os.devnull, os.O_RDONLY))


def write_a_long_log() -> None:
    for number in range(4_000):
        print(f"line {number} " + 50 * "x")


def leave_a_child() -> None:
    """Print the number of a child process, and end without ending the child."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    print(f"left {child.pid}", flush=True)


def tell_number_and_sleep() -> None:
    """Print the number of this process, and run for ever."""
    print(f"left {os.getpid()}", flush=True)
    sleep()


def look_around() -> None:
    """Print the environment, the process group, the session and the priority."""
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
