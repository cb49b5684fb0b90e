"""OpenBound: which models are open all the time. VersionOpener: opens versions for serving."""

import fnmatch
import logging
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Generic, NamedTuple

from pydantic import ByteSize

from xylem.base import Unavailable, log, public_message_of
from xylem.serving.live.requested_versions import Key, Opening
from xylem.serving.live.split import Failure, T
from xylem_store import InvalidName, Model, ModelInfo, NotFound, Store, StoreError

# The most versions that are open because requests named them, where all aliases keep theirs open.
#
# These are versions that no alias names, so few requests name them.
REQUESTED_MAX = 16


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
            fnmatch.fnmatchcase(model, pattern) for pattern in self.preload
        )

    def warn_of_unmatched(self, models: Collection[str]) -> None:
        """Log the patterns that match none of these models."""
        for pattern in self.preload:
            if not fnmatch.filter(models, pattern):
                log(logging.WARNING, "preload_matches_nothing", pattern=pattern)

    def weigh(self, store: Store, key: tuple[str, int]) -> int:
        """Return a version's part of the bound. Reads its manifest if the bound is in bytes.

        Raises the store's errors.
        """
        return (
            sum(array.bytes for array in store.manifest(*key).arrays.values())
            if isinstance(self.loaded_max, ByteSize)
            else 1
        )


RETRY_SECONDS = 30.0  # a version that could not be opened is tried again after this
_WEIGHTS_MAX = 1 << 16  # versions whose weight is cached: what a version takes never changes

DAMAGED_ALIAS = "the alias's file is damaged"


class ModelUnavailable(Unavailable, code="model-unavailable"):
    """A model whose version is in the store, but cannot be served."""


class VersionOpener(Generic[T]):
    """Opens versions, each anew; blocking. Any thread may call it.

    prepare   as `LiveModels` takes it
    failures  what cannot be served, by model and version, alias or part
    """

    def __init__(self, store: Store, prepare: Callable[[Model], T], bound: OpenBound) -> None:
        self._store = store
        self._prepare = prepare
        self._weigh_once = lru_cache(_WEIGHTS_MAX)(partial(bound.weigh, store))
        self.n_opened = 0
        self.failures: dict[tuple[str, str], Failure] = {}

    def open(self, key: Key) -> Opening[T]:
        """Open a version, verify and warm it, and return what serves it. Blocking.

        Raises ModelUnavailable for a version that cannot be served (without a try if one failed
        less than RETRY_SECONDS ago), and the store's error for a version that does not exist.
        """
        model, version = key
        failure = self.failures.get((model, str(version)))
        if failure is not None and time.monotonic() < failure.retry_at:
            raise ModelUnavailable(f"model {model} version {version}: {failure.detail}")
        started = time.perf_counter()
        try:
            opened_model = self._store.open(model, version)
            opening = Opening(self._prepare(opened_model), weakref.ref(opened_model))
        except (InvalidName, NotFound):
            raise
        except Exception as error:
            detail = self.fail(model, str(version), public_message_of(error), error)
            raise ModelUnavailable(f"model {model} version {version}: {detail}") from error
        self.failures.pop((model, str(version)), None)
        self.n_opened += 1
        log(
            logging.INFO,
            "model_opened",
            model=model,
            version=version,
            ms=round(1000 * (time.perf_counter() - started), 3),
        )
        return opening

    def fail(self, model: str, ref: str, detail: str, error: Exception | None = None) -> str:
        """Note and log that a version or an alias cannot be served; return the detail.

        Clients see the detail.
        """
        self.note(model, ref, detail)
        log(
            logging.ERROR,
            "model_failed",
            model=model,
            ref=ref,
            detail=str(error or detail),
            error=error,
        )
        return detail

    def note(self, model: str, ref: str, detail: str) -> None:
        """Note that a part of a model cannot be served."""
        self.failures[model, ref] = Failure(model, ref, detail, time.monotonic() + RETRY_SECONDS)

    def weigh(self, key: Key) -> int:
        """Return a version's part of the bound; one that cannot be read has none, nor is opened."""
        try:
            return self._weigh_once(key)
        except StoreError:
            return 0

    @property
    def is_due(self) -> bool:
        """Return whether anything that failed is to be tried again now."""
        now = time.monotonic()
        return any(failure.retry_at <= now for failure in self.failures.copy().values())

    def retry_all(self) -> None:
        """Try everything that failed again at the next look."""
        for key, failure in self.failures.copy().items():
            self.failures[key] = failure._replace(retry_at=0.0)

    def forget_others(self, infos: list[ModelInfo]) -> None:
        """Forget the failures of all but versions of these models; the others may fail again."""
        versions = {(info.name, str(version)) for info in infos for version in info.versions}
        for key in self.failures.copy().keys() - versions:
            self.failures.pop(key, None)
