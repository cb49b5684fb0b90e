"""Who reads our OpenAPI document: the page /docs in a browser,
generated clients; and frames of datasets.

Those of other projects run in their own environment.
"""

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
from tests.helpers.browser import CHROMIUM, FLAGS
from tests.helpers.servers import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / ".venv-clients"
TYPESCRIPT = ROOT / "tests" / "typescript"
LOGS = ("--enable-logging=stderr", "--virtual-time-budget=20000")
CONFIG = "post_hooks: []\n"  # which would have the generated code formatted
INSTANCES: dict[str, dict[str, Any]] = {
    "text": {"text": "a game of chess"},
    "raw": {"indices": [1, 5], "values": [1.0, 0.5]},
    "named": {"features": {"red": 1.0, "blue": 0.25}},
}
"""By the name of a model."""


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store) as process:
        yield process


def run(command: list[object], directory: Path, **options: Any) -> str:
    """What a command says; it succeeds."""
    done = subprocess.run(
        list(map(str, command)), cwd=directory, capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def opened(server: ServerProcess, directory: Path, fragment: str) -> tuple[str, str]:
    """The page's elements once its scripts have run, and what the browser logged."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    url = f"{server.url}/docs#{fragment}"
    command = [CHROMIUM, *FLAGS, *LOGS, f"--user-data-dir={directory}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout, done.stderr


def test_the_page_shows_the_options_of_predict(server: ServerProcess, tmp_path: Path) -> None:
    page, said = opened(server, tmp_path, "/predict/predict")
    options = (
        "instances",
        "top_r",
        "threshold",
        "beam_width",
        "deny_labels",
        "label_weights",
        "deadline_ms",
    )
    assert [option for option in options if option not in page] == []
    assert "labels an instance gets, at most" in page
    assert "Content Security Policy" not in said
    assert "Resolver error" not in page
    asked = {event["path"] for event in server.events("request")}
    assert {"/docs", "/openapi.json", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"} <= asked


def test_admin_routes_ask_for_the_key_and_errors_are_listed(
    server: ServerProcess, tmp_path: Path
) -> None:
    page, _ = opened(server, tmp_path, "/thresholds/tuneThresholds")
    assert "Authorize" in page
    assert 'class="authorization__btn' in page
    assert '<tr id="limit-exceeded">' in page


class Generated:
    """The package that openapi-python-client makes, which can be
    imported, and a server that it asks.
    """

    def __init__(self, name: str, url: str) -> None:
        self._name, self._url = name, url
        self.models = self.module("models")

    def module(self, name: str) -> Any:
        return importlib.import_module(f"{self._name}.{name}")

    def call(self, operation: str, model: str, **fields: Any) -> Any:
        """Call an operation, in whichever directory its tag put it."""
        package = importlib.import_module(self._name)
        (file,) = Path(package.__path__[0]).glob(f"api/*/{operation}.py")
        with package.Client(base_url=self._url) as client:
            return self.module(f"api.{file.parent.name}.{operation}").sync(
                model, client=client, **fields
            )


@pytest.fixture(scope="module")
def generated(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Generated]:
    generator = CLIENTS / "bin" / "openapi-python-client"
    if not generator.exists():
        pytest.skip("openapi-python-client is not installed (make test-system does)")
    directory = tmp_path_factory.mktemp("generated")
    (directory / "openapi.json").write_text(json.dumps(server.ask("GET", "/openapi.json")[1]))
    (directory / "config.yaml").write_text(CONFIG)
    options = "--meta none --config config.yaml --path openapi.json --output-path xylem_generated"
    said = run([generator, "generate", *options.split()], directory)
    assert "error" not in said.lower(), said
    sys.path.insert(0, str(directory))
    yield Generated("xylem_generated", server.url)
    sys.path.remove(str(directory))


@pytest.mark.parametrize("model", INSTANCES)
def test_it_predicts(server: ServerProcess, generated: Generated, model: str) -> None:
    kinds = {"text": "TextInstance", "raw": "SparseInstance", "named": "NamedInstance"}
    instance = getattr(generated.models, kinds[model]).from_dict(INSTANCES[model])
    body = generated.models.PredictRequest(instances=[instance], top_r=3)
    answer = generated.call("predict", model, body=body)
    assert isinstance(answer, generated.models.PredictAnswer)
    found = [(label.label, label.id, label.score) for label in answer.predictions[0].labels]
    assert found == [(one["label"], one["id"], one["score"]) for one in predicted(server, model)]


def predicted(server: ServerProcess, model: str) -> list[dict[str, Any]]:
    body = {"instances": [INSTANCES[model]], "top_r": 3}
    _, answer = server.ask("POST", f"/v1/models/{model}/predict", body)
    return answer["predictions"][0]["labels"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("model", ["text", "named"])
def test_it_predicts_lines(server: ServerProcess, generated: Generated, model: str) -> None:
    lines = [json.dumps(INSTANCES[model]).encode() + b"\n", b"no json\n"] * 300
    file_of = generated.module("types").File

    def batch(name: str) -> Any:
        return generated.call("batch", name, body=file_of(io.BytesIO(b"".join(lines))), top_r=3)

    answer, refused = batch(model), batch("none")
    found = [json.loads(line) for line in answer.payload.read().splitlines()]
    expected = [
        json.loads(line) for line in server.stream(f"/v1/models/{model}/batch?top_r=3", lines)
    ]
    for line in (*found, *expected):
        line.pop("prediction_id", None)
    assert found == expected and len(found) == 600 and found[1]["error"]["line"] == 2
    assert isinstance(refused, generated.models.Problem) and refused.code == "model-not-found"


def test_a_refusal_is_a_problem(generated: Generated) -> None:
    models = generated.models
    body = models.PredictRequest(instances=[models.TextInstance(text="a")], top_r=100_000)
    answer = generated.call("predict", "text", body=body)
    assert isinstance(answer, models.Problem)
    assert (answer.status, answer.code, answer.errors[0].path) == (422, "limit-exceeded", "top_r")
    assert answer.detail.startswith("top_r: expected at most 1000")


def test_a_typescript_client_predicts_and_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    modules = TYPESCRIPT / "node_modules"
    if not modules.exists():
        pytest.skip(
            "openapi-typescript is not installed (make test-system does, where there is npm)"
        )
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(server.ask("GET", "/openapi.json")[1]))
    for name in ("package.json", "tsconfig.json", "predict.ts"):
        shutil.copy(TYPESCRIPT / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(modules)
    told = {"timeout": 120, "env": {**os.environ, "XYLEM_TEST_URL": server.url}}
    run(
        [modules / ".bin" / "openapi-typescript", document, "--output", "schema.ts"],
        tmp_path,
        **told,
    )
    run([modules / ".bin" / "tsc"], tmp_path, **told)
    found = json.loads(run(["node", "built/predict.js"], tmp_path, **told))
    for model in INSTANCES:
        assert found[model] == [
            [label["label"], label["score"]] for label in predicted(server, model)
        ]
    assert (found["refused"]["status"], found["refused"]["code"]) == (422, "limit-exceeded")


def test_frames_of_datasets(tmp_path: Path) -> None:
    found = list((CLIENTS / "lib").glob("python3*/site-packages"))
    if not any((packages / "datasets").is_dir() for packages in found):
        pytest.skip("datasets is not installed (make test-system does)")
    script = (
        "import sys, pytest; sys.path.append(sys.argv.pop()); sys.exit(pytest.main(sys.argv[1:]))"
    )
    options = [
        "-q",
        "-k",
        "datasets",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        f"--basetemp={tmp_path}/t",
    ]
    command = [sys.executable, "-c", script, *options, "tests/unit/python/test_frames.py", found[0]]
    env = {
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(Path.home()),
    }
    said = run(command, ROOT, timeout=300, env=env)
    assert "skipped" not in said and " passed" in said, said[-2000:]
