"""StateMaker: makes the state that follows a look at the store, and opens what it needs."""

import logging
from collections.abc import Callable, Mapping
from typing import Generic

from xylem.base import log, public_message_of
from xylem.serving.live.opener import DAMAGED_ALIAS, ModelUnavailable, OpenBound, VersionOpener
from xylem.serving.live.requested_versions import Key, RequestedVersions
from xylem.serving.live.split import AliasKey, Deny, State, T, state_of
from xylem_store import LABEL_INFO, Alias, ModelInfo, StoreError

Publish = Callable[[State], object]

# the most models that answer during the first look as soon as each of them is open. Their kernels
# may have to be compiled, and the models that are open need not wait for that. Further models,
# whose kernels are compiled by then, become visible together
_EARLY_MAX = 32


class StateMaker(Generic[T]):
    """Makes states; not from two threads at once. Other arguments are as `LiveModels` takes them.

    requested  the versions that are open because requests named them
    unloaded   models whose versions are not kept open until a request names them
    """

    def __init__(
        self,
        opener: VersionOpener[T],
        requested: RequestedVersions[T],
        bound: OpenBound,
        refresh: Callable[[], Mapping[str, str]],
        deny: Deny[T],
    ) -> None:
        self._opener = opener
        self._requested = requested
        self._bound = bound
        self._refresh = refresh
        self._deny = deny
        self._previous: State
        self.unloaded: set[str] = set()

    def keeps(self, model: str) -> bool:
        """Return whether the versions that a model's aliases name stay open."""
        return model not in self.unloaded and self._bound.keeps(model)

    def state_after(self, previous: State, infos: list[ModelInfo], publish: Publish) -> State:
        """Return the state for the models that the store has, with their versions open. Blocking.

        previous  the state until now
        publish   takes the states in between, during the first look
        """
        self._previous = previous
        try:
            return self._make(infos, publish)
        finally:
            del self._previous  # it would keep versions mapped that are closed meanwhile

    def _make(self, infos: list[ModelInfo], publish: Publish) -> State:
        previous = self._previous
        present_aliases = previous.served.aliases
        aliases: dict[AliasKey, Alias] = {}
        resident: dict[Key, object] = {}
        self._opener.forget_others(infos)
        for n_models, info in enumerate(infos, 1):
            if info.fault is not None:  # the model is served on as it was
                self._opener.fail(info.name, "", public_message_of(info.fault), info.fault)
                infos[n_models - 1] = info = previous.models.get(info.name, info)
            stored_aliases = {
                (info.name, name): alias for name, alias in sorted(info.documents.items())
            }
            for name in info.broken_aliases:
                self._opener.fail(info.name, name, DAMAGED_ALIAS)
                if (info.name, name) in present_aliases:
                    stored_aliases[info.name, name] = present_aliases[info.name, name]
            aliases |= {
                key: self._settle(key, alias, resident) for key, alias in stored_aliases.items()
            }
            if n_models <= _EARLY_MAX and previous.is_early:
                self._previous = state_of(
                    infos[:n_models],
                    {
                        key: alias._replace(canary=None, shadow=None)
                        for key, alias in aliases.items()
                    },
                    resident,
                    {},
                    self._previous,
                    is_early=True,
                )
                publish(self._previous)
        for key, alias in aliases.items():
            aliases[key] = self._with_split(key[0], alias, resident)
        for model, detail in self._refresh().items():
            self._opener.note(model, LABEL_INFO, detail)
        state = state_of(
            infos, aliases, resident, self._renewed_requested(), self._previous, is_early=False
        )
        if previous.is_early:
            self._bound.warn_of_unmatched(state.models)
        return state._replace(is_waited_for=any(self.keeps(info.name) for info in infos))

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
        previous_alias = self._previous.served.aliases.get(key)
        previous_key = None if previous_alias is None else (model, previous_alias.version)
        if not self.keeps(model) and previous_key not in self._requested.opened:
            return stored_alias  # opened when a request names it
        if self.keeps(model) and not self._has_room(model, stored_alias, resident):
            if previous_alias is None:
                log(logging.WARNING, "preload_exceeds_bound", model=model, alias=key[1])
            return stored_alias
        if (
            self._open_for_alias((model, stored_alias.version), resident) is not None
            or previous_alias is None
            or previous_key is None
        ):
            return stored_alias
        previously_open = self._previous.resident.get(previous_key)
        if previously_open is not None:
            resident[previous_key] = previously_open
        elif previous_key not in self._requested.opened:
            return stored_alias
        return stored_alias._replace(version=previous_alias.version, canary=None, shadow=None)

    def _with_split(self, model: str, alias: Alias, resident: dict[Key, object]) -> Alias:
        """Return an alias with its canary and shadow if they can be opened, else without."""
        if self._bound.loaded_max is not None or not self.keeps(model):
            key = model, alias.version
            if key not in resident and key not in self._requested.opened:
                return alias  # opened when a request names the alias
        canary, shadow = (
            share
            if share and self._open_for_alias((model, share.version), resident) is not None
            else None
            for share in (alias.canary, alias.shadow)
        )
        return alias._replace(canary=canary, shadow=shadow)

    def _open_for_alias(self, key: Key, resident: dict[Key, object]) -> object | None:
        """Return the object that serves a version for an alias; open it if necessary.

        It is added to `resident` if the model's versions stay open, else to the requested versions.
        Returns None if the version cannot be opened.
        """
        served = resident.get(key, self._previous.resident.get(key))
        if served is None and (requested := self._requested.opened.get(key)) is not None:
            served = requested.served
        if served is None:
            try:
                opening = self._opener.open(key)
            except ModelUnavailable:  # the opener has noted the failure
                return None
            except StoreError as error:
                self._opener.fail(key[0], str(key[1]), public_message_of(error), error)
                return None
            served = opening.served
            if not self.keeps(key[0]):
                self._requested.adopt(key, opening)
        if served is not None and self.keeps(key[0]):
            resident[key] = served
        return served

    def _has_room(self, model: str, alias: Alias, resident: Mapping[Key, object]) -> bool:
        """Return whether the versions of an alias may stay open beside those in `resident`."""
        if self._bound.loaded_max is None:
            return True
        keys = {*resident, *((model, version) for version in alias.versions)}
        return sum(map(self._opener.weigh, keys)) <= self._bound.loaded_max
