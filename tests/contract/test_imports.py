"""Who may import whom: the table, and the walk over the syntax trees that holds the code to it."""

import ast
import importlib
import re
import sys
from functools import cache

import pytest
from tests.helpers.checkout import PACKAGES, ROOT

from xylem_store.faces import modules_of_names

OURS = {"xylem", "xylem_store"}

ROOMS_OF_BASE = {f"xylem.base.{name}" for name in ("access", "db", "executors", "traces")}
"""All else in `base` is what every part of the service may import; it
imports nothing of ours but itself.
"""

FOR_ALL = "xylem.base.traces.tracer"

FACES = "xylem_store.faces"
"""By which every package has its face."""

BESIDE_THE_SERVICE = {"xylem.client", "xylem.command", "xylem.errors"}
"""They import nothing of `base` but what their rows say."""

ENTRY_POINTS = {"xylem.__main__", "xylem.cli.entry", "xylem.server", "xylem.warm"}
"""They may import everything; nothing but they, and `xylem serve`, imports them."""

_KERNELS_USE = "xylem_store: ensemble names hashes utf8 compiled extras members near"
_COMMON = "xylem: engine vocabulary thresholds base.db; xylem_store"

TABLE = {
    "xylem.cli": (
        f"{_COMMON}; xylem: base.access base.executors admin serving workflows trainers "
        "evaluation datasets server client errors"
    ),
    # what the Python face does: it trains by workflows, and explains as the service answers
    "xylem.python": f"{_COMMON}; xylem: workflows serving evaluation",
    "xylem.python.frames": "xylem: datasets python.from_memory",
    "xylem.python.from_memory": f"{_COMMON}; xylem: workflows datasets python.sample_weight",
    "xylem.python.estimators": "xylem: python",
    "xylem.server.warm": (
        "xylem: engine.features vocabulary serving workflows trainers thresholds; xylem_store"
    ),
    "xylem.api.app": f"{_COMMON}; xylem: api serving base admin",
    "xylem.api.routes": f"{_COMMON}; xylem: api.door api.schemas api.descriptions serving "
    "base.access admin",
    "xylem.api.door": "xylem: serving thresholds base.access; xylem_store",
    "xylem.api.schemas": "xylem: serving base.access admin; xylem_store",
    "xylem.api.descriptions": f"{_COMMON}; xylem: serving api.schemas",
    "xylem.serving": f"{_COMMON}; xylem: evaluation.ranking",
    "xylem.serving.kernels": "xylem: engine datasets.kernels; xylem_store",
    "xylem.serving.dialects.predict.kernels": (
        "xylem: engine datasets.kernels serving.kernels; xylem_store"
    ),
    "xylem.serving.dialects.tensors.kernels": (
        "xylem: engine serving.kernels serving.dialects.predict.kernels; xylem_store"
    ),
    # a table that is predicted is read as lines of JSON
    "xylem.serving.batches.line_files": (
        "xylem: serving.batches.lines datasets.tables datasets.stream"
    ),
    "xylem.serving.batches.answer_table": "xylem: datasets.parquet",
    # a step of answering: who runs it reads files, and may be a cluster
    "xylem.serving.batches.parts": f"{_COMMON}; xylem: serving datasets base.executors",
    "xylem.workflows": f"{_COMMON}; xylem: trainers evaluation datasets base.executors",
    "xylem.base.access": "xylem: base.db; xylem_store: identifiers errors",
    "xylem.admin.registry": "xylem: base.db thresholds.store engine.label_lists; xylem_store",
    "xylem.admin.jobs": (
        f"{_COMMON}; xylem: base.traces base.access admin.registry serving "
        "workflows trainers datasets"
    ),
    "xylem.extras": "",
    "xylem.extras.encoder": "xylem_store",
    "xylem.extras.importers": "xylem: engine.features datasets workflows.weights; xylem_store",
    "xylem.extras.grpc": "xylem: serving",
    "xylem.extras.rdf": "xylem: datasets; xylem_store",
    "xylem.extras.ray": "xylem: base.executors; xylem_store",
    "xylem.extras.report": "xylem: evaluation workflows; xylem_store",
    "xylem.extras.search": (
        "xylem: base.executors datasets engine.features evaluation trainers vocabulary workflows; "
        "xylem_store"
    ),
    "xylem.engine": "xylem_store",
    "xylem.vocabulary": "xylem: engine datasets evaluation; xylem_store",
    "xylem.base.executors": "xylem_store: compiled.sources",
    "xylem.trainers": ("xylem: base.executors engine.kernels evaluation.ranking; xylem_store"),
    "xylem.thresholds.live": (
        "xylem: thresholds.methods thresholds.store evaluation.ranking engine.kernels "
        "engine.options "
        "base.db; xylem_store"
    ),
    "xylem.thresholds.store": (
        "xylem: thresholds.methods evaluation.ranking engine.kernels base.db; xylem_store"
    ),
    "xylem.thresholds.methods": "xylem: engine.kernels evaluation; xylem_store",
    "xylem.thresholds.progressive": "xylem: thresholds engine evaluation; xylem_store",
    "xylem.thresholds.tuning": "xylem: thresholds engine evaluation base.db; xylem_store",
    "xylem.evaluation": "xylem: engine; xylem_store",
    # features of texts are made by steps, block by block
    "xylem.engine.features": "xylem: engine.kernels base.executors; xylem_store",
    "xylem.datasets": "xylem: engine.kernels; xylem_store",
    "xylem.datasets.kernels": "xylem_store",
    "xylem.engine.kernels.search": f"xylem: engine.kernels.text; {_KERNELS_USE}",
    "xylem.trainers.kernels": f"xylem: engine.kernels.search engine.kernels.text; {_KERNELS_USE}",
    "xylem.engine.kernels.text": _KERNELS_USE,
    "xylem.engine.kernels": "",
    "xylem.thresholds": "",
    "xylem.admin": "",
    "xylem.api": "",
    "xylem_store.compiled": "",
    "xylem_store": "xylem_store: compiled",
    "xylem.base.db": "",
    "xylem.base.traces": "xylem_store",
    # a client needs nothing of the service
    "xylem.client": "xylem: errors",
    # what models in this process raise, imported when it is first asked for
    "xylem.errors": "xylem: base.errors; xylem_store: errors",
    "xylem.command": "",
    "xylem.base": "",
    "xylem": "xylem: client errors python",
}
"""A part and the parts it may import, besides itself and LEAVES: a package, or parts of one."""


