"""What a command or a server must not import at its start; benchmarks find what they import."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import benchmarks
import pytest

from xylem_store.store import Store

_TRAINING = {"xylem.trainers.", "xylem.workflows.", "xylem.extras.", "scipy.sparse"}
"""A name that ends with a dot means the modules of a package, but not its face, which is cheap."""

_SERVER = {"fastapi", "uvicorn", "sqlalchemy", "httpx"}
_FOR_PEOPLE = {"rich"}

_PREDICT = """
import json, sys
from xylem.cli.application import run
sys.argv = ["xylem", "predict", "text", "--data", sys.argv[1], "--store", sys.argv[2]]
status = run()
print(json.dumps(sorted(sys.modules)))
sys.exit(status)
"""

_SERVE = """
import json, sys
from xylem.base.settings import read_settings
from xylem.server import serve
app = serve.create_app(read_settings(store=sys.argv[2]))
app.state.services.live.look()
assert app.state.services.live.ready is True
print(json.dumps(sorted(sys.modules)))
"""

_HELP = """
import json, sys
from xylem.cli import run
sys.argv = ["xylem", "--help"]
run()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("script", "unneeded"),
    [
        pytest.param(_PREDICT, {*_TRAINING, *_SERVER, *_FOR_PEOPLE}, id="predict"),
        pytest.param(_SERVE, {*_TRAINING, *_FOR_PEOPLE}, id="a served model"),
        pytest.param(_HELP, {*_TRAINING, *_SERVER, "numpy", "numba", "pydantic"}, id="help"),
    ],
)
def test_a_start_imports_nothing_that_it_does_not_need(
    own_store: Store, tmp_path: Path, script: str, unneeded: set[str]
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"text": "chess"}\n')
    command = [sys.executable, "-c", script, str(data), str(own_store.root)]
    environment = {**os.environ, "XYLEM_DATABASE_URL": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert not [
        module
        for module in loaded
        for name in unneeded
        if module == name or (name.endswith(".") and module.startswith(name))
    ]


MODULES = sorted(
    module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name[0] != "_"
)


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")
