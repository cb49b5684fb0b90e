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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic

from xylem.base import Unavailable, log, public_message_of, succeeded_at
from xylem.serving.live.opener import DAMAGED_ALIAS, ModelUnavailable, OpenBound, VersionOpener
from xylem.serving.live.requested_versions import (
    Key,
    OpenVersion,
    RequestedVersions,
    Usage,
)
from xylem.serving.live.split import (
    AliasKey,
    Deny,
    LiveSplit,
    LiveStatus,
    ServedAliases,
    State,
    T,
)
from xylem.serving.live.state_maker import StateMaker
from xylem_store import (
    LATEST,
    Alias,
    AliasNotFound,
    Model,
    ModelInfo,
    ModelNotFound,
    Store,
    check_model,
    is_version,
)

_ALWAYS_OPEN = Usage("")  # the usage of all versions that aliases keep open, which nobody looks at


class LiveModels(Generic[T]):
    """The open versions of a store, found by model and by version or alias.

    prepare        returns the object (T) that serves requests with an opened version, all kernels
                   loaded; it runs in a thread
    models_loaded  the most versions that are open, or their bytes (ByteSize), or "all"
    preload        patterns of the models that are opened before a request names them, with a bound
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
        models_loaded: int | str = "all",
        preload: Sequence[str] | None = None,
        openings_max: int,
        seconds_max: float,
        refresh: Callable[[], Mapping[str, str]] = dict,
        deny: Deny[T] = lambda served, _: served,
    ) -> None:
        self._bound = OpenBound(
            models_loaded if isinstance(models_loaded, int) else None, preload or ()
        )
        self._watch = store.watch()
        self._is_behind = True  # whether the present state lacks anything that a look has seen
        self._versions = VersionOpener(store, prepare, self._bound)
        self._state = State(True, {}, {}, ServedAliases[Any](deny, {}))
        # a cache for callers that look up `resident` often. It is replaced by another dictionary
        # whenever an answer may change: so get this dictionary before you call `resident`, and
        # store the result in the same dictionary
        self.heads: dict[bytes, Any] = {}
        self._store_error: str | None = None
        self._woken = asyncio.Event()
        # set when `follow` has looked at the store for the first time, with whatever outcome
        self.has_looked = asyncio.Event()
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="xylem-store")
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="xylem-open")
        self._requested = RequestedVersions[T](
            self._versions.open,
            self._versions.weigh,
            self._forget_closed,
            self._opener,
            bound=self._bound.requested_max,
            openings_max=openings_max,
            seconds_max=seconds_max,
        )
        self._states = StateMaker(self._versions, self._requested, self._bound, refresh, deny)
        # the models of which a version was closed since the present state was settled
        self._closed_models: set[str] = set()

    @property
    def has_completed_first_look(self) -> bool:
        """Return whether the first look is complete: all aliases of the store were tried."""
        return not self._state.is_early

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
        return LiveStatus(
            sorted(self.aliases.items()),
            sorted(self._versions.failures.copy().values()),
            self._state.served.swaps,
            self._store_error,
            n_open=len(self.open_versions()),
            n_opened=self._versions.n_opened,
            n_waiting=self._requested.n_waiting,
        )

    def version_of(self, model: str, ref: str) -> int:
        """Return the version that a number or an alias stands for now.

        Raises Unavailable while the first look has not come to the model, ModelNotFound,
        AliasNotFound, ModelUnavailable for an alias or a model that cannot be read, and InvalidName
        for a number with a model name that is not valid.
        """
        state = self._state
        if state.is_early and model not in state.models:
            raise self._not_open()
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
            raise ModelUnavailable(f"model {model}, alias {ref}: {DAMAGED_ALIAS}")
        raise AliasNotFound(f"model {model}: expected an alias or version, found no {ref[:80]!r}")

    def refuse_before_first_look(self) -> None:
        """Raise Unavailable if the store has not been read yet."""
        if not self.has_completed_first_look:
            raise self._not_open()

    def _not_open(self) -> Unavailable:
        """Return the error that the models are not open yet, which says why."""
        return Unavailable(
            "the models are being opened"
            if self._store_error is None
            else f"expected a store that can be read, found that it cannot: {self._store_error}"
        )

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
        if (
            alias is None
            or served is None
            or (alias.split_versions and (model, ref) not in state.served.splits)
        ):
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

        For an alias that denies labels, this is the object that does not answer these labels. The
        alias's canary and shadow are opened, too; one that cannot be opened is left out.

        seconds  how long this request waits, if that is less than the time of other requests

        Raises the errors of `version_of`; VersionNotFound; ModelUnavailable for a version that
        cannot be served; TimedOut for one that takes too long to open (its opening goes on); and
        Overloaded if too many models wait to be opened.
        """
        version = self.version_of(model, ref)
        served_aliases = self._state.served
        alias = served_aliases.aliases.get((model, ref), Alias(version))
        keys = [(model, number) for number in dict.fromkeys(alias.versions)]
        versions = [self._state.resident.get(key) for key in keys]
        if versions[0] is None:
            if model in self._states.unloaded:  # the next look lets its aliases keep it open
                self._states.unloaded.discard(model)
                self._is_behind = True
            versions = [*await self._requested.find(keys, seconds)]
        if is_version(ref):
            return versions[0]  # type: ignore[return-value]
        loop = asyncio.get_running_loop()
        views: dict[int, Any] = {}
        for (_, number), served in zip(keys, versions, strict=True):
            view = None if served is None else served_aliases.existing_view(model, ref, served)
            if served is not None and view is None:
                view = await loop.run_in_executor(
                    self._opener, served_aliases.view, model, ref, served
                )
            views[number] = view
        if alias.split_versions and (model, ref) not in served_aliases.splits:
            canary, shadow = (
                None if share is None else views[share.version]
                for share in (alias.canary, alias.shadow)
            )
            served_aliases.splits[model, ref] = LiveSplit(model, alias, canary, shadow)
        return views[alias.version]  # type: ignore[no-any-return]

    async def load(self, model: str) -> None:
        """Open the versions that a model's aliases name, unless they are open. Raises as `find`."""
        self.version_of(model, LATEST)
        for name, alias in [key for key in self.aliases if key[0] == model]:
            await self.find(name, alias)

    async def unload(self, model: str) -> None:
        """Close the open versions of a model, here; the next request opens them again.

        Raises ModelNotFound.
        """
        if model not in self.models:
            raise ModelNotFound(f"model: expected one of the store, found {model[:80]!r}")
        # where the store is looked at, so that no look that is under way opens them again
        await asyncio.get_running_loop().run_in_executor(self._looker, self._drop, model)
        self._requested.close([key for key in list(self._requested.opened) if key[0] == model])

    def _drop(self, model: str) -> None:
        state = self._state
        self._states.unloaded.add(model)
        resident = {key: served for key, served in state.resident.items() if key[0] != model}
        state.served.forget(model)
        self._publish(
            state._replace(
                resident=resident, is_waited_for=any(map(self._states.keeps, state.models))
            )
        )

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
                self._versions.retry_all()

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
            requested.reserved = sum(map(self._versions.weigh, state.resident))
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
            self._is_behind |= self._watch.look()
            if self._versions.is_due or self._is_behind:
                self._publish(
                    self._states.state_after(
                        self._state,
                        [info for _, info in sorted(self._watch.models.items())],
                        self._publish,
                    )
                )
                self._is_behind = False
            self._store_error = None
            succeeded_at["store"] = time.monotonic()
        except Exception as error:
            if self._store_error is None:
                log(logging.ERROR, "store_failed", detail=str(error), error=error)
            self._store_error = public_message_of(error)

    def _publish(self, state: State) -> None:
        self._state = state
        self.heads = {}  # after the state, or it could get entries of the previous one

    def _forget_closed(self, key: Key, opened: OpenVersion[T]) -> None:
        """Drop everything that leads to a version that was closed. Event loop only.

        All heads of its model go: one of another version may hold it as a canary or a shadow.
        """
        heads = self.heads
        for head in [head for head, target in heads.items() if target.usage.model == key[0]]:
            del heads[head]
        self._state.served.forget(key[0])
        self._closed_models.add(key[0])
        log(logging.INFO, "model_closed", model=key[0], version=key[1])
