"""The xylem command in processes of its own, and small files for it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

XYLEM = Path(sys.executable).with_name("xylem")
TOPICS = ("graphics", "network", "music", "science", "games", "mail", "text", "web")


def xylem(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command; of what it says that it compiles kernels is left out."""
    command = [str(XYLEM), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, **options
    )
    lines = done.stderr.splitlines(keepends=True)
    done.stderr = "".join(line for line in lines if not line.startswith("compiling kernels into"))
    return done


def complaints_of(err: str) -> str:
    """Return standard error but for the finding that rows were measured on themselves.

    Many tests do so on purpose.
    """
    lines = err.splitlines(keepends=True)
    return "".join(line for line in lines if not line.endswith("(repeated-rows)\n"))


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The object on the last line of a command's standard output;
    it succeeded and said nothing else, but for rows that it was measured on and had learnt.
    """
    assert (done.returncode, complaints_of(done.stderr)) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def lines_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_refused(done: subprocess.CompletedProcess[str], *words: str, status: int = 2) -> None:
    """It exited with `status` and one line on standard error that holds the words."""
    assert (done.returncode, len(done.stderr.splitlines())) == (status, 1), done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def rows(n: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows whose words tell their labels."""
    found = []
    for i in range(first, first + n):
        topics = sorted({TOPICS[i % 8], TOPICS[i * i % 8]})
        text = " ".join(
            [f"about {topic} and {topic}{i % 5}" for topic in topics] + [f"noise{i % 13}"]
        )
        found.append({"text": text, "labels": [f"topic::{topic}" for topic in topics]})
    return found
