"""An alias: one document that says what it names, what stands
beside that, and what it never answers.

Each verb is a function that takes the document and returns the next one: the store, the registry
and the object store apply the same changes.
"""

from collections.abc import Callable, Collection, Container, Iterable
from typing import Any, NamedTuple

from xylem_store.documents import (
    integer,
    list_of,
    optional,
    parse_sealed,
    record,
    render_sealed,
    text,
)
from xylem_store.errors import (
    AliasNotFound,
    BadNames,
    BadSplit,
    Conflict,
    Corrupt,
    NothingToRollBack,
)
from xylem_store.identifiers import VERSION_MAX
from xylem_store.names import build_names

PARTS = 10_000
"""Weights and shares are whole numbers of so many parts."""

BEFORE_MAX = 32
"""Earlier versions that an alias remembers."""

DENIED_MAX = 10_000
"""Labels that an alias may deny."""

ALIAS_BYTES_MAX = 1 << 20
"""Of an alias's document; nearly all of it may be names of denied labels."""

SERIAL_MAX = (1 << 53) - 1
_ROLES = {"canary": PARTS - 1, "shadow": PARTS}
"""What may stand beside the version that an alias names, and the most
parts of the requests it may have.
"""


class Beside(NamedTuple):
    """A version that answers some of the requests to an alias besides the one that it names.

    parts  how many of PARTS
    """

    version: int
    parts: int


class Alias(NamedTuple):
    """What an alias is. It is never changed, only replaced by the next one.

    version  the version that it names; 0: none, which is never written
    before   the versions that it named before, the last one last
    canary   the version that answers some of the requests in the place of `version`; None: there is
             none
    shadow   the version that answers some of the requests too, and is never returned; None: there
             is none
    denied   labels that its answers never have, whatever version it names: ascending, each once
    serial   the number of the move that made it
    """

    version: int
    before: tuple[int, ...] = ()
    canary: Beside | None = None
    shadow: Beside | None = None
    denied: tuple[str, ...] = ()
    serial: int = 0

    @property
    def split_versions(self) -> tuple[int, ...]:
        """Return the versions beside the one that it names."""
        return tuple(beside.version for beside in (self.canary, self.shadow) if beside is not None)

    @property
    def versions(self) -> tuple[int, ...]:
        """Return all versions that answer its requests."""
        return (self.version, *self.split_versions)

    def roles_of(self, version: int) -> list[str]:
        """Return what a version is besides the one that is named: `canary`, `shadow`."""
        roles = {"canary": self.canary, "shadow": self.shadow}
        return [
            role
            for role, beside in roles.items()
            if beside is not None and beside.version == version
        ]

    def split(self) -> dict[str, Any]:
        """Return what JSON says of the versions beside the named
        one: their parts as fractions of 1.
        """
        canary = self.canary and {
            "version": self.canary.version,
            "weight": self.canary.parts / PARTS,
        }
        shadow = self.shadow and {
            "version": self.shadow.version,
            "share": self.shadow.parts / PARTS,
        }
        return {"canary": canary, "shadow": shadow}

    def check(self) -> None:
        """Raise BadSplit unless versions and parts fit together,
        BadNames for more than it may hold.
        """
        for role, parts_max in _ROLES.items():
            beside: Beside | None = getattr(self, role)
            if beside is None:
                continue
            if not 1 <= beside.parts <= parts_max:
                raise BadSplit(
                    f"{role}: expected 1 to {parts_max} of {PARTS} parts, found {beside.parts}"
                )
            if beside.version == self.version:
                expected = "another version than the alias names"
                raise BadSplit(f"{role}: expected {expected}, found {beside.version}")
        if self.denied and (size := len(render_alias(self))) > ALIAS_BYTES_MAX:
            raise BadNames(
                f"expected denied labels of at most {ALIAS_BYTES_MAX} bytes, found {size}"
            )

    def fields(self) -> dict[str, Any]:
        """Return the document for JSON; `alias_of` takes it back."""
        beside = {role: (entry := getattr(self, role)) and entry._asdict() for role in _ROLES}
        return {**self._asdict(), **beside}


def render_alias(alias: Alias) -> bytes:
    """Return the bytes of an alias's file: the document, and the line that proves it whole."""
    return render_sealed(alias.fields())


def parse_alias(data: bytes, where: str) -> Alias:
    """Return the alias in the bytes of its file; raise Corrupt naming `where` for anything else."""
    return alias_of(parse_sealed(data, where), where)


