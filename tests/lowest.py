"""Print the lowest version of all that pyproject.toml depends on,
for pip to install: `make lowest`.
"""

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
"""Of the development dependencies, what the short suite needs, as
requirements-dev.txt pins them.
"""


def lowest(line: str) -> str:
    """Return a requirement of exactly the lower bound of another one."""
    wanted = Requirement(line)
    (bound,) = [part.version for part in wanted.specifier if part.operator == ">="]
    marker = f"; {wanted.marker}" if wanted.marker else ""
    return f"{wanted.name}=={bound}{marker}"


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
