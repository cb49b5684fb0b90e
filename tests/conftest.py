"""Fixtures shared by the tests: a store with small models, and the service in process over it."""

import asyncio
import builtins
import contextlib
import inspect
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import hypothesis
import pytest
from fastapi import FastAPI

from tests.helpers.commands import complaints_of
from tests.helpers.databases import database, database_url, postgresql  # noqa: F401 - fixtures of all tests
from tests.helpers.served_models import publish_all
from tests.helpers.small_models import small_draft
from xylem.api.app import create_app
from xylem.base import logs
from xylem.base.settings import Settings, read_settings
from xylem.cli import application
from xylem_store.store import Store

READY_SECONDS = 240.0

# Examples have no deadline, so that none fails because the machine is busy for a moment. They are
# the same in each run, unless SEED=drawn: a failure that cannot be repeated tells nothing.
DRAWN = os.environ.get("SEED") == "drawn"
hypothesis.settings.register_profile("patient", deadline=None, derandomize=not DRAWN)
hypothesis.settings.load_profile("patient")


def pytest_configure() -> None:
    """Make processes end at SIGINT and SIGHUP, also if a shell or nohup let them be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the soak tests unless `-m` selects marks, as `-m soak`."""
    if not config.option.markexpr:
        soak = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=soak)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Run a test that is a coroutine function in an event loop of its own."""
    call = pyfuncitem.obj
    if inspect.iscoroutinefunction(call):
        pyfuncitem.obj = lambda **arguments: asyncio.run(call(**arguments))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a test's random numbers, which is printed.

    By default it depends on the name of the test; in a soak run it is drawn; or it is $SEED.
    """
    variable = os.environ.get("SEED", "")
    is_drawn = DRAWN or request.node.get_closest_marker("soak") is not None
    drawn = (
        int.from_bytes(os.urandom(4), "little")
        if is_drawn
        else zlib.crc32(request.node.name.encode())
    )
    number = int(variable) if variable.isdigit() else drawn
    print(f"SEED={number}")
    return number


@pytest.fixture(autouse=True)
def level_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the level of logs after a test, as a command in this process may change it."""
    monkeypatch.setattr(logs, "_level", logs._level)


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a store with a model of each kind.

    Tests must not change it or its thresholds.
    """
    root = tmp_path_factory.mktemp("store")
    publish_all(root)
    yield root
    file = root / "xylem.db"  # of servers over the store
    if file.exists():
        with contextlib.closing(sqlite3.connect(file)) as connection:
            n_events = connection.execute("SELECT count(*) FROM feedback_events").fetchone()[0]
        assert n_events == 0, (
            "a test sent feedback to the shared store: others would see its thresholds"
        )


@pytest.fixture
def own_store(shared_store: Path, tmp_path: Path) -> Store:
    """A copy of the shared store for tests that publish to it.

    The database that servers over the shared store may have made is not copied.
    """
    ignored_files = shutil.ignore_patterns("xylem.db*")
    return Store(Path(shutil.copytree(shared_store, tmp_path / "store", ignore=ignored_files)))


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """Run the service in this process; yield it, when it is ready, and a client of it."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        async with asyncio.timeout(READY_SECONDS):
            while (await client.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.01)
        yield app, client


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command in this process, without the time of a start.

    `input` is the standard input.
    """

    def run(*arguments: object, store: Path, input: str = "") -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("XYLEM_STORE", str(store))
        monkeypatch.setattr(sys, "argv", ["xylem", *map(str, arguments)])
        with tempfile.TemporaryFile("w+") as standard_input:
            standard_input.write(input)
            standard_input.seek(0)
            monkeypatch.setattr(sys, "stdin", standard_input)
            status = application.run()
        return subprocess.CompletedProcess(sys.argv, status, *capfd.readouterr())

    return run


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(run_here: Run, tmp_path: Path) -> Command:
    """As `run_here`, with the store of the test.

    The function returns (exit status, standard output, standard error).
    """

    def run(*arguments: object, store: Path = tmp_path / "store") -> tuple[int, str, str]:
        done = run_here(*arguments, store=store)
        return done.returncode, done.stdout, done.stderr

    return run


def answer(done: tuple[int, str, str]) -> Any:
    """Return the JSON on the last line of a command's output.

    Fails unless the command succeeded and its standard error is empty.
    """
    status, out, err = done
    assert (status, complaints_of(err)) == (0, "")
    return json.loads(out.splitlines()[-1])


