"""What README shows of Python, run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_lines_of_python_print_what_readme_shows() -> None:
    found = re.search(r"```python\n(.*?)```\n+```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    done = subprocess.run(
        [sys.executable, "-c", found[1]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == found[2]
