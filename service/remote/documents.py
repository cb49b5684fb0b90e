"""What an object store says of a model's aliases, and of what stands beside the versions that they name."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from model_store.denied import DENIED_MAX
from model_store.identifiers import VERSION_MAX
from model_store.splits import PARTS, Split

ALIASES_MAX = 256
"""Aliases of a model."""

ALIASES_BYTES_MAX = 1 << 16
"""Of the object that names them."""

DENIED_OBJECT_BYTES_MAX = 4 << 20
"""Of the object of what they deny."""

_Name = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,62}$")]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class RemoteVersion(BaseModel):
    """A version's number, and the SHA-256 of its manifest, which has those of all its arrays."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: Annotated[int, Field(ge=1, le=VERSION_MAX)]
    digest: _Digest


class RemoteAliases(NamedTuple):
    """A model's aliases, and the serial number of the object that they are from; 0: there is none."""

    serial: int
    aliases: dict[str, RemoteVersion]


class RemoteSplit(BaseModel):
    """What stands beside the version that an alias names, as `model_store.splits` has it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    stable: Annotated[int, Field(ge=1, le=VERSION_MAX)]
    canary: RemoteVersion | None = None
    weight: Annotated[int, Field(ge=0, le=PARTS)] = 0
    shadow: RemoteVersion | None = None
    share: Annotated[int, Field(ge=0, le=PARTS)] = 0

    @property
    def others(self) -> list[RemoteVersion]:
        """Return the versions beside the stable one."""
        return [version for version in (self.canary, self.shadow) if version is not None]

    def local(self) -> Split:
        """Return the same for a store. Raises BadSplit for versions and parts that do not fit."""
        canary = None if self.canary is None else self.canary.version
        shadow = None if self.shadow is None else self.shadow.version
        split = Split(self.stable, canary, self.weight, shadow, self.share)
        split.check()
        return split


class RemoteSplits(NamedTuple):
    """The splits of a model's aliases, and the serial number of the object that they are from; 0: none."""

    serial: int
    splits: dict[str, RemoteSplit]


class RemoteInfo(BaseModel):
    """A model's label info: the SHA-256 of its head, which has that of all behind it, and its bytes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    digest: _Digest
    bytes: Annotated[int, Field(ge=1, le=1 << 40)]


INFO: TypeAdapter[dict[str, RemoteInfo]] = TypeAdapter(
    dict[Annotated[str, Field(pattern="^label_info$")], RemoteInfo]
)
"""The object: which label info the model has."""

RemoteDenied = list[str]
"""The labels that an alias denies, ascending."""

DENIED: TypeAdapter[dict[str, RemoteDenied]] = TypeAdapter(
    Annotated[
        dict[_Name, Annotated[RemoteDenied, Field(max_length=DENIED_MAX)]], Field(max_length=ALIASES_MAX)
    ]
)
"""The object: each alias that denies labels. One of its own, as that of splits is."""

SPLITS: TypeAdapter[dict[str, RemoteSplit]] = TypeAdapter(
    Annotated[dict[_Name, RemoteSplit], Field(max_length=ALIASES_MAX)]
)
"""The object: each alias that has a split. One of its own: who knows of no splits reads the aliases alone."""

DOCUMENT: TypeAdapter[dict[str, RemoteVersion]] = TypeAdapter(
    Annotated[dict[_Name, RemoteVersion], Field(max_length=ALIASES_MAX)]
)
"""The object: each alias with its version."""
