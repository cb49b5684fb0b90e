"""Who may import whom: the table, and the walk over the syntax trees that holds the code to it."""

import ast
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import benchmarks
from model_store.store import Store

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("service", "model_store", "xylem")

LEAVES = {"service", "service.base", "service.traces.tracer"}
"""What every part of the service may import; they import nothing of ours but each other."""

ENTRY_POINTS = {"service.cli.entry", "service.server"}
"""They may import everything; nothing but they, and `xylem serve`, imports them."""

_KERNELS_USE = "model_store: ensemble names compiled extras members near"
_COMMON = "service: features inference vocabulary thresholds db; model_store"

TABLE = {
    "service.cli": (
        f"{_COMMON}; service: access registry serving workflows importers trainers evaluation datasets"
        " executors jobs server; xylem"
    ),
    # what the Python face does: it trains by workflows, and explains as the service answers
    "service.in_memory": f"{_COMMON}; service: workflows serving",
    "service.warm": (
        "service: features datasets vocabulary serving workflows trainers thresholds; model_store"
    ),
    "service.api.routes": f"{_COMMON}; service: api.door serving access registry jobs",
    "service.api.door": "service: serving thresholds access; model_store",
    "service.serving": f"{_COMMON}; service: evaluation.ranking",
    # a table that is predicted is read as lines of JSON
    "service.serving.line_files": "service: serving.lines datasets.tables datasets.stream",
    # a step of answering: who runs it reads files, and may be a cluster
    "service.serving.parts": f"{_COMMON}; service: serving datasets executors",
    "service.workflows": f"{_COMMON}; service: trainers evaluation datasets executors",
    "service.access": "service: db; model_store: identifiers",
    "service.registry": "service: db thresholds.store; model_store",
    "service.jobs": (
        f"{_COMMON}; service: traces access registry serving workflows trainers evaluation datasets"
    ),
    "service.importers": "service: features datasets workflows.weights; model_store",
    "service.inference": "service: kernels features; model_store",
    "service.vocabulary": "service: features datasets; model_store",
    "service.executors": "model_store: compiled.cache",
    "service.trainers": (
        "service: executors kernels evaluation.tree_criteria evaluation.ranking; model_store"
    ),
    "service.thresholds.live": (
        "service: thresholds.methods thresholds.store evaluation.ranking kernels db; model_store"
    ),
    "service.thresholds.store": "service: thresholds.methods evaluation.ranking kernels db; model_store",
    "service.thresholds.methods": "service: kernels evaluation; model_store",
    "service.evaluation": "service: kernels; model_store",
    # features of texts are made by steps, block by block
    "service.features": "service: kernels executors; model_store",
    "service.datasets": "service: kernels; model_store",
    "service.kernels.search": f"service: kernels.text; {_KERNELS_USE}",
    "service.kernels.training": f"service: kernels.search kernels.text; {_KERNELS_USE}",
    "service.kernels.text": _KERNELS_USE,
    "service.kernels": "",
    "service.thresholds": "",
    "service.api": "",
    "model_store.compiled": "",
    "model_store": "model_store: compiled",
    "service.base": "",
    "service.db": "",
    "service.traces": "model_store",
    # models in this process, imported when they are first asked for: the client needs nothing of the service
    "xylem.local": "service: in_memory; xylem: command",
    "xylem.estimators": "xylem: local",
    # what models in this process raise, imported when it is first asked for
    "xylem.errors": "service: base.errors; model_store: errors; xylem: command",
    "xylem": "",
}
"""A part and the parts it may import, besides itself and LEAVES: a package, or parts of one."""


def named(row: str) -> set[str]:
    """The names of a row's parts: "a; b: c d" has a, b.c and b.d."""
    found = set()
    for group in row.split("; ") if row else ():
        package, _, parts = group.partition(": ")
        found |= {f"{package}.{part}" for part in parts.split()} or {package}
    return found


MAY_IMPORT = {part: named(row) for part, row in TABLE.items()}

