"""Bars of phases: how much, how fast, how long, and which tree of how many, on one line each."""

from __future__ import annotations

import io
import re
import time

from rich.console import Console

from service.cli.console import phase_bars
from service.trainers.work import Tools


def last_picture(told: list[tuple[str, int, int]], wait: float = 0.0) -> list[str]:
    """The lines that stand when the last bar was drawn."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    with phase_bars(console) as show:
        for phase, done, total in told:
            show(phase, done, total)
            time.sleep(wait)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", screen.getvalue())
    return [line.strip() for line in drawn.replace("\r", "\n").splitlines() if line.strip()]


def test_a_phase_has_one_bar_whatever_its_trees() -> None:
    told = [("read", 10, 10), ("classifiers, tree 1 of 2", 500, 500), ("classifiers, tree 2 of 2", 125, 500)]
    lines = last_picture(told)[-3:]
    assert lines[0].startswith("in all") and "0:00:0" in lines[0]
    assert lines[1].startswith("read") and "100%" in lines[1] and "10 of 10" in lines[1]
    assert lines[2].startswith("classifiers, tree 2 of 2") and " 25%" in lines[2] and "125 of 500" in lines[2]
    assert lines[2].endswith("left") and "left" not in lines[1]


def test_a_rate_is_told_once_it_is_known() -> None:
    lines = last_picture([("rows", done, 8000) for done in (0, 2000, 4000, 6000)], wait=0.02)
    assert re.search(r"6,000 of 8,000, [\d,]+/s", lines[-1])


def test_phases_of_one_step_and_of_no_known_end_tell_no_rate() -> None:
    lines = last_picture([("publish", 1, 1), ("standard input", 300, 0)])[-2:]
    assert lines[0].startswith("publish") and " of " not in lines[0]
    assert lines[1].startswith("standard input") and "/s" not in lines[1] and "left" not in lines[1]


def test_one_tree_is_not_counted() -> None:
    told: list[tuple[str, int, int]] = []
    tools = Tools(progress=lambda *seen: told.append(seen))
    tools.of_tree(0, 1).progress("classifiers", 1, 2)
    tools.of_tree(1, 3).progress("classifiers", 1, 2)
    assert told == [("classifiers", 1, 2), ("classifiers, tree 2 of 3", 1, 2)]
