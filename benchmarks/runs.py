"""What the tables share: trainings that are done once, figures of
several runs, and how they are printed.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.data import Prepared
from benchmarks.systems import Failed, Figures, System
from xylem_store.ensemble import Weights

console = Console(width=140, highlight=False)


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    data: list[Prepared]
    out: Path
    threads: int
    repeats: int
    systems: Sequence[System]
    labels: Sequence[int]
    weights: Weights
    trainers: Sequence[str]
    against: Path | None = None
    directories: Sequence[Path] = ()
    trains: bool = False
    command: str = field(
        default_factory=lambda: shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    )


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def figures_file(system: System, work: Path) -> Path:
    return work / f"{Path(system.found).stem}.json"


def train(system: System, data: Prepared, threads: int) -> Figures:
    """Train, and keep the figures beside the model."""
    note(f"{data.name}: {system.name} trains")
    figures = system.run("train", data.work, "--threads", str(threads))
    figures_file(system, data.work).write_text(json.dumps(figures))
    return figures


def trained(system: System, data: Prepared, threads: int) -> Figures:
    """Return the figures of the training that left the model
    there, having trained if there is none.
    """
    kept = figures_file(system, data.work)
    return json.loads(kept.read_text()) if kept.exists() else train(system, data, threads)


def able(settings: Settings, data: Prepared) -> list[System]:
    """Return the systems that can train on a data set; a peer that
    cannot is left out, and that is said.
    """
    found = []
    for system in settings.systems:
        try:
            trained(system, data, settings.threads)
        except Failed as failure:
            if system.name.startswith("Xylem"):
                raise
            note(f"{data.name}: {system.name} is left out, it cannot train on it: {failure}")
        else:
            found.append(system)
    return found


def predict(system: System, data: Prepared, threads: int) -> Figures:
    trained(system, data, threads)
    note(f"{data.name}: {system.name} predicts")
    return system.run("predict", data.work)


def in_fresh_process(table: str, *arguments: str) -> Figures:
    """Return the figures that the module of a table, called alone
    with these arguments, prints as JSON.
    """
    command = [sys.executable, "-m", f"benchmarks.{table}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{table}: {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    found: Figures = json.loads(done.stdout)
    return found


def spread(values: Sequence[float], digits: int) -> str:
    """Return the median, with the range when there is one."""
    middle = f"{median(values):,.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def show(
    settings: Settings, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table and the command that made it."""
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"$ {settings.command}\n", markup=False, style="dim")