FORBIDDEN_EVERYWHERE = {"pickle", "cPickle", "_pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
WEB = {"fastapi", "starlette"}
WEB_PLACES = {"service.api", "service.server"}
INNER_PARTS = {"numba.core", "numba.np", "numba.typed", "llvmlite"}
"""They may change with any release: a part of the public interface is not among them."""

THIRD_PARTY = {
    "service.kernels": {"numpy", "numba", "llvmlite"},
    "model_store": {"numpy", "numba", "llvmlite"},
    "xylem": {"httpcore", "orjson", "pydantic"},
    "xylem.estimators": {"numpy", "scipy", "sklearn"},
}
"""What these parts may import besides the standard library; other parts are free."""


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of all modules, by their names."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(file.read_bytes(), str(file))
    return found


def imported(name: str, tree: ast.Module) -> set[str]:
    """The absolute names of all modules that a module imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import at line {node.lineno}"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else node.module)
    return found


def within(name: str, parts: set[str]) -> bool:
    return any(name == part or name.startswith(part + ".") for part in parts)


def part_of(name: str) -> str:
    """The row of the table that a module stands in."""
    matches = [part for part in (*MAY_IMPORT, *ENTRY_POINTS) if within(name, {part})]
    if name in LEAVES:
        return name
    assert matches, f"{name}: expected a row of MAY_IMPORT for it, found none"
    return max(matches, key=len)


def violations(name: str, names: set[str]) -> list[str]:
    """The imports among `names` that the table forbids to module `name`."""
    part = part_of(name)
    if part in ENTRY_POINTS:
        return []
    allowed = MAY_IMPORT.get(part, set()) | {part}
    if part not in ("model_store", "xylem"):
        allowed = allowed | LEAVES - {"service"}
    ours = [other for other in sorted(names) if other.split(".")[0] in PACKAGES]
    return [f"{name} imports {other}" for other in ours if not within(other, allowed)]


def test_every_import_is_allowed_by_the_table() -> None:
    found = [line for name, tree in modules().items() for line in violations(name, imported(name, tree))]
    assert not found, "\n".join(found)


def floors() -> dict[str, int]:
    """The floor of each room, as docs/architecture.md draws them."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawn = re.findall(r"^(\d)  (.+?)(?:   |$)", page.partition("```\n")[2].partition("```")[0], re.MULTILINE)
    return {room.partition("/")[0]: int(floor) for floor, rooms in drawn for room in rooms.split("  ")}


def test_every_room_imports_rooms_of_lower_floors_alone() -> None:
    of_room = floors()
    assert set(of_room.values()) == set(range(1, 10))
    for name, tree in modules().items():
        room = name.removeprefix("service.").split(".")[0]
        for other in imported(name, tree):
            below = other.removeprefix("service.").split(".")[0]
            if name != "service" and other.split(".")[0] in PACKAGES and other != "service" and below != room:
                assert of_room[below] < of_room[room], f"{name} imports {other}"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("service.kernels.search.beam", "service.inference.engine"),
        ("service.kernels.search.beam", "model_store.store"),
        ("model_store.store", "service.base.errors"),
        ("xylem.calls", "service.base.errors"),
        ("xylem._sync.client", "model_store.store"),
        ("xylem._sync.client", "service.in_memory"),
        ("xylem.local", "service.workflows.train"),
        ("service.api.routes.predict", "xylem._sync.client"),
        ("service.features.tfidf", "service.datasets.dataset"),
        ("xylem.command", "service.cli.entry"),
        ("service.trainers.label_tree", "service.api.routes.predict"),
        ("service.api.routes.predict", "service.trainers"),
        ("service.api.routes.health", "service.importers"),
        ("service.serving.answer", "service.api.door.problems"),
        ("service.cli.predict", "service.api.routes.predict"),
        ("service.warm", "service.api.door.protocol"),
        ("service.kernels.text.digits", "service.kernels.search.beam"),
        ("service.workflows.train", "service.serving.answer"),
        ("service.jobs.training", "service.api.routes.predict"),
        ("service.serving.answer", "service.jobs.job"),
        ("service.inference.engine", "service.server.app"),
    ],
)
def test_the_rule_finds_a_forbidden_import(name: str, other: str) -> None:
    assert violations(name, {other}) == [f"{name} imports {other}"]


