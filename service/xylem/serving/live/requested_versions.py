"""Versions that no alias keeps open: they are opened when a request names them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from xylem.base import TimedOut
from xylem.serving.live.split import Deny
from xylem_store import ModelInfo

T = TypeVar("T")
Key = tuple[str, int]
"""A model's name and a version's number."""


class RequestedVersions(Generic[T]):
    """The versions that are open because requests named them. Event loop only.

    open_version   opens a version and returns the object (T) that serves it; it runs in `thread`
    versions_max   the most versions kept open; the least recently used is closed first
    seconds_max    how long a request waits for a version to be opened
    opened         what serves each open version, the least recently used first; other threads may
                   look a version up
    """

    def __init__(
        self,
        open_version: Callable[[Key], T],
        thread: ThreadPoolExecutor,
        *,
        versions_max: int,
        seconds_max: float,
    ) -> None:
        self._open_version = open_version
        self._thread = thread
        self._versions_max = versions_max
        self._seconds_max = seconds_max
        self.opened: OrderedDict[Key, T] = OrderedDict()
        self._opening: dict[Key, asyncio.Future[T]] = {}

    async def find(self, key: Key) -> T:
        """Return the object that serves a version; open it if necessary.

        Raises the errors of `open_version`, and TimedOut for a version that takes too long to
        open: its opening goes on.
        """
        if key in self.opened:
            self.opened.move_to_end(key)
            return self.opened[key]
        if key not in self._opening:
            self._opening[key] = asyncio.ensure_future(self._open(key))
        done, _ = await asyncio.wait((self._opening[key],), timeout=self._seconds_max)
        if not done:
            raise TimedOut(
                f"model {key[0]} version {key[1]}: expected it to be open by now, found that it "
                "is still being opened"
            )
        return done.pop().result()

    async def renew(
        self, resident: Container[Key], models: Mapping[str, ModelInfo], deny: Deny[T]
    ) -> None:
        """Let the versions deny the labels that are deprecated now.

        Versions that an alias keeps open by now, and those that the store lost, are dropped.

        resident  the versions that aliases keep open
        models    the models of the store
        deny      takes the object that serves a version, and labels; returns one that does not
                  answer them, nor those that are deprecated now; it runs in the thread
        """
        loop = asyncio.get_running_loop()
        for key, opened in list(self.opened.items()):
            info = models.get(key[0])
            if key in resident or info is None or key[1] not in info.versions:
                del self.opened[key]
                continue
            current = await loop.run_in_executor(self._thread, deny, opened, ())
            if key in self.opened:
                self.opened[key] = current

    async def _open(self, key: Key) -> T:
        """Open a version, and keep it among the most recently used."""
        loop = asyncio.get_running_loop()
        try:
            opened = await loop.run_in_executor(self._thread, self._open_version, key)
            self.opened[key] = opened
            if len(self.opened) > self._versions_max:
                self.opened.popitem(last=False)
            return opened
        finally:
            del self._opening[key]
