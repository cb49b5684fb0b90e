"""Versions that are opened when a request names them, and closed again when others need room."""

import asyncio
import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from xylem.base import Overloaded, TimedOut, XylemError
from xylem_store import Model, StoreError

T = TypeVar("T")

# A model's name and a version's number.
Key = tuple[str, int]


# How long an opening waits for closed versions that still answer requests, such as long batches.
#
# After it the version is opened all the same: a batch of hours must not stop other models.
ROOM_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class Usage:
    """When a version was last used, by `time.perf_counter_ns`. Whoever answers with it sets it.

    model  its model
    """

    model: str
    last_ns: int = field(default_factory=time.perf_counter_ns)


class Opening(NamedTuple, Generic[T]):
    """A version that has just been opened.

    served  the object that serves it
    model   its maps are unmapped when this object is gone
    """

    served: T
    model: weakref.ref[Model]


@dataclass(slots=True, eq=False)
class OpenVersion(Generic[T]):
    """A version that is open because a request named it.

    served, model  as in its Opening
    usage          shared by the versions that are open for one alias: they are used together
    weight         its part of the bound
    """

    served: T
    model: weakref.ref[Model]
    usage: Usage
    weight: int


class RequestedVersions(Generic[T]):
    """The versions that are open because requests named them. Event loop only.

    A version that is closed stays mapped until the last request that it answers has ended, and
    counts until then: a bound of memory would mean little otherwise.

    open_version   opens a version; it runs in `thread`
    weigh          returns a version's part of the bound; it runs in `thread`
    on_close       is called when a version is closed, with its key and what it was
    bound          the most that all open versions may weigh together. One version, or those of one
                   alias, are open even if they weigh more
    openings_max   the most openings that wait for each other; one more is refused
    seconds_max    how long a request waits for its version
    opened         the open versions; other threads may look a version up, or `adopt` one
    reserved       what other open versions weigh, which count to the same bound
    """

    def __init__(
        self,
        open_version: Callable[[Key], Opening[T]],
        weigh: Callable[[Key], int],
        on_close: Callable[[Key, OpenVersion[T]], None],
        thread: ThreadPoolExecutor,
        *,
        bound: int,
        openings_max: int,
        seconds_max: float,
    ) -> None:
        self._open_version = open_version
        self._weigh = weigh
        self._on_close = on_close
        self._thread = thread
        self._bound = bound
        self._openings_max = openings_max
        self._seconds_max = seconds_max
        self.opened: dict[Key, OpenVersion[T]] = {}
        self.reserved = 0
        self._opening: dict[tuple[Key, ...], asyncio.Future[list[T | None]]] = {}
        self._turn = asyncio.Lock()
        self._closed_in_use: dict[int, int] = {}
        self._numbers = itertools.count()
        self._freed = asyncio.Event()

    async def find(self, keys: Sequence[Key], seconds: float | None = None) -> list[T | None]:
        """Return the objects that serve some versions of a model; open them if necessary.

        keys     the version that is requested, then those that belong to the same alias: for one of
                 these that cannot be opened the list has None
        seconds  how long this request waits; None: `seconds_max`

        Raises the errors of `open_version`, Overloaded if too many openings wait, and TimedOut for
        a version that takes too long to open: its opening goes on.
        """
        group = tuple(keys)
        if (open_versions := self._use(group)) is not None:
            return open_versions
        if group not in self._opening:
            if len(self._opening) >= self._openings_max:
                raise Overloaded(
                    f"expected at most {self._openings_max} models that wait to be opened, found "
                    "more"
                )
            opening = self._opening[group] = asyncio.ensure_future(self._open(group))
            # if nobody waits any more, nobody else asks for the error
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        done, _ = await asyncio.wait(
            (self._opening[group],),
            timeout=self._seconds_max if seconds is None else min(seconds, self._seconds_max),
        )
        if not done:
            raise TimedOut(
                f"model {group[0][0]} version {group[0][1]}: expected it to be open by now, found "
                "that it is still being opened"
            )
        return done.pop().result()

    @property
    def n_waiting(self) -> int:
        """Return how many openings wait or are under way."""
        return len(self._opening)

    def _use(self, group: tuple[Key, ...]) -> list[T | None] | None:
        """Return what serves the versions, which are used now; None unless all are open.

        A request that waits holds none of them: an opening that needs their room would wait for
        it, and it for the opening.
        """
        now = time.perf_counter_ns()
        for key in group:
            if key in self.opened:
                self.opened[key].usage.last_ns = now
        return (
            None
            if any(key not in self.opened for key in group)
            else [self.opened[key].served for key in group]
        )

    def adopt(self, key: Key, opening: Opening[T]) -> None:
        """Take a version that another thread has opened. It may be called by any thread."""
        self.opened[key] = OpenVersion(*opening, Usage(key[0]), self._weigh(key))

    def close(self, keys: Sequence[Key]) -> None:
        """Close versions; those that are not open are ignored."""
        for key in keys:
            if (version := self.opened.pop(key, None)) is None:
                continue
            self._on_close(key, version)
            model = version.model()
            if model is not None:
                number = next(self._numbers)
                self._closed_in_use[number] = version.weight
                loop = asyncio.get_running_loop()
                weakref.finalize(model, self._forget, number, loop).atexit = False

    def shrink(self, weight: int = 0, besides: Sequence[Key] = ()) -> bool:
        """Close the least recently used versions until there is room; return whether there is.

        weight   what is to be opened weighs
        besides  versions that are not closed
        """
        versions = [
            (version.usage.last_ns, key)
            for key, version in list(self.opened.items())
            if key not in besides
        ]
        for _, key in sorted(versions):
            if self._has_room(weight):
                break
            self.close([key])
        return self._has_room(weight)

    def _has_room(self, weight: int) -> bool:
        return (
            self.reserved
            + sum(version.weight for version in list(self.opened.values()))
            + sum(self._closed_in_use.copy().values())
            + weight
            <= self._bound
        )

    def _forget(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        """Count a closed version no longer, since nothing uses it any more. Any thread calls it."""
        self._closed_in_use.pop(number, None)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._freed.set)

    async def _open(self, group: tuple[Key, ...]) -> list[T | None]:
        """Open the versions of a group that are not open, when it is their turn and there is room.

        Raises the errors of `find`.
        """
        loop = asyncio.get_running_loop()
        try:
            async with self._turn:
                # what is opened is returned even if an unload closes it again meanwhile
                versions = {key: self.opened[key].served for key in group if key in self.opened}
                missing_keys = [key for key in group if key not in versions]
                weights = [
                    await loop.run_in_executor(self._thread, self._weigh, key)
                    for key in missing_keys
                ]
                await self._make_room(sum(weights), group)
                usages = (self.opened[key].usage for key in group if key in self.opened)
                usage = next(usages, None) or Usage(group[0][0])
                for key, weight in zip(missing_keys, weights, strict=True):
                    try:
                        opening = await loop.run_in_executor(self._thread, self._open_version, key)
                    except (XylemError, StoreError):
                        if key == group[0]:
                            raise
                        continue
                    self.opened[key] = OpenVersion(*opening, usage, weight)
                    versions[key] = opening.served
                return [versions.get(key) for key in group]
        finally:
            del self._opening[group]

    async def _make_room(self, weight: int, group: Sequence[Key]) -> None:
        """Wait until there is room, or nothing else is open, at most ROOM_SECONDS."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOM_SECONDS):
                while not self.shrink(weight, group) and self._closed_in_use:
                    self._freed.clear()
                    await self._freed.wait()