def test_third_party_modules_stay_in_their_places() -> None:
    for name, tree in modules().items():
        top = {other.split(".")[0] for other in imported(name, tree)}
        assert not top & FORBIDDEN_EVERYWHERE, name
        if not within(name, WEB_PLACES):
            assert not top & WEB, name
        parts = [part for part in THIRD_PARTY if within(name, {part})]
        if parts:
            allowed = THIRD_PARTY[max(parts, key=len)]
            assert top - set(sys.stdlib_module_names) - set(PACKAGES) <= allowed, name


def test_a_trainer_has_kernels_in_files_of_their_own() -> None:
    kernels = {
        name
        for name, tree in modules().items()
        if within(name, {"service.trainers"}) and "model_store.compiled.decorators" in imported(name, tree)
    }
    assert len(kernels) > 10
    allowed = {"service.kernels", "service.base.rows", *named(_KERNELS_USE), *kernels}
    compilers = {"numba", "llvmlite", "model_store.compiled"}
    for name, tree in modules().items():
        if name in kernels:
            others = {other for other in imported(name, tree) if other.split(".")[0] in PACKAGES}
            assert not [other for other in others if not within(other, allowed)], name
            top = {other.split(".")[0] for other in imported(name, tree)}
            assert top <= {*sys.stdlib_module_names, *PACKAGES, "numpy", "numba"}, name
        elif within(name, {"service.trainers"}):
            used = {other for other in imported(name, tree) if within(other, compilers)}
            assert used <= {"model_store.compiled.handles"}, name  # the names of kinds of arrays


def test_inner_parts_of_the_compiler_stay_in_one_room() -> None:
    for name, tree in modules().items():
        if not within(name, {"model_store.compiled"}):
            assert not {other for other in imported(name, tree) if within(other, INNER_PARTS)}, name


def test_no_module_evaluates_code_or_allows_pickle() -> None:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else ""
                assert called not in FORBIDDEN_CALLS, f"{name}:{node.lineno}"
                allows = [ast.unparse(each.value) for each in node.keywords if each.arg == "allow_pickle"]
                assert set(allows) <= {"False"}, f"{name}:{node.lineno}"


# --- what a command that begins must not import, and that benchmarks find what they import

_TRAINING = {"service.trainers", "service.workflows", "service.importers", "scipy.sparse"}
_SERVER = {"fastapi", "uvicorn", "sqlalchemy", "httpx"}
_FOR_PEOPLE = {"rich"}

_PREDICT = """
import json, sys
from service.cli import run
sys.argv = ["xylem", "predict", "text", "--data", sys.argv[1], "--store", sys.argv[2]]
status = run()
print(json.dumps(sorted(sys.modules)))
sys.exit(status)
"""

_SERVE = """
import json, sys
from service.base.settings import read_settings
from service.server import serve
app = serve.create_app(read_settings(store=sys.argv[2]))
app.state.services.live.look()
assert app.state.services.live.ready is True
print(json.dumps(sorted(sys.modules)))
"""

_HELP = """
import json, sys
from service.cli import application
application()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("script", "unneeded"),
    [
        pytest.param(_PREDICT, {*_TRAINING, *_SERVER, *_FOR_PEOPLE}, id="predict"),
        pytest.param(_SERVE, {*_TRAINING, *_FOR_PEOPLE}, id="a served model"),
        pytest.param(_HELP, {*_TRAINING, *_SERVER, *_FOR_PEOPLE, "numpy", "numba", "pydantic"}, id="help"),
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
    assert not unneeded.intersection(json.loads(done.stdout.splitlines()[-1]))


MODULES = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name[0] != "_")


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")
