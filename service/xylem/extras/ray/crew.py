"""Steps on the nodes of a Ray cluster: `xylem train --ray`.

The nodes import this module, too.
"""

import io
import logging
import math
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np

from xylem.base import (
    BadInput,
    Crew,
    R,
    Step,
    T,
    Unavailable,
    ValueHandle,
    XylemError,
    log,
    mapped,
    shared,
    writeable,
)
from xylem.extras.ray.cluster import call_on_nodes, connect

RETRIES = 10  # how often a step is begun again after its process or node has died

# The time that a bundle of items should take: a task alone costs some milliseconds.
BUNDLE_SECONDS = 0.5

BUNDLE_MAX = 256

LOG_MAX = 4000  # most characters of a failed step's output and stack frames that are logged
LOOK_SECONDS = 30.0  # the pause between two looks at the number of processors, if no step ends

# looks in a row that may find no processor: new nodes may be starting
IDLE_LOOKS_MAX = 20
_COLOURS = re.compile(r"\x1b\[\d*m")


# in a process of a node: the workspace of the step that ran last
_workspaces: dict[str, Any] = {}


def _run_bundle(number: str, step: Step[T, R], items: list[T]) -> tuple[float, list[R]]:
    """Run a step on a bundle of items; return the seconds that it took, and the results.

    number  the name of the step (`RayCrew._sent`), by which its workspace is found again

    The arrays of the step are used where they are, without a copy. If a step fails, its error gets
    a note with the output that it wrote before.
    """
    began = time.perf_counter()
    output = io.StringIO()
    step = mapped(step, shared)
    if number not in _workspaces:
        _workspaces.clear()
        _workspaces[number] = step.workspace()
    stop = np.zeros(1, np.uint8)
    try:
        with redirect_stdout(output), redirect_stderr(output):
            results = [
                step.run(mapped(item, writeable), _workspaces[number], stop) for item in items
            ]
    except BaseException as error:
        _workspaces.clear()  # the failed step has not restored it
        error.add_note(f"written before: {output.getvalue()[-LOG_MAX:]}")
        raise
    return time.perf_counter() - began, results


class _InStore(NamedTuple):
    ref: Any

    def get(self) -> Any:
        """Return the value, on a node; its arrays are not copied."""
        import ray

        return mapped(ray.get(self.ref), shared)


def _split(step: Step[ValueHandle[T], list[R]], item: ValueHandle[T]) -> list[Any]:
    """Run a step with n results on one item; return n + 1 values, each an object of Ray's store.

    The first value is that of `_run_bundle`, without results; the others are the results.
    """
    seconds, (results,) = _run_bundle(uuid.uuid4().hex, step, [item])
    return [(seconds, []), *results]


@contextmanager
def ray_crew(threads: int, address: str, ahead: int) -> Iterator[Crew]:
    """Yield a crew whose steps run on the nodes of a cluster (`connect`).

    ahead  the number of tasks that are sent ahead for each processor
    """
    with connect(address) as ray:
        yield RayCrew(threads, ray, ahead)


