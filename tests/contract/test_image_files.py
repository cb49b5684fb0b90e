"""The Dockerfile and what builds it: each file, setting, port and extra that they name exists."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from deploy.image.sbom import bill, purl_of
from deploy.image.trim import KEPT, UNUSED, is_unused
from tests.helpers.checkout import PACKAGES, ROOT, SOURCE_ROOTS

from xylem.base.settings import Settings

DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = [f"FROM{stage}" for stage in re.split(r"^FROM", DOCKERFILE, flags=re.MULTILINE)[1:]]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
SOURCES = [file for package in PACKAGES for file in package.rglob("*")]


def pins(file: str) -> dict[str, str]:
    """The version of each distribution that a file of requirements pins."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / file).read_text(), re.MULTILINE))


def test_what_is_copied_is_there_and_let_through_to_the_engine() -> None:
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    copied = {source for line in lines for source in line.split()[:-1]}
    assert [source for source in copied if not (ROOT / source).exists()] == []
    first, *rules = (ROOT / ".dockerignore").read_text().split()
    assert first == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied
    assert {str(folder.relative_to(ROOT)) for folder in SOURCE_ROOTS} <= copied
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == [str(folder.relative_to(ROOT)) for folder in PACKAGES]


def test_the_base_is_pinned_by_tag_and_digest() -> None:
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert re.search(r"^ARG PYTHON_DIGEST=@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    assert [stage.splitlines()[0].split()[1] for stage in STAGES] == [
        "${PYTHON_IMAGE}${PYTHON_DIGEST}"
    ] * 3


def test_kernels_of_image_and_wheel_are_for_the_same_versions() -> None:
    assert "XYLEM_KERNEL_CPU=portable " in STAGES[-1]
    image, wheel = pins("requirements-image.txt"), pins("requirements.txt")
    names = ("numba", "llvmlite", "numpy")
    assert {name: image[name] for name in names} == {name: wheel[name] for name in names}


def test_the_health_check_follows_the_port_which_is_the_default() -> None:
    check = re.findall(r'^\s+CMD (\["python", "-c", .*\])$', DOCKERFILE, re.MULTILINE)
    code = json.loads(check[0])[2]
    assert '{environ["XYLEM_PORT"]}/readyz' in code
    compile(code, "HEALTHCHECK", "exec")
    port = str(Settings.model_fields["port"].default)
    assert re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE) == [port]
    assert f"XYLEM_PORT={port} " in DOCKERFILE


def test_it_does_not_run_as_root_and_says_what_it_is() -> None:
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    assert '"--uid", "10001"' in DOCKERFILE
    labels = re.findall(r"org\.opencontainers\.image\.([a-z.]+)=\"", DOCKERFILE)
    assert {"title", "description", "licenses", "version", "revision", "base.name"} <= set(labels)
    assert f'licenses="{PROJECT["license"]}"' in DOCKERFILE


def test_what_is_installed_is_pinned_for_the_extras_that_stay() -> None:
    extras = re.findall(r'"deploy/image/trim\.py", (.*)\]$', DOCKERFILE, re.MULTILINE)
    named = json.loads(f"[{extras[0]}]")
    assert set(named) <= PROJECT["optional-dependencies"].keys()
    makefile = (ROOT / "Makefile").read_text()
    lock = re.search(r"^\tuv pip compile .*-o requirements-image\.txt$", makefile, re.MULTILINE)
    assert lock and all(f"--extra {extra} " in lock[0] for extra in named)
    pinned = pins("requirements-image.txt")
    unpinned = [
        requirement
        for requirements in (
            PROJECT["dependencies"],
            *map(PROJECT["optional-dependencies"].get, named),
        )
        for requirement in requirements
        if re.split(r"[^\w-]", requirement)[0] not in pinned
    ]
    assert unpinned == []


def test_no_pattern_of_what_is_removed_takes_the_service() -> None:
    removed = [
        file
        for package in PACKAGES
        for file in package.rglob("*")
        if is_unused(file, package.parent)
    ]
    assert removed == []


