"""The image, built and run for real: `make image-test`. Skips where it is
not asked for, or without buildah.

IMAGE names one that is built already; BASE what it is built on, else what the Dockerfile names.
Where no registry of images can be reached: tests/image_base.sh NAME, and BASE=NAME.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.replicas import reserved_ports
from tests.helpers.servers import exchange, wait_for

ROOT = Path(__file__).resolve().parents[2]
BYTES_MAX = 420_000_000
"""Of the layers above the base."""

USER = 10001
BUILDAH = shutil.which("buildah")


@pytest.fixture(scope="module")
def image() -> str:
    """The name of the image."""
    if os.environ.get("IMAGE_TEST") != "1":
        pytest.skip("an image takes minutes to build: make image-test")
    if BUILDAH is None:
        pytest.skip("buildah, with which this test looks into the image, is not installed")
    if named := os.environ.get("IMAGE"):
        return named
    base = os.environ.get("BASE")
    options = (
        ["--build-arg", f"PYTHON_IMAGE={base}", "--build-arg", "PYTHON_DIGEST="] if base else []
    )
    name, script = "localhost/xylem-test", ROOT / "deploy" / "build_image.sh"
    subprocess.run([script, name, *options], env={**os.environ, "ENGINE": "buildah"}, check=True)
    return name


def buildah(*words: str | Path) -> str:
    return subprocess.check_output(["buildah", *map(str, words)], text=True).strip()


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[str]:
    name = buildah("from", image)
    yield name
    buildah("rm", name)


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories for /store and /data, with the example's data; they are the image's user's."""
    home = Path(tmp_path_factory.mktemp("image"))
    shutil.copytree(ROOT / "examples" / "debtags", home / "data")
    (home / "store").mkdir()
    for path in (home, *home.rglob("*")):
        os.chown(path, USER, USER)
    return home


def command(container: str, volumes: Path, *words: str, **environment: object) -> list[str]:
    """What runs words in the container as its own user, in the network of this machine."""
    told = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
    mounts = ["-v", f"{volumes}/store:/store", "-v", f"{volumes}/data:/data"]
    return ["buildah", "run", "--isolation", "chroot", *mounts, *told, container, "--", *words]


def run(container: str, volumes: Path, *words: str, **environment: object) -> str:
    """What words write in the container; no kernel may have been compiled for them."""
    asked = command(container, volumes, *words, **environment)
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "compil" not in done.stderr, done.stderr
    return done.stdout


def inspected(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", image))
    return found


def size(image: str) -> int:
    """Bytes of what an image holds, all layers together."""
    name = buildah("from", image)
    try:
        root = Path(buildah("mount", name))
        return sum(
            path.lstat().st_size for path in root.rglob("*") if path.is_file() or path.is_symlink()
        )
    finally:
        buildah("rm", name)


def test_its_layers_are_within_their_bytes(image: str) -> None:
    labels = inspected(image)["Docker"]["config"]["Labels"]
    base = os.environ.get("BASE") or labels["org.opencontainers.image.base.name"]
    above = size(image) - size(base)
    print(f"layers above {base}: {above / 1e6:.0f} MB")
    assert above <= BYTES_MAX


def test_it_holds_nothing_to_install_with_and_no_tests(container: str, volumes: Path) -> None:
    listing = run(container, volumes, "find", "/opt/xylem", "-type", "d")
    names = {Path(line).name for line in listing.splitlines()}
    assert not names & {"pip", "setuptools", "hatchling", "tests"}
    bill = json.loads(run(container, volumes, "cat", "/opt/xylem/sbom.cdx.json"))
    listed = {each["name"].lower() for each in bill["components"]}
    script = (
        "import importlib.metadata as m; print(*{x.metadata['Name'].lower() for x in "
        "m.distributions()})"
    )
    installed = set(run(container, volumes, "/opt/xylem/bin/python", "-I", "-c", script).split())
    assert listed == installed - {"xylem-serve"}
    assert {"numba", "psycopg", "s3fs"} <= listed and "hatchling" not in listed


def test_it_trains_evaluates_tunes_predicts_without_compiling(
    container: str, volumes: Path
) -> None:
    assert run(container, volumes, "id", "-u").strip() == str(USER)
    trainers = ("label-tree", "plt", "lomtree", "ovr")
    for trainer in trainers:
        files = [
            "--data",
            "/data/test.jsonl.gz",
            "--valid",
            "/data/test.jsonl.gz",
            "--model",
            trainer,
        ]
        for level in ("generic", "portable"):
            words = ["xylem", "train", trainer, *files, "--json"]
            told = run(container, volumes, *words, XYLEM_KERNEL_CPU=level)
            assert json.loads(told.splitlines()[-1])["metrics"]["P@1"] > 50
    for what in ("evaluate", "thresholds"):
        run(container, volumes, "xylem", what, "label-tree", "--data", "/data/test.jsonl.gz")
    listed = json.loads(
        run(container, volumes, "xylem", "models", "list", "--json").splitlines()[-1]
    )
    versions = {each["name"]: len(each["versions"]) for each in listed["models"]}
    assert versions == dict.fromkeys(trainers, 2)


@pytest.mark.parametrize("level", ["generic", "portable"])
def test_it_serves_on_its_configured_port_and_ends_on_a_signal(
    container: str, volumes: Path, tmp_path: Path, level: str, image: str
) -> None:
    with reserved_ports(1) as (port,):
        told = {"XYLEM_PORT": port, "XYLEM_OPEN_SCOPES": "predict", "XYLEM_KERNEL_CPU": level}
        entry = inspected(image)["Docker"]["config"]
        words = [*entry["Entrypoint"], *entry["Cmd"]]
        log = tmp_path / "log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command(container, volumes, *words, **told), stdout=file, stderr=file
            )
        check = entry["Healthcheck"]["Test"][1:]

        def is_healthy() -> bool:
            assert process.poll() is None, log.read_text()
            asked = command(container, volumes, *check, **told)
            return subprocess.run(asked, capture_output=True).returncode == 0

        wait_for(is_healthy)
        body = json.dumps({"instances": [{"text": "chess game for the console"}]}).encode()
        status, _, answer = exchange(port, "POST", "/v1/models/label-tree/predict", body)
        assert status == 200 and json.loads(answer)["predictions"][0]["labels"]
        for child in subprocess.check_output(["pgrep", "-P", str(process.pid)]).split():
            os.kill(int(child), signal.SIGTERM)
        process.wait(120)
    assert "compil" not in log.read_text()
