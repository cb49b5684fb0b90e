"""The digest of the sources of a kernel: what it covers, and what it leaves out."""

import ast
from pathlib import Path

import pytest

from model_store.compiled import cache as source_files


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules of kernels, of which the first one imports the second, in place of ours."""
    package = tmp_path / "service"
    package.mkdir()
    (package / "first.py").write_text("from service.second import helper\n")
    (package / "second.py").write_text("import numpy\nhelper = 1\n")
    (package / "third.py").write_text("import service.first\n")
    monkeypatch.setattr(source_files, "ROOT", tmp_path)
    return package


def fresh_digest(path: Path) -> str:
    for known in (source_files.source_digest, source_files._source, source_files._file_of):
        known.cache_clear()
    return source_files.source_digest(path)


def test_an_edit_in_any_module_that_is_reached_changes_the_digest(sources: Path) -> None:
    first, third = (fresh_digest(sources / name) for name in ("first.py", "third.py"))
    (sources / "second.py").write_text("import numpy\nhelper = 2\n")
    assert fresh_digest(sources / "first.py") != first
    assert fresh_digest(sources / "third.py") != third


def test_an_edit_elsewhere_does_not(sources: Path) -> None:
    second = fresh_digest(sources / "second.py")
    (sources / "first.py").write_text("from service.second import helper  # edited\n")
    assert fresh_digest(sources / "second.py") == second


def parsed_imports(path: Path) -> set[Path]:
    """The files of ours that a module imports, as Python's parser finds them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    files = (source_files.ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names)
    return {
        file
        for file in files
        if file.is_file() and file.relative_to(source_files.ROOT).parts[0] in source_files.PACKAGES
    }


def test_imports_are_found_as_the_parser_finds_them() -> None:
    packages = [source_files.ROOT / package for package in source_files.PACKAGES]
    files = [file for package in packages for file in package.rglob("*.py")]
    assert len(files) > 200
    for file in files:
        assert set(source_files._source(file)[1]) == parsed_imports(file)


def test_imports_of_every_form_count(sources: Path) -> None:
    forms = (
        "from service import second",
        "    from service.second import (  # in a function\n        helper,\n    )",
        "import numpy, service.second as other",
        "from service import (\n    third,\n    second,\n)",
    )
    for form in forms:
        (sources / "first.py").write_text(f"x = 1\n{form}\n")
        fresh_digest(sources / "first.py")
        assert sources / "second.py" in source_files._source(sources / "first.py")[1]


def test_modules_that_import_each_other_have_a_digest_each(sources: Path) -> None:
    (sources / "second.py").write_text("from service.first import helper\n")
    before = [fresh_digest(sources / name) for name in ("first.py", "second.py")]
    (sources / "second.py").write_text("from service.first import helper  # edited\n")
    after = [fresh_digest(sources / name) for name in ("first.py", "second.py")]
    assert not set(before) & set(after)
