"""Run modules of the tests in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run_module(
    name: str, *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    options = ["-X", "faulthandler", "-W", "ignore", "-m", name]
    command, variables = (
        [sys.executable, *options, *map(str, arguments)],
        {**os.environ, **environment},
    )
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)


def json_from(name: str, *arguments: object, **environment: str) -> Any:
    """Run a module, which must succeed; return the JSON that it prints."""
    done = run_module(name, *arguments, **environment)
    assert done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}"
    print(name, *arguments, done.stdout)
    return json.loads(done.stdout)
