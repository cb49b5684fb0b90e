"""An alias: one document with the version it names, its canary and shadow, and denied labels.

Each change is a function from the document to the next one: the store, the registry and the
object store apply the same changes.
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

PARTS = 10_000  # weights and shares are stored as whole multiples of 1 / PARTS

BEFORE_MAX = 32  # the most earlier versions that an alias remembers

DENIED_MAX = 10_000  # the most labels that an alias may deny

# The most bytes of an alias's document; nearly all of it may be names of denied labels.
ALIAS_BYTES_MAX = 1 << 20

SERIAL_MAX = (1 << 53) - 1

# The roles of versions besides the one that an alias names, and the most parts of each.
_ROLES = {"canary": PARTS - 1, "shadow": PARTS}


class TrafficShare(NamedTuple):
    """A canary or a shadow: a version that answers a part of the requests to an alias.

    parts  how many of PARTS of the requests
    """

    version: int
    parts: int


class Alias(NamedTuple):
    """An alias. It is never changed in place, only replaced by the next one.

    version  the version that it names; 0: none, which is never written
    before   the versions that it named earlier, the latest last
    canary   the version that answers some of the requests instead of `version`; None: no canary
    shadow   the version that also answers some of the requests, whose answers are never returned;
             None: no shadow
    denied   labels that its answers never have, whatever version it names: ascending, distinct
    serial   the number of the move that wrote this document
    """

    version: int
    before: tuple[int, ...] = ()
    canary: TrafficShare | None = None
    shadow: TrafficShare | None = None
    denied: tuple[str, ...] = ()
    serial: int = 0

    @property
    def split_versions(self) -> tuple[int, ...]:
        """Return the versions of its canary and its shadow."""
        return tuple(share.version for share in (self.canary, self.shadow) if share is not None)

    @property
    def versions(self) -> tuple[int, ...]:
        """Return all versions that answer its requests."""
        return (self.version, *self.split_versions)

    def roles_of(self, version: int) -> list[str]:
        """Return the roles of a version besides being named: `canary`, `shadow`, both or none."""
        return [
            role
            for role, share in {"canary": self.canary, "shadow": self.shadow}.items()
            if share is not None and share.version == version
        ]

    def split(self) -> dict[str, Any]:
        """Return the canary and the shadow for JSON, their parts as fractions of 1."""
        return {
            "canary": self.canary
            and {"version": self.canary.version, "weight": self.canary.parts / PARTS},
            "shadow": self.shadow
            and {"version": self.shadow.version, "share": self.shadow.parts / PARTS},
        }

    def check(self) -> None:
        """Check that versions and parts fit together.

        Raises BadSplit if they do not, and BadNames for a document above ALIAS_BYTES_MAX.
        """
        for role, parts_max in _ROLES.items():
            share: TrafficShare | None = getattr(self, role)
            if share is None:
                continue
            if not 1 <= share.parts <= parts_max:
                raise BadSplit(
                    f"{role}: expected 1 to {parts_max} of {PARTS} parts, found {share.parts}"
                )
            if share.version == self.version:
                raise BadSplit(
                    f"{role}: expected another version than the alias names, found {share.version}"
                )
        if self.denied and (size := len(render_alias(self))) > ALIAS_BYTES_MAX:
            raise BadNames(
                f"expected denied labels of at most {ALIAS_BYTES_MAX} bytes, found {size}"
            )

    def fields(self) -> dict[str, Any]:
        """Return the document for JSON; `alias_of` reads it."""
        shares = {role: (entry := getattr(self, role)) and entry._asdict() for role in _ROLES}
        return {**self._asdict(), **shares}


def render_alias(alias: Alias) -> bytes:
    """Return the bytes of an alias's file: the document, and a last line with its checksum."""
    return render_sealed(alias.fields())


def parse_alias(data: bytes, where: str) -> Alias:
    """Return the alias in the bytes of its file.

    Raises Corrupt, naming `where`, for any other bytes.
    """
    return alias_of(parse_sealed(data, where), where)


_VERSION = integer(1, VERSION_MAX)
_TRAFFIC_SHARE = optional(record(TrafficShare, version=_VERSION, parts=integer(1, PARTS)))
_ALIAS = record(
    Alias,
    version=_VERSION,
    before=list_of(_VERSION, 0, BEFORE_MAX),
    canary=_TRAFFIC_SHARE,
    shadow=_TRAFFIC_SHARE,
    denied=list_of(text("(?s:.*)"), 0, DENIED_MAX),
    serial=integer(0, SERIAL_MAX),
)


def alias_of(document: object, where: str) -> Alias:
    """Return the alias that a document holds.

    Raises Corrupt, naming `where`, for any other document.
    """
    alias: Alias = _ALIAS(document, where)
    try:
        if denied_labels(alias.denied) != alias.denied:
            raise BadNames("expected names in ascending order, each once, found others")
        alias.check()
    except (BadNames, BadSplit) as error:
        raise Corrupt(where, "an alias", str(error)) from error
    return alias