@pytest.fixture
def versions_of_m(tmp_path: Path) -> Store:
    """The store of a test, with three versions of a small model `m`."""
    store = Store(tmp_path / "store")
    for _ in range(3):
        store.publish("m", small_draft(n_labels=3, n_features=40, n_trees=1))
    return store


Call = Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]
InProcess = Callable[..., Any]


@pytest.fixture(scope="session")
def shared_service(
    shared_store: Path,
) -> Iterator[tuple[asyncio.AbstractEventLoop, httpx.AsyncClient]]:
    """The service over the shared store, for tests that change nothing.

    Yields (the event loop of the service, in a thread of its own, and a client).
    """
    loop = asyncio.new_event_loop()
    started: Future[httpx.AsyncClient] = Future()

    async def main(done: asyncio.Event) -> None:
        async with serving(settings_of(shared_store)) as (_, client):
            started.set_result(client)
            await done.wait()

    done = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(main(done)))
    thread.start()
    yield loop, started.result(READY_SECONDS)
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.close()


@pytest.fixture
def in_process(
    shared_store: Path, shared_service: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient]
) -> InProcess:
    """A function that calls a coroutine function with a client of the service.

    With a store or limits the service is a new one, else it is the shared one.
    """

    def run(call: Call, store: Path | None = None, **limits: Any) -> Any:
        if store is None and not limits:
            loop, shared = shared_service
            return asyncio.run_coroutine_threadsafe(call(shared), loop).result()

        async def main() -> Any:
            async with serving(settings_of(store or shared_store, **limits)) as (_, client):
                return await call(client)

        return asyncio.run(main())

    return run


R = TypeVar("R")


def together(*calls: Callable[[], R]) -> list[R]:
    """Call all functions at the same moment, each in a thread; return their results.

    Raises the error of the first function that raised one.
    """
    gate = threading.Barrier(len(calls), timeout=60)

    def begin(call: Callable[[], R]) -> R:
        gate.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(begin, calls))


def get(path: str, **headers: str) -> Call:
    """Return a GET of a path, for `in_process`; _ in names of headers becomes -."""
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda client: client.get(path, headers=request_headers)


def post(path: str, content: Any, **headers: str) -> Call:
    """Return a POST of bytes, or of a value as JSON, for `in_process`."""
    data = json.dumps(content).encode() if isinstance(content, dict | list) else content
    request_headers = {"content-type": "application/json", **headers}
    return lambda client: client.post(path, content=data, headers=request_headers)


def scope_of(
    method: str, path: str, headers: dict[str, str], raw_path: bytes | None = None
) -> dict[str, Any]:
    """Return the ASGI scope with which a server calls an app for a request."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode() if raw_path is None else raw_path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "server": ("test", 80),
        "client": ("test", 1),
        "root_path": "",
    }


def whole_request(path: str, body: bytes, **extra_headers: str) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a POST, and the scope that the server's parser makes of them."""
    headers = {
        "host": "x",
        **extra_headers,
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body, scope_of("POST", path, headers)


def settings_of(store: Path, **changes: Any) -> Settings:
    """Return the settings of the environment for a store, with some settings or limits changed."""
    settings = read_settings(store=store, access_log=False)
    limits = {
        name: value for name, value in changes.items() if name in type(settings.limits).model_fields
    }
    other_changes = {name: value for name, value in changes.items() if name not in limits}
    return settings.model_copy(
        update={"limits": settings.limits.model_copy(update=limits), **other_changes}
    )


@pytest.fixture
def hide_module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that makes the import of a package, and of its modules, fail."""

    def hide(hidden: str) -> None:
        imported = builtins.__import__

        def refuse(name: str, *arguments: Any, **keywords: Any) -> Any:
            if name.split(".")[0] == hidden:
                raise ImportError(name)
            return imported(name, *arguments, **keywords)

        monkeypatch.setattr(builtins, "__import__", refuse)
        monkeypatch.setitem(sys.modules, hidden, None)  # for importlib.import_module

    return hide


def answered_from_bytes(app: FastAPI, path: str, body: bytes, **headers: str) -> Any:
    """Return the answer of an app to the bytes of a POST whose head it knows.

    Returns None if the request is left to the route.
    """
    message, scope = whole_request(path, body, **headers)
    app.state.whole_requests.learn(message, scope)
    return app.state.whole_requests.answer(message, b"")