def named(row: str) -> set[str]:
    """The names of a row's parts: "a; b: c d" has a, b.c and b.d."""
    parts_named = set()
    for group in row.split("; ") if row else ():
        package, _, parts = group.partition(": ")
        parts_named |= {f"{package}.{part}" for part in parts.split()} or {package}
    return parts_named


MAY_IMPORT = {part: named(row) for part, row in TABLE.items()}

FORBIDDEN_EVERYWHERE = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "joblib",
    "cloudpickle",
    "shelve",
    "marshal",
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
WEB = {"fastapi", "starlette"}
WEB_PLACES = {"xylem.api", "xylem.server"}
INNER_PARTS = {"numba.core", "numba.np", "numba.typed", "llvmlite"}
"""They may change with any release: a part of the public interface is not among them."""

THIRD_PARTY = {
    "xylem.engine.kernels": {"numpy", "numba", "llvmlite"},
    "xylem.datasets.kernels": {"numpy", "numba"},
    "xylem.serving.kernels": {"numpy", "numba"},
    "xylem.serving.dialects.predict.kernels": {"numpy", "numba"},
    "xylem.serving.dialects.tensors.kernels": {"numpy", "numba"},
    "xylem_store": {"numpy", "numba", "llvmlite"},
    "xylem.client": {"httpcore", "orjson", "pydantic"},
    "xylem.errors": {"orjson"},
    "xylem.python.estimators": {"numpy", "scipy", "sklearn"},
}
"""What these parts may import besides the standard library; other parts are free."""


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of all modules, by their names."""
    trees = {}
    for package in PACKAGES:
        for file in sorted(package.rglob("*.py")):
            path = file.relative_to(package.parent).with_suffix("")
            trees[".".join(path.parts).removesuffix(".__init__")] = ast.parse(
                file.read_bytes(), str(file)
            )
    return trees


@cache
def faces() -> dict[str, dict[str, str]]:
    """The names that each package shows to others, and the module that each is in."""
    named_in = {}
    for package in PACKAGES:
        for stub in package.rglob("__init__.pyi"):
            name = ".".join(stub.parent.relative_to(package.parent).parts)
            modules_of = modules_of_names(stub.read_text())
            assert len(modules_of) == stub.read_text().count("\nfrom "), (
                f"{stub}: a line that face_of cannot read"
            )
            named_in[name] = {
                each: f"{name}{module}".rstrip(".") for each, module in modules_of.items()
            }
    return named_in


def defined_in(module: str, name: str) -> str:
    """The module that a name is defined in, which a package's face may show as its own."""
    if f"{module}.{name}" in modules():
        return f"{module}.{name}"
    source = faces().get(module, {}).get(name, module)
    return source if source == module else defined_in(source, name)


