"""The collector waits while a server begins, is as usual afterwards, and never looks at what was there."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc
usual = gc.get_threshold()
from service.base.process import collect_seldom, settle
collect_seldom()
assert gc.get_threshold() > usual
there = [[] for _ in range(1000)]
assert gc.get_freeze_count() == 0
settle()
assert gc.get_threshold() == usual
assert gc.get_freeze_count() > 1000
"""

BEGINS = """
import gc, sys
import service.cli.entry
sys.modules["service.cli"] = type(sys)("service.cli")
sys.modules["service.cli"].main = lambda: print(gc.get_threshold()[0] > 5000)
service.cli.entry.main()
"""


def test_what_there_is_stays() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


@pytest.mark.parametrize(("command", "seldom"), [("serve", True), ("predict", True), ("tune", False)])
def test_some_commands_begin_without_it(command: str, seldom: bool) -> None:
    asked = [sys.executable, "-c", BEGINS, command]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert done.stdout == f"{seldom}\n"
