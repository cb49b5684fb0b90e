"""The sdist and the wheel stand alone: what README and Makefile name is there."""

from __future__ import annotations

import configparser
import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("a tree without git")
    files = [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
    assert [name for name in files if not (unpacked / name).is_file()] == []


@pytest.mark.parametrize("page", ["README.md", "Makefile"])
def test_what_a_page_names_is_in_the_sdist(unpacked: Path, page: str) -> None:
    text = (unpacked / page).read_text()
    if page == "README.md":
        named = {link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link}
        named |= set(re.findall(r"--data (\S+)", text)) - {"-"}
    else:
        named = set(re.findall(r"[\w./-]+\.(?:txt|py|in|toml|json)\b", text))
        named = {name for name in named if not name.startswith(("/", "-"))}
    assert len(named) > 5
    assert sorted(name for name in named if name and not (unpacked / name).exists()) == []


def test_the_wheel_has_the_packages_whole_and_no_tests(unpacked: Path, wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    packages = ("service", "model_store", "xylem")
    expected = {
        str(file.relative_to(unpacked))
        for package in packages
        for file in (unpacked / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert names == expected
    assert {"service/console/index.html", "xylem/py.typed"} <= names


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
