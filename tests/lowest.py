"""Print the lowest version of all that pyproject.toml depends on, for pip to install: `make lowest`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

NEEDED = ("hypothesis", "pytest", "pytest-timeout")
"""Of the development dependencies, what the short suite needs; any version will do."""


def lowest(line: str) -> str:
    """Return a requirement of exactly the lower bound of another one."""
    wanted = Requirement(line)
    (bound,) = [part.version for part in wanted.specifier if part.operator == ">="]
    marker = f"; {wanted.marker}" if wanted.marker else ""
    return f"{wanted.name}=={bound}{marker}"


def main() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    lines = [lowest(line) for line in project["project"]["dependencies"]]
    sys.stdout.write("\n".join([*lines, *NEEDED]) + "\n")


if __name__ == "__main__":
    main()