class RayCrew(Crew):
    """A crew whose steps run on the nodes of a cluster; other calls run in threads here.

    The fields of a step are put into the object store once, and each node fetches them once; a task
    takes a processor. Results do not depend on the nodes, nor on how items are bundled.
    """

    def __init__(self, threads: int, ray: Any, ahead: int) -> None:
        """Take the module `ray`, and how many tasks for each processor are sent ahead."""
        super().__init__(threads)
        self._ray = ray
        self._ahead = ahead
        self._n_processors = 1
        self._looked_at = -math.inf
        self._made_by: list[Any] = []
        self._last: Any = None
        self._where: Any = None

    def steps(self, step: Step[T, R], items: Iterable[T], done: Callable[[T, R], None]) -> None:
        """Run `step` on every item, as `Crew.steps`.

        A step whose process or node dies is begun again elsewhere. Raises the errors of the step,
        and Unavailable if it dies more than RETRIES times, or no node is left. An interrupt cancels
        the tasks that run.
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
                    # a bundle is a share of the items ahead, so bundles become small at the end
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
        """Yield the results of `step`, as `Crew.mapped`; each item is a task."""
        (number, fields), task = self._sent(step), self._task()
        for _, (result,) in self._in_turn(task.remote(number, fields, [item]) for item in items):
            yield result

    def _in_turn(self, tasks: Iterable[Any]) -> Iterator[tuple[float, list[Any]]]:
        """Yield the results of tasks in their order.

        As many tasks are begun as keep the processors busy.
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
        # SPREAD, because by default Ray fills the node of this process first, and notices only
        # after a while that others are free
        return self._ray.remote(_run_bundle).options(
            num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD"
        )

    def _cancel(self, running: Iterable[Any]) -> None:
        for ref in running:
            self._ray.cancel(ref, force=True)

    def _sent(self, step: Any) -> Any:
        """Return a name for a step, and its reference in the object store.

        A step that is used several times in a row is put into the store once.
        """
        if step is not self._last:
            self._last = self._where = None  # first release the previous step
            self._where = (uuid.uuid4().hex, self._ray.put(step))
            self._last = step
        return self._where

    def hold(self, value: R) -> ValueHandle[R]:
        """Put a value into the object store."""
        return _InStore(self._ray.put(value))

    def split(
        self, step: Step[ValueHandle[T], list[R]], items: Sequence[ValueHandle[T]], n: int
    ) -> list[list[ValueHandle[R]]]:
        """Run a step on every item, as `Crew.split`; results stay in the store of their node.

        If a node is lost, its results are made again by the step, which is kept for that.
        """
        self._made_by.append(self._ray.put(step))
        task = self._ray.remote(_split).options(num_cpus=1, max_retries=RETRIES, num_returns=n + 1)
        handles: list[list[ValueHandle[R]]] = []

        def begin_tasks() -> Iterator[Any]:
            for item in items:
                bundle_ref, *parts = task.remote(self._made_by[-1], item)
                handles.append([_InStore(part) for part in parts])
                yield bundle_ref

        for _ in self._in_turn(begin_tasks()):
            pass
        return handles

    def everywhere(self, call: Callable[[], None]) -> None:
        """Call a function on each node. Raises its errors, naming the node, and Unavailable."""
        for name, error in call_on_nodes(self._ray, call):
            if isinstance(error, self._ray.exceptions.RayTaskError):
                if not isinstance(error.cause, BadInput):
                    _raise_of(error)
                raise type(error.cause)(f"node {name}: {error.cause}")
            if error is not None:
                raise Unavailable(
                    f"ray: expected node {name} to answer, found {type(error).__name__}"
                )

    def _processors(self) -> int:
        """Return the number of processors of all nodes, at most a second old: nodes come and go."""
        if time.monotonic() > self._looked_at + 1.0:
            self._n_processors = int(self._ray.cluster_resources().get("CPU", 0)) or 1
            self._looked_at = time.monotonic()
        return self._n_processors

    def _next(self, running: Iterable[Any]) -> Any:
        """Return a task that has ended.

        Raises Unavailable if there is no processor to run one for a long time.
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
        """Return the result of a task, copied into this process's memory.

        Without the copy, the values would keep their place in the object store, which other tasks
        need.
        """
        try:
            seconds, results = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            _raise_of(error)
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[:300]
            raise Unavailable(
                f"ray: expected a step to end in {1 + RETRIES} tries, found "
                f"{type(error).__name__}: {reason}"
            ) from None
        return seconds, mapped(results, np.copy)


def _raise_of(error: Any) -> NoReturn:
    """Log the output of a failed step, and raise its error."""
    log(logging.ERROR, "step_failed", detail=_COLOURS.sub("", str(error))[-LOG_MAX:])
    cause = error.cause
    if isinstance(cause, XylemError | MemoryError):
        raise cause from None
    raise RuntimeError(
        f"ray: expected a step to run, found {type(cause).__name__}: {cause}"
    ) from error
