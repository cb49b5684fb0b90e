"""What a hang-up does to commands: a server ignores it from its first moment, nothing else does."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal, sys
import service.cli.entry
sys.modules["service.cli"] = type(sys)("service.cli")  # imported after the signal is seen to
sys.modules["service.cli"].main = lambda: (print(end=sys.argv[1], flush=True), sys.stdin.readline())
service.cli.entry.main()
"""


@pytest.mark.parametrize(
    ("command", "status"), [("serve", 0), ("train", -signal.SIGHUP), ("models", -signal.SIGHUP)]
)
def test_only_a_server_outlives_a_hang_up(command: str, status: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.read(1)
    process.send_signal(signal.SIGHUP)
    process.communicate("\n", timeout=60)
    assert process.returncode == status


def test_a_word_after_the_command_makes_no_server() -> None:
    """`xylem train serve` trains a trainer of that name: a hang-up ends it."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.replace("sys.argv[1]", "str(signal.getsignal(signal.SIGHUP))"),
            "train",
            "serve",
        ],
        input="\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == str(signal.SIG_DFL)
