"""R25: once ready, no request compiles a kernel or loads one from the cache."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.helpers.hidden_parts import IMPORT_WITHOUT
from tests.helpers.servers import ServerProcess, wait_for

from xylem.api.routes.requests import KERNELS_OF_A_MODEL
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.compiled import inner_parts
from xylem_store.store import Store

ROOT = Path(__file__).resolve().parents[2]
_PROBE = """
import asyncio, itertools, json, sys, tempfile
from pathlib import Path
import numba
from numba.core import event
from tests.conftest import serving, settings_of

RAW = {"indices": [2, 0], "values": [1.0, 0.5]}
INSTANCES = {
    "raw": [RAW], "named": [RAW, {"features": {"red": 1.0}}],
    "text": [RAW, {"text": "chess"}], "hashed": [RAW, {"text": "chess"}],
}
OPTIONS = [
    {}, {"exact": True}, {"threshold": 0.1}, {"top_r": 11, "beam_width": 100},
    {"allow_labels": ["label::1", "label::2"]}, {"deny_labels": ["label::3"], "exact": True},
    {"deny_labels": ["label::3"], "threshold": 0.0}, {"explain": True},
    {"deadline_ms": 1000},
]

class Recorder(event.Listener):
    def __init__(self):
        self.seen = []
    def on_start(self, e):
        self.seen.append(str(e.data))
    def on_end(self, e):
        pass

def lines(values):
    return "".join(json.dumps(value) + "\\n" for value in values)

async def main():
    recorder = Recorder()
    url = f"sqlite:///{tempfile.mkdtemp()}/xylem.db"
    async with serving(settings_of(Path(sys.argv[1]), database_url=url)) as (_, client):
        for kind in ("numba:compile", "numba:compiler_lock"):
            event.register(kind, recorder)
        n = 0

        async def send(path, content, kind="json"):
            nonlocal n
            content = content if isinstance(content, str) else json.dumps(content)
            headers = {"content-type": f"application/{kind}"}
            response = await client.post(f"/v1/models/{path}", content=content, headers=headers)
            assert response.status_code == 200, response.text
            assert "error" not in response.text and "rejected" not in response.text, response.text
            n += 1

        for model, instances in INSTANCES.items():
            for options, instance in itertools.product(OPTIONS, instances):
                for copies in (1, 20 if "explain" in options else 200):
                    await send(f"{model}/predict", {"instances": [instance] * copies, **options})
            for query in ("", "?exact=true", "?threshold=0.1", "?deny_labels=label::1"):
                await send(f"{model}/batch{query}", lines(instances * 40), "x-ndjson")
            for instance in instances:  # feedback: one event, plain or not, a block, and lines
                said = {"instance": instance, "labels": ["label::1"]}
                events = [{"event_id": f"{n}-{i}", **said} for i in range(80)]
                await send(f"{model}/feedback", events[0])
                await send(f"{model}/feedback", {"events": events})
                await send(f"{model}/feedback", lines(events), "x-ndjson")
        compilations = list(recorder.seen)
        numba.njit(lambda x: x + 1)(1)  # prove that one would be seen
        print(json.dumps({"requests": n, "compilations": compilations, "seen": recorder.seen}))

asyncio.run(main())
"""


def said_by(script: str, *arguments: Path) -> str:
    """What a script says in a process of its own, which must end well."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_request_compiles_anything(shared_store: Path) -> None:
    answer = json.loads(said_by(_PROBE, shared_store).splitlines()[-1])
    assert answer["compilations"] == []
    assert answer["requests"] > 50
    assert answer["seen"]


_UNWARMED = r"""
import importlib, re, tempfile
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from xylem.server.warm.kernels import jobs, warm
from xylem_store import package_folders

kernels, reached = {}, set()
for package, folder in package_folders().items():
    for path in folder.rglob("*.py"):
        names = re.findall(r"^@(?:nonallocating_)?kernel\ndef (\w+)", path.read_text(), re.M)
        if names:
            parts = path.relative_to(folder).with_suffix("").parts
            module = importlib.import_module(".".join([package, *parts]))
            kernels |= {f"{module.__name__}.{name}": getattr(module, name) for name in names}
with tempfile.TemporaryDirectory() as directory:
    for job in jobs(Path(directory)):
        warm(job)
# a kernel that only others call is compiled with them
pending = [kernel for kernel in kernels.values() if kernel.signatures]
while pending:
    function = pending.pop().py_func
    if function not in reached:
        reached.add(function)
        called = map(function.__globals__.get, function.__code__.co_names)
        pending += [one for one in called if isinstance(one, Dispatcher)]
print(len(kernels), *sorted(n for n, kernel in kernels.items() if kernel.py_func not in reached))
"""

_NOT_WARMED = {
    "xylem.extras.importers.omikuji._read_arguments": "a model of omikuji is imported once",
}
"""Kernels that are compiled when they are needed, and why."""


