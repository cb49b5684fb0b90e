"""OpenBound: which models are open all the time, and how much the others may take."""

import logging
from collections.abc import Collection, Sequence
from fnmatch import filter as filter_names
from fnmatch import fnmatchcase
from typing import NamedTuple

from pydantic import ByteSize

from xylem.base import log
from xylem_store import Store

REQUESTED_MAX = 16
"""The most versions that are open because requests named them, where all aliases keep theirs open.

These are versions that no alias names, so few requests name them.
"""


class OpenBound(NamedTuple):
    """Which versions of a store are open.

    loaded_max  None: all versions that aliases name. Otherwise the most versions, or for a ByteSize
                the most bytes of their files; a version is opened when a request names it
    preload     patterns of the models whose versions are opened before requests name them, and stay
                open; they count to `loaded_max`
    """

    loaded_max: int | None = None
    preload: Sequence[str] = ()

    @property
    def requested_max(self) -> int:
        """Return the most that versions which requests named may weigh."""
        return REQUESTED_MAX if self.loaded_max is None else self.loaded_max

    def keeps(self, model: str) -> bool:
        """Return whether the versions that a model's aliases name stay open."""
        return self.loaded_max is None or any(
            fnmatchcase(model, pattern) for pattern in self.preload
        )

    def warn_of_unmatched(self, models: Collection[str]) -> None:
        """Log the patterns that match none of these models."""
        for pattern in self.preload:
            if not filter_names(models, pattern):
                log(logging.WARNING, "preload_matches_nothing", pattern=pattern)

    def weigh(self, store: Store, key: tuple[str, int]) -> int:
        """Return a version's part of the bound. Reads its manifest if the bound is in bytes.

        Raises the store's errors.
        """
        if not isinstance(self.loaded_max, ByteSize):
            return 1
        return sum(array.bytes for array in store.manifest(*key).arrays.values())