def denied_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return labels in the form in which an alias denies them: ascending, distinct.

    Raises BadNames for too many labels, and for a name that no label can have.
    """
    labels = tuple(sorted(set(names)))
    if len(labels) > DENIED_MAX:
        raise BadNames(f"expected at most {DENIED_MAX} denied labels, found {len(labels)}")
    if labels:  # most aliases deny none, and the first look at a store reads all aliases
        build_names(labels)
    return labels


# A function from an alias to the next one; None removes it. A new alias begins as `Alias(0)`.
Change = Callable[[Alias], Alias | None]

# A function from the labels that an alias denies to the labels that it denies afterwards.
LabelChange = Callable[[tuple[str, ...]], Collection[str]]


def apply(change: Change, alias: Alias, place: str) -> Alias | None:
    """Return an alias after a change; it equals the old one if nothing has changed.

    place  the model and alias, for error messages

    Raises what the change raises, BadSplit and BadNames for what does not fit, and AliasNotFound if
    the alias does not exist and the change does not make it.
    """
    next_alias = change(alias)
    if next_alias is not None:
        if next_alias.version == 0:
            raise AliasNotFound(f"{place}: expected an alias, found none of this name")
        next_alias.check()
    return next_alias


def promoted(version: int) -> Change:
    """Return the change that makes an alias name a version and ends its canary and its shadow."""

    def change(alias: Alias) -> Alias:
        earlier_versions = alias.before
        if alias.version not in (0, version):
            earlier_versions = (*earlier_versions, alias.version)[-BEFORE_MAX:]
        return alias._replace(version=version, before=earlier_versions, canary=None, shadow=None)

    return change


def canary_promoted(model: str, name: str) -> Change:
    """Return the change that makes an alias of this name name its canary.

    The change raises Conflict for an alias without a canary.
    """

    def change(alias: Alias) -> Alias | None:
        if alias.canary is None:
            raise Conflict(f"{model}: expected a version, or a canary of {name}, found neither")
        return promoted(alias.canary.version)(alias)

    return change


def rolled_back(model: str, name: str, versions: Container[int], to: int | None = None) -> Change:
    """Return the change that takes an alias of this name one step back, or back to `to`.

    versions  the existing versions: an alias goes back to no other

    The versions that the alias named after that one are forgotten. In two cases the alias keeps its
    version, and only its canary and its shadow end: in a step back if it has a canary, and if `to`
    is the version that it already names. The change raises NothingToRollBack if there is no earlier
    version to go back to.
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
    """Return the change that has a version answer a part of the requests as the canary.

    weight         the part, above 0 and below 1, a multiple of 0.0001
    stable_weight  the part left for the version that the alias names; None: 1 - weight

    Raises BadSplit for weights that are out of range, or do not add up to 1.
    """
    parts = parts_of("weight", weight)
    if stable_weight is not None and parts + parts_of("stable_weight", stable_weight) != PARTS:
        raise BadSplit(f"expected weights that add up to 1, found {weight:g} and {stable_weight:g}")
    return lambda alias: alias._replace(canary=TrafficShare(version, parts))


def with_shadow(version: int, share: float) -> Change:
    """Return the change that has a version also answer a part of the requests, as the shadow.

    share  the part, above 0 and at most 1, a multiple of 0.0001

    The answers of a shadow are never returned. Raises BadSplit for another share.
    """
    traffic_share = TrafficShare(version, parts_of("share", share))
    return lambda alias: alias._replace(shadow=traffic_share)


def without_canary(alias: Alias) -> Alias:
    """Return an alias without its canary."""
    return alias._replace(canary=None)


def without_shadow(alias: Alias) -> Alias:
    """Return an alias without its shadow."""
    return alias._replace(shadow=None)


def denying(labels: LabelChange) -> Change:
    """Return the change of the labels that an alias denies.

    The change raises BadNames, and what `labels` raises.
    """
    return lambda alias: alias._replace(denied=denied_labels(labels(alias.denied)))


def removed(_: Alias) -> None:
    """Remove an alias: a `Change` that returns None."""


def parts_of(name: str, fraction: float) -> int:
    """Return the fraction `weight` (below 1) or `share` (up to 1) in PARTS.

    Raises BadSplit for a fraction that is out of range or not a multiple of 1 / PARTS.
    """
    if fraction == 1 and name == "share":
        return PARTS
    parts = round(fraction * PARTS) if 0 < fraction < 1 else 0
    if not 0 < parts < PARTS or abs(fraction * PARTS - parts) > 1e-6:  # rounding of doubles
        raise BadSplit(
            f"{name}: expected a multiple of {1 / PARTS:g} above 0 and "
            f"{'at most' if name == 'share' else 'below'} 1, found {fraction:g}"
        )
    return parts
