"""Steps on the nodes of a Ray cluster, and how a command reaches one: `xylem train --ray auto`.

Nothing here imports Ray before it is asked for: `pip install 'xylem-serve[ray]'`.
"""

import io
import logging
import math
import os
import platform
import re
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from xylem.base.errors import BadInput, BadParameter, Unavailable, XylemError
from xylem.base.executors.local import Crew
from xylem.base.executors.values import Held, R, Step, T, mapped, shared
from xylem.base.logs import log
from xylem.base.rows import writeable
from xylem_store import package_folders, source_digest

EXTRA = "pip install 'xylem-serve[ray]'"

CONNECT_SECONDS = 10.0
"""So long an address may take to accept a connection."""

NODE_SECONDS = 120.0
"""So long a node may take to say which versions it has: its first process imports for a while."""

RETRIES = 10
"""So often a step is begun again after its process or node has died."""

BUNDLE_SECONDS = 0.5
"""Items are sent together until a bundle takes about so long: a task alone costs some
milliseconds.
"""

BUNDLE_MAX = 256

AHEAD = 2  # tasks for each processor that are sent at a time, so that none waits for the next one
LOG_MAX = 4000  # characters of what a step that failed wrote, and of its frames, that are shown
LOOK_SECONDS = 30.0
"""The pause between two looks at how many processors the cluster has, when no step ends."""

# so many looks in a row may find no processor at all: nodes may be on their way
IDLE_LOOKS_MAX = 20
_COLOURS = re.compile(r"\x1b\[\d*m")

_CURRENT = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
"""Where `ray start` writes the address that "auto" means."""


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """Yield the module `ray`, connected to a cluster whose nodes all have what this process has.

    address  "auto", HOST:PORT of a cluster that this machine is a node of, or ray://HOST:PORT

    In a process that is connected already the connection stays as it is, else it ends with the
    block. Raises BadParameter: Ray is not installed, the address is none, or versions differ
    between nodes; Unavailable: nobody answers there, within CONNECT_SECONDS, or a node does not
    within NODE_SECONDS.
    """
    try:
        import ray
    except ImportError:
        raise BadParameter(f"ray: expected the package ray, found none: {EXTRA}") from None
    is_ours = not ray.is_initialized()
    if is_ours:
        _reach(address)
        # else Ray warns of what it will do
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise Unavailable(
                f"ray: expected to join the cluster at {address}, found {reason}"
            ) from None
    try:
        _check_nodes(ray)
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


