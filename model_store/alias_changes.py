"""What can be done to an alias: each verb is a function that takes its document and returns the next one.

The store, the registry and the object store apply the same changes; a new verb is one more function here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

from model_store.alias import BEFORE_MAX, PARTS, Alias, Beside, denied_labels
from model_store.errors import AliasNotFound, BadSplit, Conflict, NothingToRollBack

Change = Callable[[Alias], Alias | None]
"""An alias -> the next one; None: it is removed. An alias that is not there yet is `Alias(0)`."""

LabelChange = Callable[[tuple[str, ...]], Collection[str]]
"""Labels that an alias denies -> those that it is to deny."""

_ROUNDING = 1e-6
"""Parts by which a fraction may miss a whole number of them: doubles do."""


def apply(change: Change, alias: Alias, place: str) -> Alias | None:
    """Return an alias after a change: what was before where nothing has changed.

    place  the model and alias, for refusals

    Raises what the change does, BadSplit and BadNames for what does not fit, and AliasNotFound for an alias
    that is not there and is not made.
    """
    after = change(alias)
    if after is not None:
        if after.version == 0:
            raise AliasNotFound(f"{place}: expected an alias, found none of this name")
        after.check()
    return after


def promoted(version: int) -> Change:
    """Return the change that makes an alias name a version; its canary and its shadow end."""

    def change(alias: Alias) -> Alias:
        before = alias.before
        if alias.version not in (0, version):
            before = (*before, alias.version)[-BEFORE_MAX:]
        return alias._replace(version=version, before=before, canary=None, shadow=None)

    return change


def canary_promoted(model: str, name: str) -> Change:
    """Return the change that makes an alias of this name name its canary; it raises Conflict without one."""

    def change(alias: Alias) -> Alias | None:
        if alias.canary is None:
            raise Conflict(f"{model}: expected a version, or a canary of {name}, found neither")
        return promoted(alias.canary.version)(alias)

    return change


def rolled_back(model: str, name: str, versions: Container[int], to: int | None = None) -> Change:
    """Return the change that leads an alias of this name a step back, or to where it last named `to`.

    versions  those that are there: no other is gone back to

    What the alias named in between is forgotten. A canary is what ends by a step back, and the alias stays;
    so it does for `to` what it names. The change raises NothingToRollBack where there is no such step.
    """

    def change(alias: Alias) -> Alias:
        alone = alias._replace(canary=None, shadow=None)
        if to == alias.version or (to is None and alias.canary is not None):
            return alone
        there = [found for found in alias.before if found in versions and found != alias.version]
        places = [i for i, found in enumerate(there) if to in (None, found)]
        if not places:
            which = "an earlier version" if to is None else f"version {to} among the earlier ones"
            raise NothingToRollBack(f"{model}: expected {which} of {name}, found none")
        return alone._replace(version=there[places[-1]], before=tuple(there[: places[-1]]))

    return change


def with_canary(version: int, weight: float, stable_weight: float | None = None) -> Change:
    """Return the change that has a version answer a part of the requests.

    weight         the part, above 0 and below 1, a multiple of 0.0001
    stable_weight  what is left for the version that the alias names; None: 1 - weight

    Raises BadSplit for weights that are out of range, or do not add up to 1.
    """
    parts = parts_of("weight", weight)
    if stable_weight is not None and parts + parts_of("stable_weight", stable_weight) != PARTS:
        raise BadSplit(f"expected weights that add up to 1, found {weight:g} and {stable_weight:g}")
    return lambda alias: alias._replace(canary=Beside(version, parts))


def with_shadow(version: int, share: float) -> Change:
    """Return the change that has a version answer a part of the requests besides, without being returned.

    share  the part, above 0 and at most 1, a multiple of 0.0001. Raises BadSplit
    """
    beside = Beside(version, parts_of("share", share))
    return lambda alias: alias._replace(shadow=beside)


def without_canary(alias: Alias) -> Alias:
    """Return an alias whose canary has ended."""
    return alias._replace(canary=None)


def without_shadow(alias: Alias) -> Alias:
    """Return an alias whose shadow has ended."""
    return alias._replace(shadow=None)


def denying(labels: LabelChange) -> Change:
    """Return the change of what an alias denies. It raises BadNames, and what `labels` raises."""
    return lambda alias: alias._replace(denied=denied_labels(labels(alias.denied)))


def removed(_: Alias) -> None:
    """Remove an alias."""


def parts_of(name: str, fraction: float) -> int:
    """Return how many of PARTS the fraction `weight` (below 1) or `share` (up to 1) is. Raises BadSplit."""
    if fraction == 1 and name == "share":
        return PARTS
    parts = round(fraction * PARTS) if 0 < fraction < 1 else 0
    if not 0 < parts < PARTS or abs(fraction * PARTS - parts) > _ROUNDING:
        expected = f"a multiple of {1 / PARTS:g} above 0 and {'at most' if name == 'share' else 'below'} 1"
        raise BadSplit(f"{name}: expected {expected}, found {fraction:g}")
    return parts
