"""An installation without the folder of optional parts: all else works, and each part that is asked
for is reported as missing.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.checkout import PACKAGES, ROOT

from xylem.base.extras import EXTRAS

RUN = """
import contextlib, io, json, sys
from xylem.cli.application import run
results = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["xylem", *arguments]
    output = io.TextIOWrapper(io.BytesIO())
    errors = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = run()
    output.flush()
    results.append((status, output.buffer.getvalue().decode(), errors.getvalue()))
print(json.dumps(results))
"""

IMPORT_ALL = """
import importlib, json, pkgutil, xylem, xylem_store
def fail(name):
    raise ImportError(name)
names = []
for package in (xylem, xylem_store):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", fail):
        if module.name != "xylem.server.warm.__main__":
            importlib.import_module(module.name)
        names.append(module.name)
print(json.dumps([xylem.__file__, names]))
"""

SERVE = """
import asyncio, json, sys
import httpx
from xylem.api.app import create_app
from xylem.base.settings import read_settings
async def main():
    app = create_app(read_settings(store=sys.argv[1], access_log=False))
    app.state.services.live.look()
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            body = {"instances": [{"text": "red thing"}], "top_r": 1}
            answer = await client.post("/v1/models/colours/predict", json=body)
            print(json.dumps([answer.status_code, answer.json()]))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that import a copy of the sources without the folder."""
    folder = tmp_path_factory.mktemp("sources")
    for package in PACKAGES:
        shutil.copytree(
            package,
            folder / package.name,
            ignore=lambda place, names: [
                name for name in names if Path(place, name) == PACKAGES[0] / "extras"
            ],
        )
    assert not (folder / "xylem" / "extras").exists()
    return {**os.environ, "PYTHONPATH": str(folder), "XYLEM_DATABASE_URL": ""}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with rows and a vocabulary in RDF."""
    directory = tmp_path_factory.mktemp("home")
    colours = ("red", "green", "blue", "white")
    rows = [{"text": f"{colours[i % 4]} thing", "labels": [colours[i % 4]]} for i in range(40)]
    (directory / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (directory / "texts.jsonl").write_text('{"text": "red thing"}\n')
    (directory / "subjects.ttl").write_text("")
    return directory


def commands(
    environment: dict[str, str], home: Path, *arguments: list[str]
) -> list[tuple[int, str, str]]:
    """Return the status, the output and the errors of commands, run in one process."""
    command = [sys.executable, "-c", RUN, json.dumps(arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=home
    )
    return [(status, out, errors) for status, out, errors in json.loads(done.stdout)]


def test_every_module_can_be_imported(environment: dict[str, str], home: Path) -> None:
    command = [sys.executable, "-c", IMPORT_ALL]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=home)
    assert done.returncode == 0, done.stderr[-2_000:]
    file, names = json.loads(done.stdout.splitlines()[-1])
    assert file.startswith(environment["PYTHONPATH"])
    assert len(names) > 400 and not any(name.startswith("xylem.extras") for name in names)


def test_models_are_trained_measured_served_and_predicted(
    environment: dict[str, str], home: Path
) -> None:
    results = commands(
        environment,
        home,
        ["--help"],
        ["train", "ovr", "--data", "rows.jsonl", "--model", "colours", "--store", "store"],
        ["evaluate", "colours", "--data", "rows.jsonl", "--store", "store", "--per-label", "t.csv"],
        ["predict", "colours", "--data", "texts.jsonl", "--store", "store"],
    )
    assert [(status, errors) for status, _, errors in results if status] == []
    assert "train" in results[0][1] and "red" in results[3][1]
    assert (home / "t.csv").read_text().startswith("label,")
    command = [sys.executable, "-c", SERVE, str(home / "store")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=home)
    assert done.returncode == 0, done.stderr[-2_000:]
    status, answer = json.loads(done.stdout.splitlines()[-1])
    assert status == 200
    assert answer["predictions"][0]["labels"][0]["label"] == "red"


def test_each_optional_part_is_reported_as_missing(environment: dict[str, str], home: Path) -> None:
    rows = ["--data", "rows.jsonl"]
    store = ["--store", "optional"]
    parts = {
        "train": ["train", "ovr", *rows, "--model", "colours", *store],
        "encoder": ["encoders", "add", "minilm", "folder", *store],
        "ray": ["train", "ovr", *rows, "--model", "colours", "--ray", "auto", *store],
        "rdf": ["models", "label-info", "colours", "subjects.ttl", *store],
        "report": ["evaluate", "colours", *rows, "--report", "page", *store],
        "report of a version": ["models", "report", "colours", "--out", "pictures", *store],
        "search": ["tune", *rows, "--model", "colours", *store],
        "grpc": ["serve", "--port", "0", "--grpc-port", "0", *store],
        "importers": ["models", "import", "--from", "pecos", "rows.jsonl", *store],
        "importers of a vectorizer": ["import-vectorizer", "colours", "--file", "v.json", *store],
    }
    results = commands(environment, home, *parts.values())
    assert results[0][0] == 0, results[0]
    for (name, arguments), (status, _, errors) in list(zip(parts.items(), results, strict=True))[
        1:
    ]:
        extra = EXTRAS[name.partition(" ")[0]]
        package = extra.module.rpartition(".")[0]
        fault = (
            f"{extra.purpose} needs {package}, which this installation of xylem-serve does not have"
        )
        assert status == 2 and fault in " ".join(errors.split()), (arguments, status, errors)
    assert {name.partition(" ")[0] for name in parts} == {"train", *EXTRAS}


def test_optional_parts_are_asked_for_by_the_names_of_the_table() -> None:
    names = set()
    for file in sorted(PACKAGES[0].rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "load_extra":
                names.add(ast.literal_eval(node.args[0]))
    assert names == EXTRAS.keys()
    for extra in EXTRAS.values():
        assert (ROOT / "service" / f"{extra.module.replace('.', '/')}.py").is_file()