def _reach(address: str) -> None:
    """Raise BadParameter or Unavailable where nobody listens: Ray
    waits two minutes, and then exits.
    """
    place = address.removeprefix("ray://")
    if address == "auto":
        place = os.environ.get("RAY_ADDRESS", "") or (
            _CURRENT.read_text() if _CURRENT.is_file() else ""
        )
        if not place:
            fault = "expected a cluster that runs on this machine, found none: ray start --head"
            raise Unavailable(f"ray: {fault}, or give its address")
        place = place.strip().removeprefix("ray://")
    host, colon, port = place.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise BadParameter(
            f"ray: expected auto, HOST:PORT or ray://HOST:PORT, found {address[:100]!r}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        fault = f"expected a cluster at {place}, found none: {error.strerror or error}"
        raise Unavailable(f"ray: {fault}") from None


def _versions() -> dict[str, str]:
    """Return what must be the same on all nodes, so that a step gives the same bits on each."""
    import numba

    sources = source_digest(package_folders()["xylem"] / "trainers" / "registry.py")[:12]
    return {
        "Python": platform.python_version(),
        "Xylem": f"{version('xylem-serve')} ({sources})",
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def _check_nodes(ray: Any) -> None:
    """Raise BadParameter for a node with another version of anything than this process."""
    versions = _versions()
    for name, answer in _answers(ray, _versions):
        if isinstance(answer, Exception):
            last = str(answer).strip().splitlines()[-1][:300]
            raise BadParameter(
                f"ray: expected Xylem {versions['Xylem']} on node {name}, found: {last}"
            )
        for package, required in versions.items():
            if answer[package] != required:
                fault = f"expected {package} {required} on node {name}, as here, found {answer[package]}"
                raise BadParameter(f"ray: {fault}")


def _answers(ray: Any, call: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """Do a call on each node; yield the name of the node, and what the
    call returned or the error it raised.

    Raises Unavailable for a node that does not answer.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    errors = ray.exceptions
    task = ray.remote(call)
    begun = []
    for node in ray.nodes():
        if node["Alive"]:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ref = task.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote()
            begun.append((node["NodeManagerAddress"], ref))
    for name, ref in begun:
        try:
            answer = ray.get(ref, timeout=NODE_SECONDS)
        except (errors.TaskUnschedulableError, errors.NodeDiedError):
            continue  # it has died, but was not yet known to have: it takes no steps
        except errors.GetTimeoutError:
            fault = (
                f"expected node {name} to answer within {NODE_SECONDS:g} seconds, found "
                "that it does not"
            )
            raise Unavailable(f"ray: {fault}") from None
        except (errors.RayError, ImportError) as error:
            answer = error
        yield name, answer


# in a process of a node: the workspace of the step that it ran last
_workspaces: dict[str, Any] = {}


def _run_bundle(number: str, step: Step[T, R], items: list[T]) -> tuple[float, list[R]]:
    """Return the seconds that some items took, and their results; the
    step's arrays stay where they are.

    An error comes with what was written before it.
    """
    began = time.perf_counter()
    written = io.StringIO()
    step = mapped(step, shared)
    if number not in _workspaces:
        _workspaces.clear()
        _workspaces[number] = step.workspace()
    stop = np.zeros(1, np.uint8)
    try:
        with redirect_stdout(written), redirect_stderr(written):
            results = [
                step.run(mapped(item, writeable), _workspaces[number], stop) for item in items
            ]
    except BaseException as error:
        _workspaces.clear()  # it was not left as it was found
        error.add_note(f"written before: {written.getvalue()[-LOG_MAX:]}")
        raise
    return time.perf_counter() - began, results


class _InStore(NamedTuple):
    ref: Any

    def get(self) -> Any:
        """Return the value, on a node: its arrays stay where they are."""
        import ray

        return mapped(ray.get(self.ref), shared)


def _split(step: Step[Held[T], list[R]], item: Held[T]) -> list[Any]:
    """Return what a bundle of no results returns, and then the results of an item."""
    seconds, (results,) = _run_bundle(uuid.uuid4().hex, step, [item])
    return [(seconds, []), *results]


@contextmanager
def crew_of(threads: int, address: str | None, ahead: int = AHEAD) -> Iterator[Crew]:
    """Yield who runs steps: the nodes of a cluster (`connect`); without an address,
    threads here.
    """
    if address is None:
        yield Crew(threads)
        return
    with connect(address) as ray:
        yield RayCrew(threads, ray, ahead)


class RayCrew(Crew):
    """A crew whose steps are run by the nodes of a cluster; what it
    is given besides, by threads here.

    The fields of a step are put into the object store once, and each node fetches them once; a task
    takes a processor. Results do not depend on the nodes, nor on how items are bundled.
    """

    def __init__(self, threads: int, ray: Any, ahead: int = AHEAD) -> None:
        """Take the module `ray`; so many tasks a processor are sent at a time."""
        super().__init__(threads)
        self._ray = ray
        self._ahead = ahead
        self._found = 1
        self._looked_at = -math.inf
        self._made_by: list[Any] = []
        self._last: Any = None
        self._where: Any = None

    def steps(self, step: Step[T, R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        """Run `step` on every item, as `Crew.steps`.

        A step whose process or node dies is begun again elsewhere. Raises what a step raises, and
        Unavailable where it dies RETRIES times more, or no node is left. An interrupt ends what
        runs.
        """
        todo = iter(items)
        size = 1
        ahead = list[T]()
        number, fields = self._sent(step)
        task = self._task()
        running = dict[Any, list[T]]()
        try:
            while True:
                n_tasks = self._ahead * self._processors()
                while len(running) < n_tasks:
                    # a bundle is a share of the items that lie ahead: at the end they become small
                    ahead += islice(todo, max(0, n_tasks * (size - 1) + 1 - len(ahead)))
                    n_next = min(size, -(-len(ahead) // n_tasks))
                    if not n_next:
                        break
                    bundle = ahead[:n_next]
                    ahead = ahead[n_next:]
                    running[task.remote(number, fields, bundle)] = bundle
                if not running:
                    return
                ref = self._next(running)
                bundle = running.pop(ref)
                seconds, results = self._result(ref)
                size = max(
                    1, min(BUNDLE_MAX, 2 * size, int(BUNDLE_SECONDS / (seconds / len(bundle))))
                )
                for item, result in zip(bundle, results, strict=True):
                    done(item, result)
        except BaseException:
            self.stop[0] = 1
            self._cancel(running)
            raise

    def mapped(self, step: Step[T, R], items: Iterable[T]) -> Iterator[R]:
        """Yield the results of `step`, as `Crew.mapped`; an item is a task."""
        (number, fields), task = self._sent(step), self._task()
        for _, (result,) in self._in_turn(task.remote(number, fields, [item]) for item in items):
            yield result

    def _in_turn(self, tasks: Iterable[Any]) -> Iterator[tuple[float, list[Any]]]:
        """Yield what tasks return, in their order; as many are begun as processors
        have work for.
        """
        running = deque[Any]()
        todo = iter(tasks)
        try:
            while True:
                running += islice(todo, max(0, self._ahead * self._processors() - len(running)))
                if not running:
                    return
                outcome = self._result(self._next([running[0]]))
                running.popleft()
                yield outcome
        finally:
            self._cancel(running)

    def _task(self) -> Any:
        """Return what begins a task that runs a bundle of items."""
        # by default Ray fills the node of this process first, and
        # finds others free only after a while
        task_options = {"num_cpus": 1, "max_retries": RETRIES, "scheduling_strategy": "SPREAD"}
        return self._ray.remote(_run_bundle).options(**task_options)

    def _cancel(self, running: Iterable[Any]) -> None:
        for ref in running:
            self._ray.cancel(ref, force=True)

    def _sent(self, step: Any) -> Any:
        """Return a name for a step, and where it is in the object
        store; the last one is there already.
        """
        if step is not self._last:
            self._last = self._where = None  # the one before goes first
            self._where = (uuid.uuid4().hex, self._ray.put(step))
            self._last = step
        return self._where

    def hold(self, value: R) -> Held[R]:
        """Put a value into the object store."""
        return _InStore(self._ray.put(value))

    def split(
        self, step: Step[Held[T], list[R]], items: Sequence[Held[T]], n: int
    ) -> list[list[Held[R]]]:
        """Run a step on every item, as `Crew.split`: the results
        stay in the object store of the node.

        Those that a node takes with it are made again, by the step, which is kept for that.
        """
        self._made_by.append(self._ray.put(step))
        task = self._ray.remote(_split).options(num_cpus=1, max_retries=RETRIES, num_returns=n + 1)
        handles: list[list[Held[R]]] = []

        def begun() -> Iterator[Any]:
            for item in items:
                first, *parts = task.remote(self._made_by[-1], item)
                handles.append([_InStore(part) for part in parts])
                yield first

        for _ in self._in_turn(begun()):
            pass
        return handles

    def everywhere(self, call: Callable[[], None]) -> None:
        """Do a call on each node. Raises what it does, naming the node, and Unavailable."""
        for name, error in _answers(self._ray, call):
            if isinstance(error, self._ray.exceptions.RayTaskError):
                if not isinstance(error.cause, BadInput):
                    _raise_of(error)
                raise type(error.cause)(f"node {name}: {error.cause}")
            if error is not None:
                raise Unavailable(
                    f"ray: expected node {name} to answer, found {type(error).__name__}"
                )

    def _processors(self) -> int:
        """Return how many processors all nodes had a second ago, or now: nodes come and go."""
        if time.monotonic() > self._looked_at + 1.0:
            self._found = int(self._ray.cluster_resources().get("CPU", 0)) or 1
            self._looked_at = time.monotonic()
        return self._found

    def _next(self, running: Iterable[Any]) -> Any:
        """Return a task that has ended.

        Raises Unavailable when there is long no processor to run one.
        """
        idle = 0
        while idle < IDLE_LOOKS_MAX:
            finished, _ = self._ray.wait(list(running), timeout=LOOK_SECONDS)
            if finished:
                return finished[0]
            idle = 0 if self._ray.cluster_resources().get("CPU") else idle + 1
        seconds = IDLE_LOOKS_MAX * LOOK_SECONDS
        raise Unavailable(
            f"ray: expected a node with a processor, found none for {seconds:g} seconds"
        )

    def _result(self, ref: Any) -> tuple[float, list[Any]]:
        """Return what a task returned, in memory of this process: the object store is
        for others.
        """
        errors = self._ray.exceptions
        try:
            seconds, results = self._ray.get(ref)
        except errors.RayTaskError as error:
            _raise_of(error)
        except errors.RayError as error:
            reason = " ".join(str(error).split())[:300]
            fault = f"expected a step to end in {1 + RETRIES} tries, found {type(error).__name__}"
            raise Unavailable(f"ray: {fault}: {reason}") from None
        return seconds, mapped(results, np.copy)


def _raise_of(error: Any) -> NoReturn:
    """Log what a step wrote as it failed, and raise its error."""
    log(logging.ERROR, "step_failed", detail=_COLOURS.sub("", str(error))[-LOG_MAX:])
    cause = error.cause
    if isinstance(cause, XylemError | MemoryError):
        raise cause from None
    message = f"ray: expected a step to run, found {type(cause).__name__}: {cause}"
    raise RuntimeError(message) from error