def names_by_package(tree: ast.Module) -> set[tuple[str, str]]:
    """The names that a module has through packages that it imports, as in `serving.store_of`.

    Annotations in quotes count, too. Only what the face of the package shows is such a name.
    """
    packages = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            packages.update({alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module == "xylem":
            packages.update({alias.name: f"xylem.{alias.name}" for alias in node.names})
    attributes = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.add((packages.get(node.value.id, ""), node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for first, attribute in re.findall(r"(?<![\w.])(\w+)\.(\w+)", node.value):
                attributes.add((packages.get(first, ""), attribute))
    return {(package, name) for package, name in attributes if name in faces().get(package, {})}


def imported(name: str, tree: ast.Module) -> set[str]:
    """The absolute names of all modules that a module imports, wherever the import stands.

    A package that is imported whole stands for the modules of the names that are used of it.
    """
    modules = {defined_in(package, each) for package, each in names_by_package(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names if alias.name not in faces())
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import at line {node.lineno}"
            modules.update(
                defined_in(node.module or "", alias.name)
                for alias in node.names
                if f"{node.module}.{alias.name}" not in faces()
            )
    return modules


def within(name: str, parts: set[str]) -> bool:
    return any(name == part or name.startswith(part + ".") for part in parts)


def part_of(name: str) -> str:
    """The row of the table that a module stands in; the face of all, `xylem`, has one
    of its own.
    """
    parts = {*MAY_IMPORT, *ENTRY_POINTS} - {"xylem"}
    matches = [part for part in parts if within(name, {part})]
    assert matches or name == "xylem", f"{name}: expected a row of MAY_IMPORT for it, found none"
    return max(matches, key=len, default="xylem")


def is_for_all(name: str) -> bool:
    """Whether every part of the service may import a module."""
    return name in ("xylem.base", FOR_ALL) or (
        within(name, {"xylem.base"}) and not within(name, ROOMS_OF_BASE)
    )


def violations(name: str, names: set[str]) -> list[str]:
    """The imports among `names` that the table forbids to module `name`."""
    part = part_of(name)
    if part in ENTRY_POINTS:
        return []
    allowed = MAY_IMPORT[part] | ({part} if part != "xylem" else set())
    is_of_service = name.startswith("xylem.") and part not in (
        "xylem.client",
        "xylem.errors",
        "xylem.command",
    )
    ours = [other for other in sorted(names) if other.split(".")[0] in OURS]
    forbidden = [other for other in ours if other != FACES and not within(other, allowed)]
    return [
        f"{name} imports {other}"
        for other in forbidden
        if not (is_of_service and is_for_all(other))
    ]


def test_every_import_is_allowed_by_the_table() -> None:
    found = [
        line for name, tree in modules().items() for line in violations(name, imported(name, tree))
    ]
    assert not found, "\n".join(found)


def floors() -> dict[str, int]:
    """The floor of each room, as docs/architecture.md draws them."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawing = page.partition("```\n")[2].partition("```")[0]
    drawn = re.findall(r"^ ?(\d+)  (.+?)(?:   |$)", drawing, re.MULTILINE)
    return {room: int(floor) for floor, rooms in drawn for room in rooms.split("  ")}


def room_of(name: str) -> str:
    """The room that a module is in: a package of xylem, or the store."""
    first, *rest = name.split(".")
    return rest[0] if first == "xylem" and rest else first


def test_nobody_imports_an_optional_part() -> None:
    """`xylem.base.extras` finds them by name."""
    faults = [
        f"{name} imports {other}"
        for name, tree in modules().items()
        for other in imported(name, tree)
        if within(other, {"xylem.extras"}) and not within(name, {"xylem.extras"})
    ]
    assert faults == []


def test_every_room_imports_rooms_of_lower_floors_alone() -> None:
    of_room = floors()
    assert set(of_room.values()) == set(range(1, 11))
    faults = []
    for name, tree in modules().items():
        for other in imported(name, tree):
            upper, lower = room_of(name), room_of(other)
            if other.split(".")[0] in OURS and lower != upper and of_room[lower] >= of_room[upper]:
                faults.append(f"{name} imports {other}")
    assert faults == []


def package_of(name: str) -> str:
    """The package that has a face of its own: xylem_store, or a folder of xylem."""
    first, *rest = name.split(".")
    return f"xylem.{rest[0]}" if first == "xylem" and rest else first


def crossings() -> dict[tuple[str, str], set[str]]:
    """The names that cross a package's border, each with its package, and the modules
    that use it.
    """
    users: dict[tuple[str, str], set[str]] = {}
    for name, tree in modules().items():
        for package, each in names_by_package(tree):
            users.setdefault((package, each), set()).add(name)
        for node in ast.walk(tree):
            if (
                not isinstance(node, ast.ImportFrom)
                or (node.module or "").split(".")[0] not in OURS
            ):
                continue
            for alias in node.names:
                package = package_of(defined_in(node.module or "", alias.name))
                is_whole = f"{node.module}.{alias.name}" in faces()
                if package not in (package_of(name), "xylem") and not is_whole:
                    users.setdefault((package, alias.name), set()).add(name)
    return users


def imports_past(name: str, node: ast.ImportFrom) -> bool:
    """Whether an import takes something of another package that the package's face
    does not show.
    """
    source = node.module or ""
    package = package_of(source)
    if source.split(".")[0] not in OURS or package == package_of(name) or package not in faces():
        return False
    wholes = {each.removeprefix("xylem.") for each in faces()} if source == "xylem" else set()
    names = {alias.name for alias in node.names}
    return source != package or not names <= wholes.union(faces()[package])


def test_nobody_imports_past_a_face() -> None:
    faults = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and imports_past(name, node)
    ]
    assert faults == []


PUBLIC = {
    ("xylem.trainers", name) for name in ("TRAINERS", "Trained", "TrainerSpec", "TrainingSet")
}
"""What trainers of other people use (docs/add_a_trainer.md)."""


def test_a_face_shows_what_others_use_and_no_more() -> None:
    shown = {
        (package, name)
        for package, names in faces().items()
        if package != "xylem"
        for name in names
    }
    used = crossings().keys() | PUBLIC | {("xylem.cli", name) for name in ("main", "run")}
    used |= {(package_of(module), name) for name, module in faces()["xylem"].items()}
    assert sorted(shown - used) == []


def test_every_name_of_a_face_can_be_had() -> None:
    faults = []
    for package, names in faces().items():
        face = importlib.import_module(package)
        if not sorted(names) == face.__all__ == dir(face):
            faults.append(f"{package}: __all__ or dir() differs from the face")
        for name in names:
            is_module = f"{package}.{name}" in modules()
            if package != "xylem" and is_module:
                faults.append(f"{package}.{name}: an import of the module would hide the name")
            defined = getattr(importlib.import_module(names[name]), name, None)
            if getattr(face, name) is not defined and not is_module:
                faults.append(f"{package}.{name} is not that of {names[name]}")
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
            _ = face.nothing
    assert not faults, "\n".join(faults)


BORDER_MAX = 850
"""The most names that cross borders; this bound only falls."""

PRIVATE_MAX = 349
"""The most of these names that a single module uses; this bound only falls."""


def test_few_names_cross_borders() -> None:
    users = crossings()
    assert len(users) <= BORDER_MAX, (
        f"expected at most {BORDER_MAX} names that other packages import, found {len(users)}: for "
        "a new one let another go, one that a single module uses or that can stay inside"
    )
    private = {key: names for key, names in users.items() if len(names) == 1}
    assert len(private) <= PRIVATE_MAX, "\n".join(
        f"{key}: {names}" for key, names in private.items()
    )


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("xylem.engine.kernels.search.beam", "xylem.engine.predictor"),
        ("xylem.engine.kernels.search.beam", "xylem_store.store"),
        ("xylem_store.store", "xylem.base.errors"),
        ("xylem.client.calls", "xylem.base.errors"),
        ("xylem.client._sync.client", "xylem_store.store"),
        ("xylem.client._sync.client", "xylem.python"),
        ("xylem.errors", "xylem.workflows.train"),
        ("xylem.api.routes.predict", "xylem.client._sync.client"),
        ("xylem.engine.features.tfidf", "xylem.datasets.dataset"),
        ("xylem.command", "xylem.cli.entry"),
        ("xylem.trainers.label_tree", "xylem.api.routes.predict"),
        ("xylem.api.routes.predict", "xylem.trainers"),
        ("xylem.api.routes.health", "xylem.extras.importers"),
        ("xylem.serving.dialects.search", "xylem.api.door.problems"),
        ("xylem.cli.predict", "xylem.api.routes.predict"),
        ("xylem.server.warm", "xylem.api.door.protocol"),
        ("xylem.engine.kernels.text.texts", "xylem.engine.kernels.search.beam"),
        ("xylem.serving.kernels.sparse_json", "xylem.serving.dialects.predict.dialect"),
        ("xylem.workflows.train", "xylem.serving.dialects.search"),
        ("xylem.admin.jobs.training", "xylem.api.routes.predict"),
        ("xylem.serving.dialects.search", "xylem.admin.jobs.job"),
        ("xylem.engine.predictor", "xylem.api.app"),
        ("xylem.engine.predictor", "xylem.vocabulary.ranker"),
        ("xylem.vocabulary.combine", "xylem.workflows.train"),
        ("xylem.cli.tune", "xylem.extras.search.parameter_search"),
    ],
)
def test_the_rule_finds_a_forbidden_import(name: str, other: str) -> None:
    assert violations(name, {other}) == [f"{name} imports {other}"]


def test_third_party_modules_stay_in_their_places() -> None:
    faults = []
    for name, tree in modules().items():
        top = {other.split(".")[0] for other in imported(name, tree)}
        misplaced = top & FORBIDDEN_EVERYWHERE
        if not within(name, WEB_PLACES):
            misplaced |= top & WEB
        parts = [part for part in THIRD_PARTY if within(name, {part})]
        if parts:
            allowed = THIRD_PARTY[max(parts, key=len)]
            misplaced |= top - set(sys.stdlib_module_names) - OURS - allowed
        faults += [f"{name} imports {other}" for other in sorted(misplaced)]
    assert not faults, "\n".join(faults)


def test_a_trainer_has_kernels_in_files_of_their_own() -> None:
    kernels = {
        name
        for name, tree in modules().items()
        if within(name, {"xylem.trainers"})
        and "xylem_store.compiled.decorators" in imported(name, tree)
    }
    assert len(kernels) > 10
    allowed = {"xylem.engine.kernels", "xylem.base.rows", *named(_KERNELS_USE), *kernels}
    compilers = {"numba", "llvmlite", "xylem_store.compiled"}
    libraries = {*sys.stdlib_module_names, "numpy", "numba"}
    kinds_of_arrays = {"xylem_store.compiled.bits", "xylem_store.compiled.handles"}
    faults = []
    for name, tree in modules().items():
        if not within(name, {"xylem.trainers"}):
            continue
        for other in sorted(imported(name, tree)):
            if name not in kernels:
                is_allowed = not within(other, compilers) or other in kinds_of_arrays
            elif other.split(".")[0] in OURS:
                is_allowed = within(other, allowed)
            else:
                is_allowed = other.split(".")[0] in libraries
            if not is_allowed:
                faults.append(f"{name} imports {other}")
    assert not faults, "\n".join(faults)


def test_inner_parts_of_the_compiler_stay_in_one_room() -> None:
    faults = [
        f"{name} imports {other}"
        for name, tree in modules().items()
        if not within(name, {"xylem_store.compiled"})
        for other in sorted(imported(name, tree))
        if within(other, INNER_PARTS)
    ]
    assert not faults, "\n".join(faults)


def test_no_module_evaluates_code_or_allows_pickle() -> None:
    faults = []
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else ""
                allows = {
                    ast.unparse(each.value) for each in node.keywords if each.arg == "allow_pickle"
                }
                if called in FORBIDDEN_CALLS or not allows <= {"False"}:
                    faults.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert not faults, "\n".join(faults)
