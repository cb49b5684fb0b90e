"""LiveModels: the versions that answer requests, kept up to date with the store.

A thread looks at the store. It opens, verifies and warms every version that an alias newly names;
only then one assignment makes the whole new state visible, so no request is dropped. If a version
cannot be opened, its alias stays on the previous one; this is reported, and tried again after a
while.

With a bound of open models (`OpenBound`) this is true of the models that are preloaded. Another one
is opened when a request names it; while it is open, its aliases move as those of the preloaded do.
"""

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

from xylem.base import Unavailable, log, public_message_of, succeeded_at
from xylem.serving.live.bound import OpenBound
from xylem.serving.live.requested_versions import (
    Key,
    Opening,
    OpenVersion,
    RequestedVersions,
    Usage,
)
from xylem.serving.live.split import (
    EARLY,
    AliasKey,
    Deny,
    Failure,
    LiveSplit,
    LiveStatus,
    ServedAliases,
    State,
    state_of,
)
from xylem_store import (
    LABEL_INFO,
    Alias,
    AliasNotFound,
    InvalidName,
    Model,
    ModelInfo,
    ModelNotFound,
    NotFound,
    Store,
    StoreError,
    StoreUnreadable,
    check_model,
    is_version,
)

T = TypeVar("T")

RETRY_SECONDS = 30.0  # a version that could not be opened is tried again after this
_EARLY_MAX = 32
"""The most models that answer during the first look as soon as each of them is open.

Their kernels may have to be compiled, and the models that are open need not wait for that. Further
models, whose kernels are compiled by then, become visible together.
"""

_UNBOUNDED = OpenBound()
_WEIGHTS_MAX = 1 << 16  # versions whose part of the bound is remembered: it never changes
_ALWAYS_OPEN = Usage()
"""The usage of all versions that aliases keep open, which nobody looks at."""

_DAMAGED_ALIAS = "the alias's file is damaged"


