"""The limit of open files, and whether any file can still be opened."""

import subprocess
import sys

import pytest

from xylem.server.descriptors import RESERVED_DESCRIPTORS


def said(code: str) -> subprocess.CompletedProcess[str]:
    script = f"""
import os, resource as r
from xylem.server.descriptors import are_used_up, raise_limit
{code}"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("connections", "is_told"),
    [(200 - RESERVED_DESCRIPTORS, False), (200 - RESERVED_DESCRIPTORS + 1, True)],
)
def test_a_limit_is_told_from_the_first_descriptor_that_lacks(
    connections: int, is_told: bool
) -> None:
    done = said(f"r.setrlimit(r.RLIMIT_NOFILE, (100, 200)); raise_limit({connections})")
    assert ("descriptors_few" in done.stderr) == is_told
    assert not is_told or f"expected a limit of {200 + 1} open files, found 200" in done.stderr


def test_a_limit_that_is_high_enough_stays() -> None:
    done = said(
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 256)); raise_limit(8); "
        "print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    assert (done.stdout, done.stderr) == ("(256, 256)\n", "")


def test_the_last_descriptor_is_the_difference_and_none_leaks() -> None:
    done = said("""
r.setrlimit(r.RLIMIT_NOFILE, (64, 64))
held = []
while not are_used_up():
    held.append(os.open(os.devnull, os.O_RDONLY))
print(max(held), are_used_up())
os.close(held.pop())
print(*(are_used_up() for _ in range(100)))
""")
    assert done.stdout.splitlines() == ["63 True", " ".join(["False"] * 100)]