@pytest.mark.timeout(600)
def test_warming_reaches_every_kernel_of_the_sources() -> None:
    """A container or a wheel cannot keep kernels, and would compile a forgotten one at each start.

    If this fails, let `xylem.server.warm.kernels` do what a user does who needs the kernel.
    """
    n_kernels, *unreached = said_by(_UNWARMED).split()
    assert unreached == sorted(_NOT_WARMED)
    assert int(n_kernels) > 100


def test_to_import_the_server_loads_no_kernel() -> None:
    """A kernel that is called while modules are imported costs each process a quarter second."""
    code = (
        "import gc, xylem.server.serve, xylem.cli.application; from numba.core.dispatcher "
        "import Dispatcher;"
        "print([d.py_func.__name__ for d in gc.get_objects() if isinstance(d, Dispatcher) "
        "and d.signatures])"
    )
    assert said_by(code) == "[]\n"


_COUNTED = """
import sys
from pathlib import Path
from xylem_store.compiled.progress import PROGRESS
from xylem_store.store import Store
from xylem.serving.live.opening import serve_model

store = Store(Path(sys.argv[1]))
for info in store.models():
    serve_model(store.open(info.name))
    print(PROGRESS.n_ready)
"""


def test_models_need_about_as_many_kernels_as_a_server_expects(shared_store: Path) -> None:
    counts = [int(line) for line in said_by(_COUNTED, shared_store).split()]
    assert len(counts) == 4
    assert all(abs(n - KERNELS_OF_A_MODEL) <= 5 for n in counts), counts


def test_a_server_says_which_kernels_it_waits_for(shared_store: Path, tmp_path: Path) -> None:
    """From an empty cache on: it lives, counts, and a model that
    is open answers before it is ready.
    """
    said, answered = [], set[int]()
    with ServerProcess(shared_store, until_ready=False, kernel_cache=tmp_path) as server:
        while server.status("/livez") == 200:
            status, found = server.ask("GET", "/readyz")
            if status == 200:
                break
            said.append(found["waits_for"])
            path = (
                f"/v1/models/{found['models'][0]['model'] if found['models'] else 'named'}/predict"
            )
            answered.add(
                server.ask("POST", path, {"instances": [{"indices": [0], "values": [1.0]}]})[0]
            )
            time.sleep(0.05)
        assert (status, found["waits_for"]) == (200, None)
    counts = [
        int(re.fullmatch(r"kernels (\d+)( of \d+)?(, \d+ s left)?", one)[1])
        for one in said
        if one.startswith("kernels")
    ]
    assert all(one.startswith(("kernels", "the database", "the models")) for one in said)
    assert counts == sorted(counts)
    assert len(set(counts)) > KERNELS_OF_A_MODEL / 2
    assert answered == {200, 503}


def test_a_server_starts_where_kernels_cannot_be_kept(shared_store: Path) -> None:
    with ServerProcess(shared_store, until_ready=False, kernel_cache="/dev/null/kernels") as server:
        wait_for(lambda: " s left" in (server.ask("GET", "/readyz")[1]["waits_for"] or ""))
        assert server.status("/livez") == 200
        assert "cannot be kept" in server.log()


# --- a service whose numba lacks every inner part

_BEFORE = """
import sys
from pathlib import Path
{hide}
import_without({parts})
from xylem_store.store import Store
from xylem.workflows.train import TrainRequest, train_and_publish
train_and_publish(Store(Path(sys.argv[1])), "hidden", TrainRequest(trainer="label-tree", data=Path({data!r})))
"""  # noqa: E501

_SECONDS = 1800
"""It compiles for three minutes, if it is alone."""

_BODY = {"instances": [{"indices": [2, 11], "values": [1.0, 0.5]}], "top_r": 5}


@pytest.mark.soak
@pytest.mark.timeout(2 * _SECONDS)
def test_it_trains_starts_and_answers(tmp_path: Path) -> None:
    data = tmp_path / "train.svm"
    data.write_text("".join(f"{row % 9} {row % 9}:1 {9 + row % 4}:0.5\n" for row in range(60)))
    train_and_publish(Store(tmp_path), "whole", TrainRequest(trainer="label-tree", data=data))
    options = (f"numba.core.options:DefaultOptions.{name}" for name in inner_parts.OPTIONS)
    parts = ", ".join(map(repr, (*inner_parts.PARTS, *options)))
    before = _BEFORE.format(hide=IMPORT_WITHOUT, parts=parts, data=str(data))
    with ServerProcess(tmp_path, prelude=before, start_seconds=_SECONDS) as server:
        answers = [
            server.ask("POST", f"/v1/models/{model}/predict", _BODY)
            for model in ("whole", "hidden")
        ]
        assert [status for status, _ in answers] == [200, 200]
        whole, hidden = (answer["predictions"][0]["labels"] for _, answer in answers)
        assert whole == hidden
        assert len(whole) == 5
        assert server.log().count("kernels are slower, and compiled at each start: numba") == 1
