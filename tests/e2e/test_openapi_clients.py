"""Clients and frames of other projects, from their own environment."""

import importlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import ServerProcess

GENERATOR = Path(__file__).resolve().parents[2] / ".venv-clients" / "bin" / "openapi-python-client"
TYPESCRIPT = Path(__file__).resolve().parents[1] / "typescript"
CONFIG = "post_hooks: []\n"  # which would have the generated code formatted


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store) as process:
        yield process


@pytest.fixture(scope="module")
def generated(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the generated package, which can be imported."""
    if not GENERATOR.exists():
        pytest.skip("openapi-python-client is not installed (make test-system does)")
    directory = tmp_path_factory.mktemp("generated")
    (directory / "openapi.json").write_text(json.dumps(server.ask("GET", "/openapi.json")[1]))
    (directory / "config.yaml").write_text(CONFIG)
    command = [GENERATOR, "generate", "--meta", "none", "--config", "config.yaml", "--path", "openapi.json"]
    command += ["--output-path", "xylem_generated"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" not in done.stdout.lower(), done.stdout
    sys.path.insert(0, str(directory))
    yield "xylem_generated"
    sys.path.remove(str(directory))


def models_of(package: str) -> Any:
    return importlib.import_module(f"{package}.models")


@pytest.mark.parametrize(
    ("model", "kind", "fields"),
    [
        ("text", "TextInstance", {"text": "a game of chess"}),
        ("raw", "SparseInstance", {"indices": [1, 5], "values": [1.0, 0.5]}),
        ("named", "NamedInstance", {"features": {"red": 1.0, "blue": 0.25}}),
    ],
)
def test_it_predicts(server: ServerProcess, generated: str, model: str, kind: str, fields: Any) -> None:
    models = models_of(generated)
    predict = find_operation(generated, "predict")
    instance = getattr(models, kind).from_dict(fields)
    body = models.PredictRequest(instances=[instance], top_r=3)
    with client_of(generated, server) as client:
        answer = predict.sync(model, client=client, body=body)
    assert isinstance(answer, models.PredictAnswer)
    expected = server.ask("POST", f"/v1/models/{model}/predict", {"instances": [fields], "top_r": 3})[1]
    found = [(label.label, label.id, label.score) for label in answer.predictions[0].labels]
    assert found == [(one["label"], one["id"], one["score"]) for one in expected["predictions"][0]["labels"]]


@pytest.mark.parametrize(
    ("model", "row"), [("text", {"text": "a game of chess"}), ("named", {"features": {"red": 1.0}})]
)
def test_it_predicts_lines(server: ServerProcess, generated: str, model: str, row: Any) -> None:
    lines = [json.dumps(row).encode() + b"\n", b"no json\n"] * 300
    file_of = importlib.import_module(f"{generated}.types").File
    batch = find_operation(generated, "batch")
    with client_of(generated, server) as client:
        answer, refused = (
            batch.sync(name, client=client, body=file_of(io.BytesIO(b"".join(lines))), top_r=3)
            for name in (model, "none")
        )
    found = [json.loads(line) for line in answer.payload.read().splitlines()]
    expected = [json.loads(line) for line in server.stream(f"/v1/models/{model}/batch?top_r=3", lines)]
    for line in (*found, *expected):
        line.pop("prediction_id", None)
    assert found == expected and len(found) == 600 and found[1]["error"]["line"] == 2
    assert isinstance(refused, models_of(generated).Problem) and refused.code == "model-not-found"


def client_of(package: str, server: ServerProcess) -> Any:
    return importlib.import_module(package).Client(base_url=f"http://127.0.0.1:{server.port}")


def find_operation(package: str, name: str) -> Any:
    """The module of an operation, in whichever directory its tag put it."""
    root = Path(importlib.import_module(package).__path__[0])
    (file,) = root.glob(f"api/*/{name}.py")
    return importlib.import_module(f"{package}.api.{file.parent.name}.{name}")


def test_a_refusal_is_a_problem(server: ServerProcess, generated: str) -> None:
    models = models_of(generated)
    body = models.PredictRequest(instances=[models.TextInstance(text="a")], top_r=100_000)
    with client_of(generated, server) as client:
        answer = find_operation(generated, "predict").sync("text", client=client, body=body)
    assert isinstance(answer, models.Problem)
    assert (answer.status, answer.code, answer.errors[0].path) == (422, "limit-exceeded", "top_r")
    assert answer.detail.startswith("top_r: expected at most 1000")


def test_a_typescript_client_predicts_and_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    modules = TYPESCRIPT / "node_modules"
    if not modules.exists():
        pytest.skip("openapi-typescript is not installed (make test-system does, where there is npm)")
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(server.ask("GET", "/openapi.json")[1]))
    for name in ("package.json", "tsconfig.json", "predict.ts"):
        shutil.copy(TYPESCRIPT / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(modules)
    environment = {**os.environ, "XYLEM_TEST_URL": f"http://127.0.0.1:{server.port}"}
    for command in (
        (modules / ".bin" / "openapi-typescript", document, "--output", "schema.ts"),
        (modules / ".bin" / "tsc",),
        ("node", "built/predict.js"),
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    for model, fields in (
        ("text", {"text": "a game of chess"}),
        ("raw", {"indices": [1, 5], "values": [1.0, 0.5]}),
        ("named", {"features": {"red": 1.0, "blue": 0.25}}),
    ):
        body = {"instances": [fields], "top_r": 3}
        expected = server.ask("POST", f"/v1/models/{model}/predict", body)[1]
        labels = expected["predictions"][0]["labels"]
        assert found[model] == [[label["label"], label["score"]] for label in labels]
    assert (found["refused"]["status"], found["refused"]["code"]) == (422, "limit-exceeded")


ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "unit" / "xylem" / "test_frames.py"
RUN = "import sys, pytest; sys.path.append(sys.argv.pop()); sys.exit(pytest.main(sys.argv[1:]))"


def test_frames_of_datasets(tmp_path: Path) -> None:
    found = list((ROOT / ".venv-clients" / "lib").glob("python3*/site-packages"))
    if not any((packages / "datasets").is_dir() for packages in found):
        pytest.skip("datasets is not installed (make test-system does)")
    options = ["-q", "-k", "datasets", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={tmp_path}/t"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *options, str(TESTS), str(found[0])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "1",
            "PATH": "/usr/bin:/bin",
            "HOME": str(Path.home()),
        },
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout and " passed" in done.stdout, done.stdout[-2000:]
