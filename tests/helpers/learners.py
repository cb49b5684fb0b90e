"""Runs of `xylem learn` that are killed at a moment, by a process that forks them.

A moment is the beginning of a step, the first report of a stage of a step, or a renaming of a file:
whatever a run changes in a store, it changes by one.

python -m tests.helpers.learners DIRECTORY VERSION WHICH: kill the run that publishes a version, 1
or 2, at all moments ("all"), or at those that are no reports, and of a first version from its
publication on ("steps"); each time in a new store. Then let another run follow; of "steps" only if
the store is not as after the moment before. Prints a JSON list of what was there after both. The
parent has run once before it forks, so that a run takes about a second.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import xylem.workflows
from tests.helpers.recipes import recipe_in
from xylem.base.db.of_store import opened_database
from xylem.cli.application import application
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.workflows import learn as learning
from xylem_store.fs import FileSystem
from xylem_store.store import Store

Moment = Callable[[str], None]


def watch(moment: Moment) -> None:
    """Call a function before each step, stage and renaming of the runs of this process."""
    steps, rename, learn = learning.STEPS, FileSystem.rename, learning.learn_and_publish

    def stepped(step: Any, work: Any) -> Any:
        moment(step.__name__)
        return step(work)

    def watched_rename(files: FileSystem, source: Path, target: Path) -> None:
        moment(f"rename {target.name}")
        rename(files, source, target)

    def learn_and_publish(*arguments: Any) -> Any:
        *others, on_progress = arguments
        stages: set[str] = set()

        def watched_progress(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages.add(stage)
                moment(f"report {stage}")
            on_progress(stage, done, total)

        return learn(*others, watched_progress)

    learning.STEPS = tuple(partial(stepped, step) for step in steps)
    FileSystem.rename = watched_rename  # type: ignore[method-assign]
    xylem.workflows.learn_and_publish = learn_and_publish


def learn_in(home: Path) -> None:
    """Run the command in this process."""
    arguments = ["--recipe", home / "recipe.toml", "--threads", 1, "--json"]
    arguments += ["--store", home / "store"]
    application()(["learn", "m", *map(str, arguments)], standalone_mode=False)


def run_in_child(home: Path, deadly: int = -1) -> tuple[int, list[str]]:
    """Run the command in a forked process, which is killed before a moment.

    Return its status, and the moments that it reached.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.close(read_end)
            count = 0

            def moment(name: str) -> None:
                nonlocal count
                os.write(write_end, f"{name}\n".encode())
                if count == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

            watch(moment)
            learn_in(home)
            status = 0
        os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        moments = file.read().split("\n")[:-1]
    return os.waitpid(child, 0)[1], moments


def facts_of(home: Path) -> dict[str, Any]:
    """Return what a reader of the store sees, after every version was verified."""
    store = Store(home / "store")
    versions = store.versions("m")
    for version in versions:
        store.verify("m", version)
    latest = store.open("m").manifest.version if versions else 0
    with opened_database(store.root) as database:
        tuned = versions and ThresholdDatabase(database).load("m", latest)
    info = store.label_info("m") if versions else None
    return {
        "versions": versions,
        "latest": latest,
        "tuned": bool(tuned),
        "info": info is not None,
    }


def main(directory: Path, version: int, which: str) -> list[dict[str, Any]]:
    """Kill runs at each moment, and return what was there then, and after the next run."""
    base = directory / "base"
    base.mkdir()
    rule = "never" if version == 1 else {"least_change": -0.5}
    recipe = recipe_in(base, thresholds="instance", promotion=rule)
    (base / "recipe.toml").write_text(recipe.as_toml)
    learn_in(base)
    if version == 1:
        shutil.rmtree(base / "store")
    first = shutil.copytree(base, directory / "whole")
    status, moments = run_in_child(first)
    assert status == 0, moments
    outcomes = []
    first_number = 0 if version == 2 or which == "all" else moments.index("publish")
    for number, name in list(enumerate(moments))[first_number:]:
        if which == "steps" and name.startswith("report "):
            continue
        home = Path(shutil.copytree(base, directory / str(number)))
        status, reached = run_in_child(home, number)
        facts: dict[str, Any] = {
            "moment": name,
            "died": status == signal.SIGKILL and reached == moments[: number + 1],
            "killed": facts_of(home),
        }
        if which == "all" or [facts["killed"]] != [one["killed"] for one in outcomes[-1:]]:
            facts["status"], _ = run_in_child(home)
            Store(home / "store").collect()
            facts["next"] = facts_of(home)
            facts["left"] = len(list((home / "store" / "staging").iterdir()))
        outcomes.append(facts)
    return outcomes


if __name__ == "__main__":
    root, n, which_moments = sys.argv[1:]
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
        outcome = main(Path(root), int(n), which_moments)
    print(json.dumps(outcome))
