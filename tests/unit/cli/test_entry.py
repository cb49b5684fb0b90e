"""What all commands share: hang-ups, bars of progress, groups of
options, what shadows their packages.
"""

import inspect
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
import typer
from pydantic_core import SchemaValidator
from pydantic_core.core_schema import model_fields_schema, model_schema
from rich.console import Console
from tests.helpers.checkout import PACKAGES, SOURCE_ROOTS
from typer.testing import CliRunner

from xylem.base.bars import phase_bars
from xylem.base.parameters import scalar_of
from xylem.cli import application
from xylem.cli.console import as_option
from xylem.cli.options import grouped, in_panel
from xylem.trainers.source import Tools

SCRIPT = """
import signal, sys
import xylem.cli.entry
sys.modules["xylem.cli.application"] = type(sys)("xylem.cli.application")
wait = lambda: (print(end=sys.argv[1], flush=True), sys.stdin.readline())
sys.modules["xylem.cli.application"].main = wait
xylem.cli.entry.main()
"""


@pytest.mark.parametrize("command", ["serve", "train", "models", "train serve"])
def test_only_a_server_outlives_a_hang_up(command: str) -> None:
    """`xylem train serve` is none: it trains a trainer of that name."""
    started = [sys.executable, "-c", SCRIPT, *command.split()]
    process = subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.read(1)
    process.send_signal(signal.SIGHUP)
    process.communicate("\n", timeout=60)
    assert process.returncode == (0 if command == "serve" else -signal.SIGHUP)


LOST = """
import signal, sys, time, types, weakref
import xylem.cli.entry
application = sys.modules["xylem.cli.application"] = types.ModuleType("xylem.cli.application")

class Held:
    pass

def main():
    held = Held()
    reference = weakref.ref(held, lambda _: signal.raise_signal(signal.SIGINT))
    try:
        del held
        print("was ignored", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("came again")

application.main = main
xylem.cli.entry.main()
"""


def test_a_ctrl_c_that_python_ignores_comes_again() -> None:
    """It ignores what is raised in the callback of a weak reference."""
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "was ignored\ncame again\n", "")


OTHER = """
import sys, types
import xylem.cli.entry
application = sys.modules["xylem.cli.application"] = types.ModuleType("xylem.cli.application")

class Broken:
    def __del__(self):
        raise ValueError("of a finalizer")

application.main = Broken
xylem.cli.entry.main()
"""


def test_other_ignored_exceptions_are_reported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr.endswith("ValueError: of a finalizer\n")


