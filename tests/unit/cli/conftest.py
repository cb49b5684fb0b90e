"""What the tests of commands share: commands that run in this process over a store."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.helpers.commands import complaints_of


class Cli:
    """Runs commands over a store."""

    def __init__(self, run: Run, store: Path) -> None:
        self._run, self.store = run, store

    def __call__(self, *arguments: object, input: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command, however it ends."""
        return self._run(*arguments, store=self.store, input=input)

    def says(self, *arguments: object, input: str = "") -> str:
        """Run a command that succeeds; return what it says."""
        done = self(*arguments, input=input)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lines(self, *arguments: object, input: str = "") -> list[Any]:
        """Run a command that succeeds and writes lines of JSON; return what they hold."""
        return [json.loads(line) for line in self.says(*arguments, input=input).splitlines()]

    def answers(self, *arguments: object) -> Any:
        """Run a command that succeeds and complains of nothing; return its JSON, on
        the last line.
        """
        done = self(*arguments, "--json")
        assert (done.returncode, complaints_of(done.stderr)) == (0, "")
        return json.loads(done.stdout.splitlines()[-1])

    def refuses(self, fault: str, *arguments: object, input: str = "", status: int = 2) -> None:
        """Run a command that says nothing but one line, of what is wrong."""
        done = self(*arguments, input=input)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1), (
            done.stderr
        )
        assert fault in done.stderr


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where commands look for models: a place beside the test,
    unless a module has a store of its own.
    """
    return tmp_path / "store"


@pytest.fixture
def cli(run_here: Run, store: Path) -> Cli:
    """What runs commands over the store."""
    return Cli(run_here, store)
