"""Print the lowest version of each dependency in pyproject.toml, for pip: `make lowest`."""

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

NEEDED = (
    "httpx",
    "hypothesis",
    "jsonschema",
    "pytest",
    "pytest-timeout",
    "scikit-learn",
    "snowballstemmer",
)
"""The development dependencies of the short suite, in the versions of requirements-dev.txt."""


def lowest(line: str) -> str:
    """Return a requirement of exactly the version that is the lower bound of a requirement."""
    requirement = Requirement(line)
    (bound,) = [part.version for part in requirement.specifier if part.operator == ">="]
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}=={bound}{marker}"


def main() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    lines = [lowest(line) for line in project["project"]["dependencies"]]
    pins = re.findall(
        r"^([\w-]+)==([\w.]+)", (root / "requirements-dev.txt").read_text(), re.MULTILINE
    )
    lines += [f"{name}=={version}" for name, version in pins if name in NEEDED]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
