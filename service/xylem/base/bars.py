"""Bars of progress, on a terminal or in a notebook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

OnProgress = Callable[[str, int, int], None]
"""Called with a phase's name, how much of it is done, and how much it is in all (0: not known)."""


@contextmanager
def shown_progress(is_enabled: bool) -> Iterator[OnProgress]:
    """Show bars while the block runs, if they are wanted and somebody sees standard error."""
    console = Console(stderr=True)
    if not is_enabled or not (console.is_terminal or console.is_jupyter):
        yield lambda phase, done, total: None
        return
    with phase_bars(console) as show:
        yield show


@contextmanager
def phase_bars(console: Console) -> Iterator[OnProgress]:
    """Show a bar a phase, how much of it, how fast and for how long, while the block runs.

    The first line's clock runs to the end. What follows a comma in a phase's name, as which tree of
    how many, is told by the same bar.
    """
    tasks: dict[str, tuple[TaskID, str]] = {}
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(20),
        TextColumn("{task.percentage:>3.0f}%"),
        RateColumn(),
        TimeElapsedColumn(),
        LeftColumn(),
    )
    with Progress(*columns, console=console) as bars:
        bars.add_task("in all", total=None)

        def show(phase: str, done: int, total: int) -> None:
            name = phase.partition(",")[0]
            task, previous_phase = tasks.get(name) or (bars.add_task(phase), phase)
            tasks[name] = task, phase
            if previous_phase != phase:  # the next tree
                bars.reset(task)
            bars.update(task, description=phase, completed=done, total=total or None)

        yield show


class RateColumn(ProgressColumn):
    """How much of a phase is done, of how much, and how fast: `1,200 of 8,000, 150/s`."""

    def render(self, task: Task) -> Text:
        """Return it; nothing of a phase of one step, whose speed says nothing."""
        if task.total is None or task.total <= 1:
            return Text("")
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.{0 if speed >= 10 else 1}f}/s"
        return Text(f"{task.completed:,.0f} of {task.total:,.0f}{rate}")


class LeftColumn(TimeRemainingColumn):
    """The time left of a phase, where it can be told."""

    def render(self, task: Task) -> Text:
        """Return it; nothing of a phase that is done, of one step, or without an end."""
        is_known = task.total is not None and task.total > 1 and not task.finished
        return Text.assemble(super().render(task), " left") if is_known else Text("")