class LiveModels(Generic[T]):
    """The open versions of a store, found by model and by version or alias.

    prepare        returns the object (T) that serves requests with an opened version, all kernels
                   loaded; it runs in a thread
    bound          which versions are open before a request names them, and how many others may be
    openings_max   the most models that wait to be opened because requests named them
    seconds_max    how long a request waits for a version to be opened
    refresh        updates the label info of models, in each look that found a change; returns the
                   reasons, by model, for label info that cannot be used
    deny           takes the object that serves a version, and labels; returns one that never
                   answers these labels, nor those that are deprecated now; it runs in a thread
    """

    def __init__(
        self,
        store: Store,
        prepare: Callable[[Model], T],
        *,
        bound: OpenBound = _UNBOUNDED,
        openings_max: int,
        seconds_max: float,
        refresh: Callable[[], Mapping[str, str]] = dict,
        deny: Deny[T] = lambda served, _: served,
    ) -> None:
        self._store = store
        self._prepare = prepare
        self._bound = bound
        self._refresh = refresh
        self._deny = deny
        self._state = State(EARLY, {}, {}, ServedAliases[Any](deny, {}))
        self.heads: dict[bytes, Any] = {}
        """A cache for callers that look up `resident` often.

        It is replaced by another dictionary whenever an answer may change: so get this dictionary
        before you call `resident`, and store the result in the same dictionary.
        """
        self._failures: dict[tuple[str, str], Failure] = {}
        self._store_error: str | None = None
        self._woken = asyncio.Event()
        self.has_looked = asyncio.Event()
        """Set when `follow` has looked at the store for the first time, with whatever outcome."""
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="xylem-store")
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="xylem-open")
        self._requested = RequestedVersions[T](
            self._open,
            self._weigh,
            self._forget_closed,
            self._opener,
            bound=bound.requested_max,
            openings_max=openings_max,
            seconds_max=seconds_max,
        )
        self._weigh_once = lru_cache(_WEIGHTS_MAX)(partial(bound.weigh, store))
        self._closed_models: set[str] = set()
        """The models of which a version was closed since the present state was settled."""

    @property
    def has_completed_first_look(self) -> bool:
        """Return whether the first look is complete: all aliases of the store were tried."""
        return self._state.generation is not EARLY

    @property
    def ready(self) -> bool:
        """Return whether the first look is complete and any model that is waited for is served.

        Those are all models, or with a bound the preloaded ones. If there is none, nothing is
        waited for. A store that does not exist or cannot be read is not ready; an empty directory
        is.
        """
        return self.has_completed_first_look and (
            not self._state.is_waited_for or bool(self._state.resident)
        )

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """Return the models of the store as last seen; during the first look those open by now."""
        return self._state.models

    @property
    def aliases(self) -> Mapping[AliasKey, Alias]:
        """Return each (model, alias) as it is served: by its version, or by an earlier one."""
        return self._state.served.aliases

    @property
    def splits(self) -> Mapping[AliasKey, LiveSplit[T]]:
        """Return the canary and shadow of each (model, alias) that has any."""
        return self._state.served.splits

    def status(self) -> LiveStatus:
        """Return the aliases that are served, and the failures."""
        aliases = sorted(self.aliases.items())
        failures = sorted(self._failures.copy().values())
        return LiveStatus(aliases, failures, self._state.served.swaps, self._store_error)

    def version_of(self, model: str, ref: str) -> int:
        """Return the version that a number or an alias stands for now.

        Raises Unavailable while the first look has not come to the model, ModelNotFound,
        AliasNotFound, ModelUnavailable for an alias or a model that cannot be read, and InvalidName
        for a number with a model name that is not valid.
        """
        state = self._state
        if state.generation is EARLY and model not in state.models:
            detail = "the models are being opened"
            if self._store_error is not None:
                detail = (
                    f"expected a store that can be read, found that it cannot: {self._store_error}"
                )
            raise Unavailable(detail)
        if model not in state.models:
            if is_version(ref):
                check_model(model)
            raise ModelNotFound(f"model: expected one of the store, found {model[:80]!r}")
        if is_version(ref):
            return int(ref)
        alias = state.served.aliases.get((model, ref))
        if alias is not None:
            return alias.version
        if (fault := state.models[model].fault) is not None:
            raise ModelUnavailable(f"model {model}: {public_message_of(fault)}")
        if ref in state.models[model].broken_aliases:
            raise ModelUnavailable(f"model {model}, alias {ref}: {_DAMAGED_ALIAS}")
        raise AliasNotFound(f"model {model}: expected an alias or version, found no {ref[:80]!r}")

    def resident(self, model: str, ref: str) -> T | None:
        """Return the object that serves a version, by number or alias; None if it is not open.

        For an alias that denies labels, this is the object that does not answer these labels; None
        if it has not been made yet. Also None for an alias whose canary or shadow is not open.
        """
        state = self._state
        if is_version(ref):
            return self._open_version((model, int(ref)))
        alias = state.served.aliases.get((model, ref))
        served = None if alias is None else self._open_version((model, alias.version))
        if alias is None or served is None:
            return None
        if alias.split_versions and (model, ref) not in state.served.splits:
            return None
        return state.served.existing_view(model, ref, served)

    def usage(self, model: str, version: int) -> Usage:
        """Return the usage of an open version, for whoever answers with it from `heads`."""
        opened = self._requested.opened.get((model, version))
        return _ALWAYS_OPEN if opened is None else opened.usage

    def _open_version(self, key: Key) -> T | None:
        served = self._state.resident.get(key)
        if served is None and (opened := self._requested.opened.get(key)) is not None:
            return opened.served
        return served  # type: ignore[return-value]

    def open_versions(self) -> set[Key]:
        """Return the versions that are open, because aliases name them or requests named them."""
        return {*self._state.resident, *self._requested.opened}

    async def find(self, model: str, ref: str, seconds: float | None = None) -> T:
        """Return the object that serves a version, by number or alias; open it if necessary.

        For an alias that denies labels, this is the object that does not answer these labels. Its
        canary and its shadow are opened, too; it is served without one that cannot be.

        seconds  how long this request waits, if less than others do

        Raises as `version_of`, VersionNotFound, ModelUnavailable for a version that cannot be
        served, TimedOut for one that takes too long to open: its opening goes on, and Overloaded if
        too many models wait to be opened.
        """
        version = self.version_of(model, ref)
        served_aliases = self._state.served
        alias = served_aliases.aliases.get((model, ref), Alias(version))
        keys = [(model, number) for number in alias.versions]
        versions = [self._state.resident.get(key) for key in keys]
        if versions[0] is None:
            versions = [*await self._requested.find(keys, seconds)]
        if is_version(ref):
            return versions[0]  # type: ignore[return-value]
        loop = asyncio.get_running_loop()
        views: dict[int, Any] = {}
        for (_, number), served in zip(keys, versions, strict=True):
            view = None if served is None else served_aliases.existing_view(model, ref, served)
            if served is not None and view is None:
                make = served_aliases.view
                view = await loop.run_in_executor(self._opener, make, model, ref, served)
            views[number] = view
        if alias.split_versions and (model, ref) not in served_aliases.splits:
            canary, shadow = (
                None if share is None else views[share.version]
                for share in (alias.canary, alias.shadow)
            )
            served_aliases.splits[model, ref] = LiveSplit(model, alias, canary, shadow)
        return views[alias.version]  # type: ignore[no-any-return]

    async def follow(self, poll_seconds: float, on_first: Callable[[], None]) -> None:
        """Look at the store now, every `poll_seconds` and after each `wake`, until cancelled.

        No exception ends it.
        """
        succeeded_at["store"] = time.monotonic()
        while True:
            try:
                await self._look_and_settle()
                if not self.has_looked.is_set():
                    self.has_looked.set()
                    on_first()
            except Exception as error:
                log(logging.ERROR, "store_failed", error=error)
            with suppress(TimeoutError):
                async with asyncio.timeout(poll_seconds):
                    await self._woken.wait()
            if self._woken.is_set():
                self._woken.clear()
                for key, failure in self._failures.copy().items():
                    self._failures[key] = failure._replace(retry_at=0.0)

    async def catch_up(self, seconds_max: float) -> None:
        """Look at the store at once; return when done, or after `seconds_max`. Never raises."""
        await asyncio.wait([asyncio.ensure_future(self._look_and_settle())], timeout=seconds_max)

    def wake(self) -> None:
        """Look at the store at once, and retry all failures. Event loop only."""
        self._woken.set()

    def close(self) -> None:
        """Stop the threads, without waiting for them."""
        self._looker.shutdown(wait=False, cancel_futures=True)
        self._opener.shutdown(wait=False, cancel_futures=True)

    async def _look_and_settle(self) -> None:
        """Look at the store; then close what aliases keep open now, what is lost, and what exceeds.

        Views and splits are forgotten that the look made of versions that were closed meanwhile.
        """
        previous_state = self._state
        await asyncio.get_running_loop().run_in_executor(self._looker, self.look)
        state = self._state
        if state is previous_state:
            return
        requested = self._requested
        for key in list(requested.opened):
            info = state.models.get(key[0])
            if key in state.resident or info is None or key[1] not in info.versions:
                requested.close([key])
        if self._bound.loaded_max is not None:
            requested.reserved = sum(map(self._weigh, state.resident))
        requested.shrink()
        for model in self._closed_models:
            state.served.forget(model)
        self._closed_models.clear()

    def look(self) -> None:
        """Read the store and open what its aliases newly name.

        Blocking; not from two threads at once. Never raises: a model or alias that fails is served
        as before, and the failure is logged and reported.
        """
        try:
            generation = self._store.generation()
            now = time.monotonic()
            is_due = any(failure.retry_at <= now for failure in self._failures.copy().values())
            if is_due or self._state.generation != generation:
                infos = self._store.models()
                # a deleted model leaves traces, so an empty store with no generation is not normal
                if self.models and not infos and not generation:
                    raise StoreUnreadable(
                        "expected models as before, found none: is the disk still there?"
                    )
                is_first = not self.has_completed_first_look
                self._state = self._next_state(generation, infos)
                if is_first:
                    self._warn_of_unmatched_patterns()
                self.heads = {}  # after the state, or it could get entries of the previous one
            self._store_error = None
            succeeded_at["store"] = time.monotonic()
        except Exception as error:
            if self._store_error is None:
                log(logging.ERROR, "store_failed", detail=str(error), error=error)
            self._store_error = public_message_of(error)

    def _next_state(self, generation: object, infos: list[ModelInfo]) -> State:
        """Return the state for the models that were found, with their versions open."""
        present_aliases = self.aliases
        aliases: dict[AliasKey, Alias] = {}
        resident: dict[Key, object] = {}
        # forget failures of versions that no longer exist; those of aliases are added again below
        versions = {(info.name, str(version)) for info in infos for version in info.versions}
        for key in self._failures.copy().keys() - versions:
            self._failures.pop(key, None)
        for n_models, info in enumerate(infos, 1):
            if info.fault is not None:  # the model is served on as it was
                self._fail(info.name, "", public_message_of(info.fault), info.fault)
                infos[n_models - 1] = info = self.models.get(info.name, info)
            stored_aliases = {
                (info.name, name): alias for name, alias in sorted(info.documents.items())
            }
            for name in info.broken_aliases:
                self._fail(info.name, name, _DAMAGED_ALIAS)
                if (info.name, name) in present_aliases:
                    stored_aliases[info.name, name] = present_aliases[info.name, name]
            aliases |= {
                key: self._settle(key, alias, resident) for key, alias in stored_aliases.items()
            }
            if n_models <= _EARLY_MAX and not self.has_completed_first_look:
                unsplit_aliases = {
                    key: alias._replace(canary=None, shadow=None) for key, alias in aliases.items()
                }
                self._state = state_of(
                    EARLY, infos[:n_models], unsplit_aliases, resident, {}, self._state
                )
                self.heads = {}
        for key, alias in aliases.items():
            aliases[key] = self._with_split(key[0], alias, resident)
        for model, detail in self._refresh().items():
            retry_at = time.monotonic() + RETRY_SECONDS
            self._failures[model, LABEL_INFO] = Failure(model, LABEL_INFO, detail, retry_at)
        requested = self._renewed_requested()
        state = state_of(generation, infos, aliases, resident, requested, self._state)
        return state._replace(is_waited_for=any(self._bound.keeps(info.name) for info in infos))

    def _renewed_requested(self) -> dict[Key, T]:
        """Let the versions that requests named deny the labels that are deprecated now.

        Return what serves them.
        """
        requested = {}
        for key, opened in list(self._requested.opened.items()):
            try:
                opened.served = self._deny(opened.served, ())
            except Exception as error:
                log(logging.ERROR, "store_failed", detail=str(error), error=error)
            requested[key] = opened.served
        return requested

    def _settle(self, key: AliasKey, stored_alias: Alias, resident: dict[Key, object]) -> Alias:
        """Return an alias as it is served from now on; open its version if possible.

        If that fails, the alias is served by its previous version, without canary and shadow: they
        belong to the version that it names.
        """
        model = key[0]
        previous_alias = self.aliases.get(key)
        previous_key = None if previous_alias is None else (model, previous_alias.version)
        if not self._bound.keeps(model) and previous_key not in self._requested.opened:
            return stored_alias  # opened when a request names it
        if self._bound.keeps(model) and not self._has_room(model, stored_alias, resident):
            if previous_alias is None:
                log(logging.WARNING, "preload_exceeds_bound", model=model, alias=key[1])
            return stored_alias
        if self._open_for_alias((model, stored_alias.version), resident) is not None:
            return stored_alias
        if previous_alias is None or previous_key is None:
            return stored_alias
        previously_open = self._state.resident.get(previous_key)
        if previously_open is not None:
            resident[previous_key] = previously_open
        elif previous_key not in self._requested.opened:
            return stored_alias
        return stored_alias._replace(version=previous_alias.version, canary=None, shadow=None)

    def _with_split(self, model: str, alias: Alias, resident: dict[Key, object]) -> Alias:
        """Return an alias with its canary and shadow if they can be opened, else without."""
        if self._bound.loaded_max is not None:
            key = model, alias.version
            if key not in resident and key not in self._requested.opened:
                return alias  # opened when a request names the alias
        canary = alias.canary
        shadow = alias.shadow
        if canary is not None and self._open_for_alias((model, canary.version), resident) is None:
            canary = None
        if shadow is not None and self._open_for_alias((model, shadow.version), resident) is None:
            shadow = None
        return alias._replace(canary=canary, shadow=shadow)

    def _open_for_alias(self, key: Key, resident: dict[Key, object]) -> object | None:
        """Return the object that serves a version for an alias; open it if necessary.

        It is added to `resident` if the model's versions stay open, else to the requested versions.
        Returns None if the version cannot be opened.
        """
        served = resident.get(key, self._open_version(key))
        if served is None:
            try:
                opening = self._open(key)
            except ModelUnavailable:  # `_open` has noted the failure
                return None
            except StoreError as error:
                self._fail(key[0], str(key[1]), public_message_of(error), error)
                return None
            served = opening.served
            if not self._bound.keeps(key[0]):
                self._requested.adopt(key, opening)
        if served is not None and self._bound.keeps(key[0]):
            resident[key] = served
        return served

    def _has_room(self, model: str, alias: Alias, resident: Mapping[Key, object]) -> bool:
        """Return whether the versions of an alias may stay open beside those in `resident`."""
        if self._bound.loaded_max is None:
            return True
        keys = {*resident, *((model, version) for version in alias.versions)}
        return sum(map(self._weigh, keys)) <= self._bound.loaded_max

    def _weigh(self, key: Key) -> int:
        """Return a version's part of the bound; one that cannot be read has none, nor is opened."""
        try:
            return self._weigh_once(key)
        except StoreError:
            return 0

    def _forget_closed(self, key: Key, opened: OpenVersion[T]) -> None:
        """Drop everything that leads to a version that was closed. Event loop only."""
        heads = self.heads
        for head in [
            head for head, target in heads.items() if getattr(target, "usage", None) is opened.usage
        ]:
            del heads[head]
        self._state.served.forget(key[0])
        self._closed_models.add(key[0])
        log(logging.INFO, "model_closed", model=key[0], version=key[1])

    def _warn_of_unmatched_patterns(self) -> None:
        for pattern in self._bound.preload:
            if not any(fnmatchcase(model, pattern) for model in self.models):
                log(logging.WARNING, "preload_matches_nothing", pattern=pattern)

    def _open(self, key: Key) -> Opening[T]:
        """Open a version, verify and warm it, and return what serves it. Blocking.

        Raises ModelUnavailable for a version that cannot be served (without a try if one failed
        less than RETRY_SECONDS ago), and the store's error for a version that does not exist.
        """
        model, version = key
        failure = self._failures.get((model, str(version)))
        if failure is not None and time.monotonic() < failure.retry_at:
            raise ModelUnavailable(f"model {model} version {version}: {failure.detail}")
        started = time.perf_counter()
        try:
            opened_model = self._store.open(model, version)
            opening = Opening(self._prepare(opened_model), weakref.ref(opened_model))
        except (InvalidName, NotFound):
            raise
        except Exception as error:
            detail = self._fail(model, str(version), public_message_of(error), error)
            raise ModelUnavailable(f"model {model} version {version}: {detail}") from error
        self._failures.pop((model, str(version)), None)
        ms = round(1000 * (time.perf_counter() - started), 3)
        log(logging.INFO, "model_opened", model=model, version=version, ms=ms)
        return opening

    def _fail(self, model: str, ref: str, detail: str, error: Exception | None = None) -> str:
        """Note and log that a version or an alias cannot be served; return the detail.

        Clients see the detail.
        """
        self._failures[model, ref] = Failure(model, ref, detail, time.monotonic() + RETRY_SECONDS)
        log(
            logging.ERROR,
            "model_failed",
            model=model,
            ref=ref,
            detail=str(error or detail),
            error=error,
        )
        return detail


class ModelUnavailable(Unavailable, code="model-unavailable"):
    """A model whose version is in the store, but cannot be served."""