def test_ctrl_c_while_pydantic_makes_a_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of which it makes an error of its own."""

    class Interrupted(type):
        @property
        def __name__(cls) -> str:
            raise KeyboardInterrupt

    model = model_schema(Interrupted("Model", (), {}), model_fields_schema({}))
    monkeypatch.setattr(
        "xylem.cli.application.with_options_of",
        lambda words, app: lambda standalone_mode: SchemaValidator(model),
    )
    assert (application.run(), capsys.readouterr().err) == (130, "xylem: interrupted\n")


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
    told = [
        ("read", 10, 10),
        ("classifiers, tree 1 of 2", 500, 500),
        ("classifiers, tree 2 of 2", 125, 500),
    ]
    lines = last_picture(told)[-3:]
    assert lines[0].startswith("in all") and "0:00:0" in lines[0]
    assert lines[1].startswith("read") and "100%" in lines[1] and "10 of 10" in lines[1]
    assert (
        lines[2].startswith("classifiers, tree 2 of 2")
        and " 25%" in lines[2]
        and "125 of 500" in lines[2]
    )
    assert lines[2].endswith("left") and "left" not in lines[1]


def test_the_first_line_counts_stages_if_they_are_known() -> None:
    told = [("in all", 0, 5), ("learning labels, 1", 3, 10), ("in all", 1, 5)]
    lines = last_picture(told, wait=0.02)[-2:]
    assert lines[0].startswith("in all") and " 20%" in lines[0]
    assert "left" not in lines[0] and "/s" not in lines[0], "stages take unequal times"
    assert lines[1].startswith("learning labels, 1") and " 30%" in lines[1]


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


@in_panel("How hard", common=("pace",))
class Work(NamedTuple):
    """Options of which one must be given."""

    name: Annotated[str, typer.Option(help="Whose.")]
    threads: Annotated[int, typer.Option(min=1, help="How many.")] = 2
    pace: Annotated[int, typer.Option(help="How fast.")] = 1


class Others(NamedTuple):
    """Options with defaults."""

    loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False


app = typer.Typer()


@app.command()
@grouped
def work(
    context: typer.Context,
    place: Annotated[str, typer.Argument()],
    work: Work,
    others: Others,
    last: Annotated[str, typer.Option()] = "z",
) -> None:
    """Work somewhere."""
    typer.echo(f"{place} {work} {others} {last} {context.get_parameter_source('threads').name}")  # type: ignore[union-attr]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_a_command_gets_its_options_as_groups() -> None:
    told = "here Work(name='a', threads=2, pace=1) Others(loud=False) z DEFAULT\n"
    assert run("here", "--name", "a") == (0, told)
    told = "here Work(name='a', threads=5, pace=1) Others(loud=True) q COMMANDLINE\n"
    assert run("here", "--name", "a", "--threads", "5", "--loud", "--last", "q") == (0, told)


def test_options_are_checked_and_shown_as_any() -> None:
    assert run("here")[0] == run("here", "--name", "a", "--threads", "0")[0] == 2
    code, text = run("--help")
    # what everybody needs comes first: the options of no panel, those that
    # must be given, and the common ones
    order = ("--name", "--pace", "--loud", "--last", "How hard", "--threads")
    shown = [text.index(option) for option in order]
    assert (code, shown) == (0, sorted(shown))
    assert "Work somewhere." in text and "--work" not in text


def test_two_options_of_one_name_are_a_fault_of_the_command() -> None:
    def twice(work: Work, again: Work) -> None: ...

    with pytest.raises(ValueError, match="name"):
        inspect.signature(grouped(twice))


@pytest.mark.parametrize("value", [True, False, None, 3, 0.25, 1e-05, "auto"])
def test_a_parameter_as_tables_show_it_can_be_given(value: object) -> None:
    assert scalar_of(as_option(value)) == value


VERSION = (
    "import sys; sys.path.pop(0); sys.argv.append('--version'); from xylem.command "
    "import main; main()"
)
"""The command as the installed script runs it."""


def python(folder: Path, script: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder; modules are looked for in the path, and in this checkout."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, *SOURCE_ROOTS)))}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_file_of_that_name_in_the_directory_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("raise SystemExit(7)")
    done = python(tmp_path, VERSION)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.strip()


@pytest.mark.parametrize(
    "name", ["service.py", "service/__init__.py", "model_store.py", "model_store/__init__.py"]
)
@pytest.mark.parametrize(
    "use", [VERSION, "import xylem; xylem.train, xylem.Client", "from xylem import load"]
)
def test_packages_of_the_user_are_not_in_the_way(tmp_path: Path, name: str, use: str) -> None:
    """Every second backend has a package `service`: ours are `xylem` and `xylem_store` alone."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit(7)")
    done = python(tmp_path, use, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_checkout_does_not_hide_what_is_installed(tmp_path: Path) -> None:
    """Its sources are one folder in: who runs Python in it imports
    the wheel, with the wheel's kernels.
    """
    for folder in ("service/xylem", "model_store/xylem_store"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("raise SystemExit(7)")
    done = python(tmp_path, "import xylem, xylem_store; print(xylem.__file__)")
    assert (done.stdout.strip(), done.stderr) == (str(PACKAGES[0] / "__init__.py"), "")
