"""The first steps of a process: SIGTERM where it is the first of a
container, variables of libraries.
"""

import os
import subprocess
import sys

import pytest
from tests.helpers.first_process import FirstProcess, is_available

from xylem.base.processors import n_processors
from xylem.base.start import TERMINATED, prepare

needs_namespace = pytest.mark.skipif(
    not is_available(), reason="needs a PID namespace (root, unshare)"
)

START = "import os, signal, sys, threading, time; from xylem.base.start import prepare; prepare()"
READY = "print(end='x', flush=True)"
BUSY = {
    "in Python": "while True: pass",
    "in a system call": "time.sleep(3600)",
    "in a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "in what swallows exceptions": "\n".join(
        ("class Swallows:", "    def __del__(self): time.sleep(3600)", "del [Swallows()][0]")
    ),
}


def end_of(*lines: str) -> int:
    """The status of a first process that gets SIGTERM once it is ready."""
    code = "\n".join((START, *lines))
    with FirstProcess([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.read(1) == b"x"
        return process.terminate()


@needs_namespace
@pytest.mark.parametrize("where", BUSY)
def test_sigterm_ends_the_first_process_wherever_it_is(where: str) -> None:
    assert end_of(READY, BUSY[where]) == TERMINATED


@needs_namespace
def test_a_later_handler_is_the_one_that_holds() -> None:
    assert (
        end_of("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))", READY, "time.sleep(3600)")
        == 0
    )


def test_other_processes_leave_the_signal_to_the_system() -> None:
    code = f"{START}; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


REMOVED = (
    "NUMBA_DISABLE_JIT",
    "NUMBA_NUM_THREADS",
    "PROMETHEUS_MULTIPROC_DIR",
    "prometheus_multiproc_dir",
    "FASTAPI_OTEL_AUTO_CONFIGURE",
    "WEB_CONCURRENCY",
    "OTEL_PROPAGATORS",
    "OTEL_PYTHON_CONTEXT",
    "OTEL_PYTHON_TRACER_PROVIDER",
)
RETAINED = (
    "NUMBA_BOUNDSCHECK",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "PROMETHEUS_DISABLE_CREATED_SERIES",
    "XYLEM_STORE",
    "A_NUMBA_OPT",
)


def test_variables_that_would_break_us_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*REMOVED, *RETAINED):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # what somebody has set holds
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    prepare()
    assert not set(REMOVED) & os.environ.keys() and set(RETAINED) <= os.environ.keys()
    assert (os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]) == (
        "7",
        str(n_processors()),
    )
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
