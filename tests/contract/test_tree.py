"""What must stand in the tree, in the sdist and in the wheel, what must not, and what
is generated.
"""

import ast
import configparser
import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import training_fields
from tests.helpers.checkout import PACKAGES, ROOT
from tests.unasync import TO, modules

SOURCES = sorted(file for package in PACKAGES for file in package.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FUNCTION_STATEMENTS_MAX = 50
PARAMETERS_MAX = 10
FILE_STATEMENTS_MAX = 250
"""Size is counted in statements, which no layout changes: what
reads well may take the lines it needs.
"""
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEST_NAME_MAX = 60


def tracked() -> list[Path] | None:
    """The files that git knows; None: a tree without git."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = listing.stdout.split("\0")
    return (
        None if listing.returncode else [ROOT / name for name in names if (ROOT / name).is_file()]
    )


def tracked_texts() -> list[tuple[str, str]]:
    """The path and text of every text file of the tree: those git
    knows, or all of a tree without git.
    """
    hidden, texts = {".venv", ".venvs", ".git"}, []
    for file in tracked() or ROOT.rglob("*"):
        if file.is_file() and not hidden.intersection(file.parts):
            content = file.read_bytes()
            if b"\0" not in content[:8192]:
                texts.append((str(file.relative_to(ROOT)), content.decode("utf-8", "replace")))
    return texts


def test_no_path_of_a_machine_and_no_package_index_in_the_tree() -> None:
    # Written apart so that this file does not find itself.
    words = ["/wo" + "rk/", "/ho" + "me/[a-z]", r"--(extra-)?ind" + "ex-url", r"pyp" + r"i\.org"]
    pattern = re.compile("|".join(words))
    faults = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not faults, "\n".join(faults)


def test_changelog_has_the_current_version() -> None:
    assert re.search(
        rf"^## {re.escape(PROJECT['version'])}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def classes_of_sources() -> dict[str, list[ast.ClassDef]]:
    """Return the classes of the sources by name."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
    return classes


def documented_by_bases(
    node: ast.ClassDef, classes: dict[str, list[ast.ClassDef]]
) -> Iterator[str]:
    """Yield the methods that a base class of ours documents: `inspect.getdoc` looks there, too."""
    for base in node.bases:
        # A class is known by its name alone, without its module and its type arguments.
        name = ast.unparse(base).split("[")[0].split(".")[-1]
        for base_class in classes.get(name, []):
            yield from (
                inner.name for inner in definitions(base_class.body) if has_docstring(inner)
            )
            yield from documented_by_bases(base_class, classes)


def has_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return ast.get_docstring(node) is not None


def undocumented(module: ast.Module, classes: dict[str, list[ast.ClassDef]]) -> Iterator[str]:
    """Yield the public names of a module that have no docstring, and inherit none."""
    inherited = {
        id(inner)
        for node in definitions(module.body)
        if isinstance(node, ast.ClassDef)
        for inner in node.body
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        and inner.name in documented_by_bases(node, classes)
    }
    for node in definitions(module.body):
        is_public = not node.name.startswith("_")
        if is_public and not has_docstring(node) and id(node) not in inherited:
            yield f"{node.lineno}: {node.name}"


def definitions(
    body: list[ast.stmt],
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions, classes and methods of a module's body, without what is local to
    a function.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield node
            yield from definitions(node.body)


def count_statements(node: ast.AST) -> int:
    """Return the number of statements within a node, the node apart."""
    return sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - isinstance(node, ast.stmt)


def too_long(file: Path, module: ast.Module) -> list[str]:
    """Return what is wrong if a file or a function of it has too many statements."""
    sizes = [
        (f"{file}: {node.name}", count_statements(node), FUNCTION_STATEMENTS_MAX)
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    sizes.append((str(file), count_statements(module), FILE_STATEMENTS_MAX))
    return [
        f"{name} has {n_statements} statements, expected at most {most}"
        for name, n_statements, most in sizes
        if n_statements > most
    ]


def test_sources_are_documented_and_short() -> None:
    faults: list[str] = []
    classes = classes_of_sources()
    for file in SOURCES:
        module = ast.parse(file.read_text())
        if not ast.get_docstring(module):
            faults.append(f"{file}: no docstring")
        faults += too_long(file, module)
        faults += [f"{file}:{name} has no docstring" for name in undocumented(module, classes)]
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                n_parameters = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
                if n_parameters > PARAMETERS_MAX:
                    faults.append(f"{file}: {node.name} has {n_parameters} parameters")
    assert not faults, "\n".join(faults)


def test_only_a_method_of_a_base_lends_its_docstring() -> None:
    source = """
class Base:
    def first(self):
        'Documented.'
    def second(self): ...
class Middle(Base[int]): ...
class Child(module.Middle):
    def first(self): ...
    def second(self): ...
    def third(self): ...
class Other:
    def first(self): ...
"""
    module = ast.parse(source)
    classes = {node.name: [node] for node in module.body if isinstance(node, ast.ClassDef)}
    names = [line.split()[-1] for line in undocumented(module, classes)]
    assert names == ["Base", "second", "Middle", "Child", "second", "third", "Other", "first"]


def test_tests_are_short_and_have_short_names() -> None:
    faults: list[str] = []
    for file in TESTS:
        module = ast.parse(file.read_text())
        faults += too_long(file, module)
        faults += [
            f"{file}: {node.name} has {len(node.name)} characters"
            for node in definitions(module.body)
            if node.name.startswith("test_") and len(node.name) > TEST_NAME_MAX
        ]
    assert not faults, "\n".join(faults)


def test_unit_tests_stand_in_folders_of_packages() -> None:
    unit = ROOT / "tests" / "unit"
    roots = (ROOT / "service" / "xylem", ROOT / "model_store")
    folders = {file.parent.relative_to(unit) for file in unit.rglob("test_*.py")}
    faults = [str(f) for f in folders if not any((root / f).is_dir() for root in roots)]
    assert not faults, "\n".join(faults)


def test_no_two_files_of_tests_share_a_name() -> None:
    """Most folders of tests are no packages: pytest imports their files by name alone."""
    counts = Counter(file.name for file in TESTS if file.name.startswith("test_"))
    faults = [str(file) for file in TESTS if counts[file.name] > 1]
    assert not faults, "\n".join(faults)


def test_links_between_pages_lead_somewhere() -> None:
    faults = [
        f"{name}: {target}"
        for name, text in tracked_texts()
        if name.endswith(".md")
        for target in re.findall(r"\]\(([^)#\s]+)", text)
        if "://" not in target and not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert not faults, "\n".join(faults)


def test_the_example_data_is_small() -> None:
    sizes = [file.stat().st_size for file in (ROOT / "examples" / "debtags").iterdir()]
    assert 0 < sum(sizes) <= 3_000_000


def test_no_two_public_classes_of_the_service_share_a_name() -> None:
    """One word for one thing: who reads a name need not ask whose it is. The client has its own."""
    places: dict[str, list[str]] = {}
    client = PACKAGES[0] / "client"
    for file in (file for file in PACKAGES[0].rglob("*.py") if client not in file.parents):
        for node in ast.parse(file.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_the_blocking_half_is_made_of_the_asynchronous_one() -> None:
    made = modules()
    assert {path: path.read_text() for path in TO.glob("*.py")} == made, (
        "call python -m tests.unasync"
    )


def test_the_clients_fields_of_a_training_are_those_of_the_job() -> None:
    assert training_fields.FILE.read_text() == training_fields.source(), (
        "call python -m tests.training_fields"
    )


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a distribution with the backend that is installed: nothing is fetched."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder / "built")) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"xylem_serve-{PROJECT['version']}"


@pytest.fixture(scope="module")
def wheel(unpacked: Path) -> zipfile.ZipFile:
    """The wheel that is built of the sdist."""
    return zipfile.ZipFile(build("wheel", unpacked, unpacked.parent / "wheel"))


def test_the_sdist_has_every_file_that_git_knows(unpacked: Path) -> None:
    files = tracked()
    if files is None:
        pytest.skip("a tree without git")
    assert [file for file in files if not (unpacked / file.relative_to(ROOT)).is_file()] == []


def test_what_the_makefile_names_is_in_the_sdist(unpacked: Path) -> None:
    words = re.findall(r"[\w./-]+\.(?:txt|py|in|toml|json)\b", (unpacked / "Makefile").read_text())
    named = {name for name in words if not name.startswith(("/", "-"))}
    assert len(named) > 5
    assert [name for name in named if not (unpacked / name).exists()] == []


def test_the_wheel_has_the_packages_whole_and_no_tests(
    unpacked: Path, wheel: zipfile.ZipFile
) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    folders = [unpacked / package.relative_to(ROOT) for package in PACKAGES]
    files = {
        file: folder.parent for folder in folders for file in folder.rglob("*") if file.is_file()
    }
    expected = {
        file.relative_to(root) for file, root in files.items() if "__pycache__" not in file.parts
    }
    assert names == {str(file) for file in expected}
    assert {name.split("/")[0] for name in names} == {"xylem", "xylem_store"}
    assert {"xylem/console/index.html", "xylem/py.typed"} <= names


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    (home,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    told = email.message_from_bytes(wheel.read(f"{home}/METADATA"))
    assert (told["Name"], told["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert told["Requires-Python"] == ">=3.11" and told["License-Expression"] == "Apache-2.0"
    assert set(told.get_all("Provides-Extra", [])) == PROJECT["optional-dependencies"].keys()
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    assert "make demo" in str(told.get_payload())
    scripts = configparser.ConfigParser()
    scripts.read_string(wheel.read(f"{home}/entry_points.txt").decode())
    module = scripts["console_scripts"]["xylem"].split(":")[0]
    assert f"{module.replace('.', '/')}.py" in wheel.namelist()
