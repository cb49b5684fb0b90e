"""Which files were verified, so that opening a version again need not read all of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

VERIFIED_MAX = 256
"""How many versions are remembered; one that was forgotten is verified anew."""


class Verified:
    """The keys that were added or asked for last, VERIFIED_MAX at most; any number of threads may use it."""

    def __init__(self) -> None:
        self._keys: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._keys)

    def knows(self, key: Hashable) -> bool:
        """Return whether a key is remembered; it then counts as the newest."""
        with self._lock:
            known = key in self._keys
            if known:
                self._keys.move_to_end(key)
            return known

    def add(self, key: Hashable) -> None:
        """Remember a key as the newest; beyond VERIFIED_MAX, the oldest is forgotten."""
        with self._lock:
            self._keys[key] = None
            self._keys.move_to_end(key)
            while len(self._keys) > VERIFIED_MAX:
                self._keys.popitem(last=False)