def test_what_scipy_loses_is_what_nothing_of_ours_imports() -> None:
    """Only scipy.sparse stays. Whoever imports more of scipy must keep more of it in the image."""
    kept = {pattern for pattern in KEPT if pattern.startswith("scipy/") and "." not in pattern}
    assert kept == {"scipy/_lib", "scipy/sparse"}
    assert {"scipy/sparse/linalg", "scipy/sparse/csgraph"} <= set(UNUSED)
    imports = re.compile(r"^\s*(?:from|import) (scipy\b.*)$", re.MULTILINE)
    others = [
        f"{file}: {imported}"
        for file in SOURCES
        if file.suffix == ".py"
        for imported in imports.findall(file.read_text())
        if not re.match(r"scipy\.sparse( |$)|scipy import sparse$", imported)
    ]
    assert not others, "\n".join(others)


def test_everything_imports_with_the_parts_of_scipy_that_stay() -> None:
    """The image's build trains and asks every kind of model without the
    rest; here imports are refused it.
    """
    gone = [pattern.replace("/", ".") for pattern in UNUSED if re.fullmatch(r"[\w/]+", pattern)]
    gone += [
        f"scipy.{name}"
        for name in ("linalg", "special", "stats", "spatial", "optimize", "io", "fft")
    ]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({gone!r}))\n"
        "import xylem.server.warm.kernels, xylem.server.serve, xylem.cli.train, "
        "xylem.admin.jobs.child\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_bill_of_materials_names_every_distribution_once() -> None:
    from importlib.metadata import distributions

    packages = {each.metadata["Name"].lower(): each for each in distributions()}
    if "xylem-serve" not in packages:
        pytest.skip("xylem-serve is not installed as a distribution")
    document = bill(list(packages.values()))
    refs = [
        each["bom-ref"] for each in (document["metadata"]["component"], *document["components"])
    ]
    assert sorted(refs) == sorted(purl_of(each) for each in packages.values())
    depends = {each["ref"]: set(each["dependsOn"]) for each in document["dependencies"]}
    assert depends.keys() == set(refs) >= set().union(*depends.values())
    [ours] = [needed for ref, needed in depends.items() if "xylem-serve" in ref]
    assert any(ref.startswith("pkg:pypi/numba@") for ref in ours)


@pytest.mark.parametrize("script", ["deploy/build_image.sh", "tests/image_base.sh"])
def test_scripts_are_sound(script: str) -> None:
    """Executable, one that sh reads, and without a finding of shellcheck, where that
    is installed.
    """
    file = ROOT / script
    assert file.stat().st_mode & 0o100
    assert subprocess.run(["sh", "-n", file], check=False).returncode == 0
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_without_an_engine_the_script_says_so(tmp_path: Path) -> None:
    for name in ("sh", "dirname", "sed", "git"):
        (tmp_path / name).symlink_to(str(shutil.which(name) or shutil.which("true")))
    script = ROOT / "deploy" / "build_image.sh"
    none = "expected docker, podman or buildah, found none that works"
    for engine, status, said in (({}, 3, none), ({"ENGINE": "lxc"}, 2, "found lxc")):
        environment = {"PATH": str(tmp_path), **engine}
        done = subprocess.run(
            [script], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, said in done.stderr) == (status, "", True), (
            done.stderr
        )


def test_patterns_do_not_cross_directories() -> None:
    """fnmatch's star would: `scipy/*` must not take what lies deeper in a directory that stays."""
    site = Path("site")
    assert is_unused(site / "scipy/stats", site)
    assert is_unused(site / "numpy/_core/include/numpy.h", site)
    stay = (
        "scipy/sparse",
        "scipy/sparse/_csr.py",
        "scipy/__init__.py",
        "botocore/data/s3",
        "numpy/f2py",
    )
    assert [path for path in stay if is_unused(site / path, site)] == []
