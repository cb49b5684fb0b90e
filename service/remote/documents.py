"""What an object store says of a model's aliases."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from model_store.identifiers import VERSION_MAX

ALIASES_MAX = 256
"""Aliases of a model."""

ALIASES_BYTES_MAX = 1 << 16
"""Of the object that names them."""

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


DOCUMENT: TypeAdapter[dict[str, RemoteVersion]] = TypeAdapter(
    Annotated[dict[_Name, RemoteVersion], Field(max_length=ALIASES_MAX)]
)
"""The object: each alias with its version."""
