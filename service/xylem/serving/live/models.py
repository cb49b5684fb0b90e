"""LiveModels: the versions that answer requests, kept up to date with the store.

A thread looks at the store. It opens, verifies and warms every version that an alias newly names;
only then one assignment makes the whole new state visible, so no request is dropped. If a version
cannot be opened, its alias stays on the previous one; this is reported, and tried again after a
while.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from xylem.base import Unavailable, log, public_message_of, succeeded_at
from xylem.serving.live.requested_versions import Key, RequestedVersions
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

_DAMAGED_ALIAS = "the alias's file is damaged"


class LiveModels(Generic[T]):
    """The open versions of a store, found by model and by version or alias.

    prepare        returns the object (T) that serves requests with an opened version, all kernels
                   loaded; it runs in a thread
    models_max     the most versions that aliases keep open; further ones are opened on request
    versions_max   the most versions kept open because requests named them; the least recently used
                   is closed first
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
        models_max: int,
        versions_max: int,
        seconds_max: float,
        refresh: Callable[[], Mapping[str, str]] = dict,
        deny: Deny[T] = lambda served, _: served,
    ) -> None:
        self._store = store
        self._prepare = prepare
        self._models_max = models_max
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
            self._open, self._opener, versions_max=versions_max, seconds_max=seconds_max
        )

    @property
    def has_completed_first_look(self) -> bool:
        """Return whether the first look is complete: all aliases of the store were tried."""
        return self._state.generation is not EARLY

    @property
    def ready(self) -> bool:
        """Return whether the first look is complete and, if the store has models, any is served.

        A store that does not exist or cannot be read is not ready; an empty directory is.
        """
        return self.has_completed_first_look and (
            not self._state.models or bool(self._state.resident)
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
        """Return the object that serves a version, by number or alias; None if no alias keeps it.

        For an alias that denies labels, this is the object that does not answer these labels; None
        if it has not been made yet.
        """
        state = self._state
        is_number = is_version(ref)
        if not is_number and (model, ref) not in state.served.aliases:
            return None
        version = int(ref) if is_number else state.served.aliases[model, ref].version
        served = state.resident.get((model, version))
        if is_number or served is None:
            return served  # type: ignore[return-value]
        return state.served.existing_view(model, ref, served)

    def open_versions(self) -> set[Key]:
        """Return the versions that are open, because aliases name them or requests named them."""
        return {*self._state.resident, *self._requested.opened}

    async def find(self, model: str, ref: str) -> T:
        """Return the object that serves a version, by number or alias; open it if necessary.

        For an alias that denies labels, this is the object that does not answer these labels.
        Raises as `version_of`, VersionNotFound, ModelUnavailable for a version that cannot be
        served, and TimedOut for one that takes too long to open: its opening goes on.
        """
        served = await self._find((model, self.version_of(model, ref)))
        if is_version(ref):
            return served
        served_aliases = self._state.served
        view: T | None = served_aliases.existing_view(model, ref, served)
        if view is not None:
            return view
        loop = asyncio.get_running_loop()
        make = served_aliases.view
        return await loop.run_in_executor(self._opener, make, model, ref, served)

    async def _find(self, key: Key) -> T:
        served = self._state.resident.get(key)
        if served is not None:
            return served  # type: ignore[return-value]
        return await self._requested.find(key)

    async def follow(self, poll_seconds: float, on_first: Callable[[], None]) -> None:
        """Look at the store now, every `poll_seconds` and after each `wake`, until cancelled.

        No exception ends it.
        """
        loop = asyncio.get_running_loop()
        succeeded_at["store"] = time.monotonic()
        while True:
            try:
                await loop.run_in_executor(self._looker, self.look)
                if not self.has_looked.is_set():
                    self.has_looked.set()
                    on_first()
                state = self._state
                await self._requested.renew(state.resident, state.models, self._deny)
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
        loop = asyncio.get_running_loop()
        await asyncio.wait([loop.run_in_executor(self._looker, self.look)], timeout=seconds_max)

    def wake(self) -> None:
        """Look at the store at once, and retry all failures. Event loop only."""
        self._woken.set()

    def close(self) -> None:
        """Stop the threads, without waiting for them."""
        self._looker.shutdown(wait=False, cancel_futures=True)
        self._opener.shutdown(wait=False, cancel_futures=True)

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
                self._state = self._next_state(generation, infos)
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
                    EARLY, infos[:n_models], unsplit_aliases, resident, self._state
                )
                self.heads = {}
        for key, alias in aliases.items():
            aliases[key] = self._with_split(key[0], alias, resident)
        for model, detail in self._refresh().items():
            retry_at = time.monotonic() + RETRY_SECONDS
            self._failures[model, LABEL_INFO] = Failure(model, LABEL_INFO, detail, retry_at)
        return state_of(generation, infos, aliases, resident, self._state)

    def _settle(self, key: AliasKey, stored_alias: Alias, resident: dict[Key, object]) -> Alias:
        """Return an alias as it is served from now on; open its version if possible.

        If that fails, the alias is served by its previous version, without canary and shadow: they
        belong to the version that it names.
        """
        model = key[0]
        is_full = len(resident) >= self._models_max
        if self._open_for_alias((model, stored_alias.version), resident) is not None or is_full:
            return stored_alias
        previously_resident = self._state.resident
        previous_alias = self.aliases.get(key)
        if previous_alias is None or (model, previous_alias.version) not in previously_resident:
            return stored_alias
        resident[model, previous_alias.version] = previously_resident[model, previous_alias.version]
        return stored_alias._replace(version=previous_alias.version, canary=None, shadow=None)

    def _with_split(self, model: str, alias: Alias, resident: dict[Key, object]) -> Alias:
        """Return an alias with its canary and shadow if they can be opened, else without."""
        canary = alias.canary
        shadow = alias.shadow
        if canary is not None and self._open_for_alias((model, canary.version), resident) is None:
            canary = None
        if shadow is not None and self._open_for_alias((model, shadow.version), resident) is None:
            shadow = None
        return alias._replace(canary=canary, shadow=shadow)

    def _open_for_alias(self, key: Key, resident: dict[Key, object]) -> object | None:
        """Return the object that serves a version, and add it to `resident`.

        Returns None if the version cannot be opened, or if too many are resident.
        """
        served = resident.get(key, self._state.resident.get(key, self._requested.opened.get(key)))
        if served is None and len(resident) < self._models_max:
            try:
                served = self._open(key)
            except ModelUnavailable:  # `_open` has noted the failure
                return None
            except StoreError as error:
                self._fail(key[0], str(key[1]), public_message_of(error), error)
                return None
        if served is not None:
            resident[key] = served
        return served

    def _open(self, key: Key) -> T:
        """Open a version, verify and warm it, and return the object that serves it. Blocking.

        Raises ModelUnavailable for a version that cannot be served (without a try if one failed
        less than RETRY_SECONDS ago), and the store's error for a version that does not exist.
        """
        model, version = key
        failure = self._failures.get((model, str(version)))
        if failure is not None and time.monotonic() < failure.retry_at:
            raise ModelUnavailable(f"model {model} version {version}: {failure.detail}")
        started = time.perf_counter()
        try:
            opened = self._prepare(self._store.open(model, version))
        except (InvalidName, NotFound):
            raise
        except Exception as error:
            detail = self._fail(model, str(version), public_message_of(error), error)
            raise ModelUnavailable(f"model {model} version {version}: {detail}") from error
        self._failures.pop((model, str(version)), None)
        ms = round(1000 * (time.perf_counter() - started), 3)
        log(logging.INFO, "model_opened", model=model, version=version, ms=ms)
        return opened

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
