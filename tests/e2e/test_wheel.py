"""A wheel with kernels, installed in a virtual environment of its own: `make wheel-test`.

Skips where it is not asked for: WHEEL names the wheel.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from pathlib import Path

import pytest
from tests.helpers.kernel_processes import RECORDER

from xylem_store.compiled.processors import levels_here

ROOT = Path(__file__).resolve().parents[2]
WHEEL = os.environ.get("WHEEL")
BYTES_MAX = 30_000_000
DATA = ROOT / "examples" / "debtags" / "test.jsonl.gz"
NOWHERE = {"HOME": "/dev/null", "TMPDIR": "/dev/null/none", "XYLEM_KERNEL_CACHE": "/dev/null/none"}
"""Where nothing can be written, kernels could not be kept either."""

EVERYTHING = f"""
import sys
from pathlib import Path
from xylem.server.warm.kernels import jobs, warm
{RECORDER}
for job in jobs(Path(sys.argv[1])):
    warm(job)
print([function.__qualname__ for function in recorder.compiled])
"""

pytestmark = pytest.mark.skipif(
    WHEEL is None, reason="a wheel takes minutes to build: make wheel-test"
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with what is pinned and the wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    pip = [
        directory / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "-q",
        "install",
    ]
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / "requirements.txt"], check=True)
    subprocess.run([*pip, "--no-deps", str(WHEEL)], check=True)
    return directory / "bin" / "python"


def ran(directory: Path, *command: str | Path, stdin: str = "", **changes: str) -> tuple[str, str]:
    """What a command that ends well says where nothing but `directory` can be written."""
    env = {**os.environ, **NOWHERE, **changes}
    done = subprocess.run(
        command, cwd=directory, env=env, input=stdin, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_it_is_small_and_has_two_levels_of_instructions() -> None:
    assert Path(str(WHEEL)).stat().st_size <= BYTES_MAX
    names = zipfile.ZipFile(str(WHEEL)).namelist()
    levels = re.findall(r"shipped/python[^/]+numpy[\d.]+-([^/]+)/", "\n".join(names))
    assert set(levels) >= set(levels_here())
    assert not [name for name in names if name.endswith(".lock")]


def test_every_trainer_and_answer_finds_its_kernels(python: Path, tmp_path: Path) -> None:
    said, _ = ran(tmp_path, python, "-c", EVERYTHING, tmp_path, TMPDIR=str(tmp_path))
    assert said.splitlines()[-1] == "[]"


def test_every_command_compiles_nothing(python: Path, tmp_path: Path) -> None:
    """Every trainer and command, and Python; with the packages that are extras of the wheel."""
    script, extras = ROOT / "tests/helpers/every_command.py", sysconfig.get_path("purelib")
    (tmp_path / "made").mkdir()
    said, _ = ran(tmp_path, python, script, DATA, tmp_path / "made", extras, TMPDIR=str(tmp_path))
    assert said.splitlines() == ["compiled:"]


def test_another_patch_of_numpy_compiles_nothing(python: Path, tmp_path: Path) -> None:
    """The patch release before the one that the kernels were compiled with."""
    version = "import numpy; print(numpy.__version__)\n"
    minor, _, patch = ran(tmp_path, python, "-c", version)[0].strip().rpartition(".")
    if patch == "0":
        pytest.skip(f"numpy {minor}.0 has no patch before it")
    other = f"{minor}.{int(patch) - 1}"
    folder = tmp_path / "numpy"
    pip = "-m", "pip", "-q", "install", "--no-deps", "--target", folder, f"numpy=={other}"
    subprocess.run([python, *pip], check=True)
    script = version + EVERYTHING
    changes = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(folder)}
    said, _ = ran(tmp_path, python, "-c", script, tmp_path, **changes)
    assert (said.splitlines()[0], said.splitlines()[-1]) == (other, "[]")


def test_the_commands_compile_nothing(python: Path, tmp_path: Path) -> None:
    xylem, store = python.with_name("xylem"), ("--store", tmp_path / "store")
    files = ("--data", DATA, "--valid", DATA)
    _, said = ran(tmp_path, xylem, "train", "label-tree", *files, "--model", "m", *store)
    assert "compiling" not in said
    answer, said = ran(tmp_path, xylem, "predict", "m", *store, stdin='{"text": "a game"}\n')
    assert "compiling" not in said
    assert json.loads(answer)["labels"]
    env = {**os.environ, **NOWHERE, "XYLEM_OPEN_SCOPES": "predict"}
    command = [xylem, "serve", "--port", "0", *store]
    server = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        while "models_opened" not in said or "listening" not in said:
            line = server.stderr.readline()
            assert line, said
            said += line
        assert "compiling" not in said
        url = re.findall(r'"url":"([^"]+)"', said)[0]
        body, headers = b'{"instances": [{"text": "a game"}]}', {"content-type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/models/m/predict", body, headers)
        with urllib.request.urlopen(request, timeout=60) as found:
            assert json.load(found)["predictions"]
    finally:
        server.terminate()
        rest = server.communicate()[1]
    assert "compiling" not in rest


def test_kernels_for_other_versions_are_compiled_with_a_message(
    python: Path, tmp_path: Path
) -> None:
    script = (
        "import numba, numpy; numpy.__version__ = '2.99.0'\n"
        "from xylem_store.names import build_names, find_name\n"
        "assert find_name(build_names(['a', 'b']), 'b') == 1\n"
    )
    _, said = ran(tmp_path, python, "-c", script, XYLEM_KERNEL_CACHE=str(tmp_path))
    assert "those that came with this installation are for python3" in said
