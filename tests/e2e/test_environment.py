"""Variables of libraries that others set in our environment: what we start works as
without them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.checkout import PYTHONPATH
from tests.helpers.served_models import publish_model
from tests.helpers.servers import KEY, ServerProcess, wait_for

from xylem_store.store import Store

HOSTILE = {
    "NUMBA_DISABLE_JIT": "1",
    "NUMBA_NUM_THREADS": "0",
    "NUMBA_CPU_NAME": "no such processor",
    "NUMBA_OPT": "many",
    "NUMBA_DUMP_IR": "1",
    "PROMETHEUS_MULTIPROC_DIR": "/no/such/directory",
    "prometheus_multiproc_dir": "/no/such/directory",
    "OTEL_PROPAGATORS": "b3",
    "OTEL_PYTHON_CONTEXT": "none",
    "OTEL_PYTHON_TRACER_PROVIDER": "none",
    "OTEL_SDK_DISABLED": "perhaps",
    "OTEL_TRACES_EXPORTER": "none of these",
    "OTEL_BSP_SCHEDULE_DELAY": "soon",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many",
    "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "no URL",
    "OMP_NUM_THREADS": "many",
    "OPENBLAS_NUM_THREADS": "0",
    "WEB_CONCURRENCY": "many",
    "FORWARDED_ALLOW_IPS": "nobody",
    "UVICORN_PORT": "http",
    "SQLALCHEMY_WARN_20": "1",
    "PGOPTIONS": "-c no=such",
    "PGSSLMODE": "perhaps",
    "AWS_PROFILE": "nobody",
    "PYTHONUNBUFFERED": "1",
    "COLUMNS": "many",
    "TERMINAL_WIDTH": "many",
    "TZ": "Nowhere/City",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a store that has a model `m`, and rows to train on."""
    publish_model(Store(tmp_path / "store"), "m", "tfidf")
    rows = [
        {"text": f"row{n} word{n % 7} editor{n % 3}", "labels": [f"label{n % 5}"]}
        for n in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def called(place: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": PYTHONPATH,
        "XYLEM_STORE": str(place / "store"),
        **more,
    }
    arguments = [sys.executable, *command]
    return subprocess.run(
        arguments, cwd=place, env=environment, capture_output=True, text=True, check=False
    )


TRAIN = ("-m", "xylem", "train", "label-tree", "--model", "new", "--data", "rows.jsonl", "--json")


@pytest.mark.parametrize("more", [HOSTILE, {"PYTHONWARNINGS": "error"}], ids=["all", "warnings"])
def test_a_command_does_as_without_them(place: Path, more: dict[str, str]) -> None:
    done = called(place, *TRAIN, **more)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert json.loads(done.stdout)["version"] == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_and_its_processes_do_as_without_them(place: Path, workers: int) -> None:
    """Requests, figures, the document, and a job in processes of its own."""
    command = [sys.executable, "-m", "xylem", "serve", "--port", "0", "--workers", str(workers)]
    more = {**HOSTILE, "XYLEM_STORE": str(place / "store"), "PYTHONPATH": PYTHONPATH}
    settings = {
        "jobs": 1,
        "admin_key": KEY,
        "data_dir": place,
        "open_scopes": "predict,metrics",
        "job_nice": 0,
    }
    server = ServerProcess(
        place / "store", workers, command=command, environment_changes=more, **settings
    )
    with server:
        body = {"instances": [{"text": "a text editor"}]}
        assert server.ask("POST", "/v1/models/m/predict", body)[0] == 200
        assert server.ask("GET", "/metrics")[0] == server.ask("GET", "/openapi.json")[0] == 200
        job = {"model": "new", "trainer": "label-tree", "data": "rows.jsonl"}
        status, answer = server.admin("POST", "/training-jobs", job)
        assert status == 202, answer
        ended = ("succeeded", "failed", "cancelled")
        wait_for(lambda: server.admin("GET", f"/jobs/{answer['id']}")[1]["state"] in ended)
        assert server.admin("GET", f"/jobs/{answer['id']}")[1]["state"] == "succeeded"
        assert server.terminate() == 0
        assert not server.events("worker_died") and "Traceback" not in server.log()


def test_kernels_are_compiled_as_without_them(place: Path) -> None:
    """Each of these variables would have them compiled otherwise, or not at all."""
    cache = {name: os.environ[name] for name in ("XYLEM_KERNEL_CACHE",) if name in os.environ}
    done = called(place, "-m", "xylem.warm", "answers", **HOSTILE, **cache)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


MODEL = """
import os, warnings
warnings.simplefilter("error")
before = dict(os.environ)
import xylem
texts = ["a text editor", "an image editor", "a browser of the web", "a reader of mail"] * 3
model = xylem.train(texts, [["edit"], ["edit", "image"], ["web"], ["mail"]] * 3)
answers = model.predict(["a text editor"], top_r=2)
xylem.Client("http://127.0.0.1:9")
print(dict(os.environ) == before, answers[0][0].label)
"""


def test_a_program_that_imports_us_has_its_environment_as_it_was(place: Path) -> None:
    mine = {name: value for name, value in HOSTILE.items() if not name.startswith("NUMBA_")}
    done = called(place, "-c", MODEL, **mine)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True edit\n", ""), done.stderr


def test_a_program_whose_numba_compiles_nothing_is_told(place: Path) -> None:
    done = called(place, "-c", MODEL, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 1
    assert (
        "ImportError: xylem: NUMBA_DISABLE_JIT: expected numba to compile"
        in done.stderr.splitlines()[-1]
    )