_VERSION = integer(1, VERSION_MAX)
_BESIDE = optional(record(Beside, version=_VERSION, parts=integer(1, PARTS)))
_ALIAS = record(
    Alias,
    version=_VERSION,
    before=list_of(_VERSION, 0, BEFORE_MAX),
    canary=_BESIDE,
    shadow=_BESIDE,
    denied=list_of(text("(?s:.*)"), 0, DENIED_MAX),
    serial=integer(0, SERIAL_MAX),
)


def alias_of(document: object, where: str) -> Alias:
    """Return the alias that a document holds; raise Corrupt naming `where` for anything else."""
    alias: Alias = _ALIAS(document, where)
    try:
        if denied_labels(alias.denied) != alias.denied:
            raise BadNames("expected names in ascending order, each once, found others")
        alias.check()
    except (BadNames, BadSplit) as error:
        raise Corrupt(where, "an alias", str(error)) from error
    return alias


def denied_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as an alias denies them: ascending, each once.

    Raises BadNames for too many, and for one that no label can have.
    """
    labels = tuple(sorted(set(names)))
    if len(labels) > DENIED_MAX:
        raise BadNames(f"expected at most {DENIED_MAX} denied labels, found {len(labels)}")
    build_names(labels)
    return labels


Change = Callable[[Alias], Alias | None]
"""An alias -> the next one; None: it is removed. An alias that is not there yet is `Alias(0)`."""

LabelChange = Callable[[tuple[str, ...]], Collection[str]]
"""Labels that an alias denies -> those that it is to deny."""


def apply(change: Change, alias: Alias, place: str) -> Alias | None:
    """Return an alias after a change: what was before where nothing has changed.

    place  the model and alias, for refusals

    Raises what the change does, BadSplit and BadNames for what does not fit, and AliasNotFound for
    an alias that is not there and is not made.
    """
    next_alias = change(alias)
    if next_alias is not None:
        if next_alias.version == 0:
            raise AliasNotFound(f"{place}: expected an alias, found none of this name")
        next_alias.check()
    return next_alias


def promoted(version: int) -> Change:
    """Return the change that makes an alias name a version; its canary and its shadow end."""

    def change(alias: Alias) -> Alias:
        earlier_versions = alias.before
        if alias.version not in (0, version):
            earlier_versions = (*earlier_versions, alias.version)[-BEFORE_MAX:]
        return alias._replace(version=version, before=earlier_versions, canary=None, shadow=None)

    return change


def canary_promoted(model: str, name: str) -> Change:
    """Return the change that makes an alias of this name name its
    canary; it raises Conflict without one.
    """

    def change(alias: Alias) -> Alias | None:
        if alias.canary is None:
            raise Conflict(f"{model}: expected a version, or a canary of {name}, found neither")
        return promoted(alias.canary.version)(alias)

    return change


def rolled_back(model: str, name: str, versions: Container[int], to: int | None = None) -> Change:
    """Return the change that leads an alias of this name a step
    back, or to where it last named `to`.

    versions  those that are there: no other is gone back to

    What the alias named in between is forgotten. A canary is what ends by a step back, and the
    alias stays; so it does for `to` what it names. The change raises NothingToRollBack where there
    is no such step.
    """

    def change(alias: Alias) -> Alias:
        alone = alias._replace(canary=None, shadow=None)
        if to == alias.version or (to is None and alias.canary is not None):
            return alone
        earlier_versions = [
            version for version in alias.before if version in versions and version != alias.version
        ]
        positions = [i for i, version in enumerate(earlier_versions) if to in (None, version)]
        if not positions:
            which = "an earlier version" if to is None else f"version {to} among the earlier ones"
            raise NothingToRollBack(f"{model}: expected {which} of {name}, found none")
        return alone._replace(
            version=earlier_versions[positions[-1]], before=tuple(earlier_versions[: positions[-1]])
        )

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
    """Return the change that has a version answer a part of the
    requests besides, without being returned.

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
    """Return how many of PARTS the fraction `weight` (below 1) or `share` (up to 1) is.

    Raises BadSplit.
    """
    if fraction == 1 and name == "share":
        return PARTS
    parts = round(fraction * PARTS) if 0 < fraction < 1 else 0
    if not 0 < parts < PARTS or abs(fraction * PARTS - parts) > 1e-6:  # doubles miss
        expected = (
            f"a multiple of {1 / PARTS:g} above 0 and {'at most' if name == 'share' else 'below'} 1"
        )
        raise BadSplit(f"{name}: expected {expected}, found {fraction:g}")
    return parts
