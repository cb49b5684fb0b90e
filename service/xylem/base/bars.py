"""Progress bars, on a terminal or in a notebook."""

from collections.abc import Iterator
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

from xylem.base.progress import IN_ALL, OnProgress


@contextmanager
def progress_bar(is_enabled: bool) -> Iterator[OnProgress]:
    """Show progress bars while the block runs, if standard error is a terminal or a notebook.

    Yields the callback that reports progress; it does nothing if no bars are shown.
    """
    console = Console(stderr=True)
    if not is_enabled or not (console.is_terminal or console.is_jupyter):
        yield lambda phase, done, total: None
        return
    with phase_bars(console) as show:
        yield show


@contextmanager
def phase_bars(console: Console) -> Iterator[OnProgress]:
    """Show a bar for each phase while the block runs: how much is done, how fast, and the time.

    Yields the callback that reports progress. The first line shows the time of all phases. Phases
    whose names differ only after a comma, such as the number of a tree, share one bar.
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
        tasks[IN_ALL] = bars.add_task(IN_ALL, total=None), IN_ALL

        def show(phase: str, done: int, total: int) -> None:
            name = phase.partition(",")[0]
            task, previous_phase = tasks.get(name) or (bars.add_task(phase), phase)
            tasks[name] = task, phase
            if previous_phase != phase:  # another phase of the same bar, as the next tree
                bars.reset(task)
            bars.update(task, description=phase, completed=done, total=total or None)

        yield show


class RateColumn(ProgressColumn):
    """A column with the amount done, the total and the speed: `1,200 of 8,000, 150/s`."""

    def render(self, task: Task) -> Text:
        """Return the text; empty for stages and a phase of one step: their speed means nothing."""
        if task.total is None or task.total <= 1 or task.description == IN_ALL:
            return Text("")
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else f", {speed:,.{0 if speed >= 10 else 1}f}/s"
        return Text(f"{task.completed:,.0f} of {task.total:,.0f}{rate}")


class LeftColumn(TimeRemainingColumn):
    """A column with the time left of a phase, where it can be estimated."""

    def render(self, task: Task) -> Text:
        """Return the text; empty for a phase that is finished, has one step, or no known end."""
        is_known = task.total is not None and task.total > 1 and not task.finished
        # stages take unequal times, so the time left of all of them is not known
        has_estimate = is_known and task.description != IN_ALL
        return Text.assemble(super().render(task), " left") if has_estimate else Text("")
