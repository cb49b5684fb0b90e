"""A virtual environment per peer, made when it is first needed, under benchmarks/peers/.venvs."""

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
DIRECTORY = HERE / ".venvs"

INSTALLS: dict[str, list[list[str]]] = {
    # libpecos's own dependencies pull in a deep-learning stack of
    # gigabytes that XLinearModel does not use.
    "libpecos": [["numpy<2", "scipy<1.14", "scikit-learn<1.6"], ["--no-deps", "libpecos==1.2.8"]],
    "omikuji": [["numpy", "scipy", "omikuji==0.5.2"]],
    "napkinxc": [["napkinxc==0.7.2"]],
    # libmultilabel's own dependencies are those of its neural networks too;
    # these are what linear models use.
    "libmultilabel": [
        ["numpy", "scipy", "scikit-learn", "pandas", "tqdm", "psutil"],
        ["liblinear-multicore", "sparsekmeans"],
        ["--no-deps", "libmultilabel==0.10.0"],
    ],
    "annif": [["annif[omikuji]==1.4.3"]],
}
"""The arguments of each `pip install` of a peer, in order."""


class NotInstalled(subprocess.CalledProcessError):
    """A peer cannot be installed here; the message is the last line of pip's."""

    def __str__(self) -> str:
        return (self.stderr.strip().splitlines() or ["pip gave no reason"])[-1]


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, made now if not there yet.

    Raises NotInstalled.
    """
    home = DIRECTORY / peer
    python, ready = home / "bin" / "python", home / "ready"
    if not ready.exists():
        print(f"setting up {home}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        for arguments in INSTALLS[peer]:
            command = [
                python,
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                *arguments,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotInstalled(done.returncode, command, stderr=done.stderr)
        ready.touch()
    return python
