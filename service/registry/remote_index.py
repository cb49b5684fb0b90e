"""The index of an object store: its models, their aliases, and the digests of what these name."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from model_store.alias import SERIAL_MAX, Alias, alias_of
from model_store.documents import Fields, parse_sealed, render_sealed
from model_store.errors import BadNames, Corrupt
from model_store.identifiers import is_alias, is_model, is_version

MODELS_MAX = 10_000
"""Models of an object store."""

ALIASES_MAX = 256
"""Aliases of a model."""

INDEX_BYTES_MAX = 16 << 20
"""Of the index; nearly all of it may be names of denied labels."""

_DIGEST = "[0-9a-f]{64}"
_LABEL_INFO_BYTES_MAX = 1 << 40


class RemoteVersion(NamedTuple):
    """A version's number, and the SHA-256 of its manifest, which has those of all its arrays."""

    version: int
    digest: str


class RemoteInfo(NamedTuple):
    """A model's label info: the SHA-256 of its head, which has that of all behind it, and its bytes."""

    digest: str
    bytes: int


class RemoteModel(NamedTuple):
    """A model's aliases by name, the digests of the versions that they name, and its label info, if any."""

    aliases: Mapping[str, Alias] = {}
    digests: Mapping[int, str] = {}
    label_info: RemoteInfo | None = None


class RemoteIndex(NamedTuple):
    """All models by name. Each change has the next generation; 0: nothing was written yet."""

    generation: int = 0
    models: Mapping[str, RemoteModel] = {}


def render_index(index: RemoteIndex) -> bytes:
    """Return the bytes of an index: the document, and the line that proves it whole.

    Raises BadNames for more than an index may hold.
    """
    models = {name: _fields_of(model) for name, model in index.models.items()}
    data = render_sealed({"generation": index.generation, "models": models})
    n_aliases = max(len(model.aliases) for model in index.models.values())
    for found, most, what in (
        (len(models), MODELS_MAX, "models"),
        (n_aliases, ALIASES_MAX, "aliases of a model"),
        (len(data), INDEX_BYTES_MAX, "bytes, denied labels and all"),
    ):
        if found > most:
            raise BadNames(f"expected an index of at most {most} {what}, found {found}")
    return data


def parse_index(data: bytes, where: str) -> RemoteIndex:
    """Return the index in these bytes; raise Corrupt naming `where` for anything else."""
    if len(data) > INDEX_BYTES_MAX:
        raise Corrupt(where, f"at most {INDEX_BYTES_MAX} bytes", "more")
    fields = parse_sealed(data, where)
    generation, found = fields.integer("generation", 1, SERIAL_MAX), fields.items("models", MODELS_MAX)
    fields.done()
    if not all(map(is_model, found)):
        raise fields.refusal("models", "names of models", min(found))
    return RemoteIndex(generation, {name: _model_of(f, f"{where}: {name}") for name, f in found.items()})


def _fields_of(model: RemoteModel) -> dict[str, Any]:
    return {
        "aliases": {name: alias.fields() for name, alias in model.aliases.items()},
        "digests": {str(version): digest for version, digest in model.digests.items()},
        "label_info": model.label_info and model.label_info._asdict(),
    }


def _model_of(found: object, where: str) -> RemoteModel:
    fields = Fields(found, where)
    named, numbers = fields.items("aliases", ALIASES_MAX), fields.items("digests", 3 * ALIASES_MAX)
    info = fields.take("label_info")
    fields.done()
    if not all(map(is_alias, named)):
        raise fields.refusal("aliases", "names of aliases", min(named))
    if not all(map(is_version, numbers)):
        raise fields.refusal("digests", "numbers of versions", min(numbers))
    aliases = {
        name: alias_of(Fields(one, f"{where}: {name}"), f"{where}: {name}") for name, one in named.items()
    }
    texts = Fields(numbers, f"{where}: digests")
    digests = {int(number): texts.text(number, _DIGEST) for number in numbers}
    if digests.keys() != {version for alias in aliases.values() for version in alias.versions}:
        raise fields.refusal("digests", "one of each version that an alias names", sorted(digests))
    return RemoteModel(
        aliases, digests, None if info is None else _info_of(Fields(info, f"{where}: label_info"))
    )


def _info_of(fields: Fields) -> RemoteInfo:
    info = RemoteInfo(fields.text("digest", _DIGEST), fields.integer("bytes", 1, _LABEL_INFO_BYTES_MAX))
    fields.done()
    return info
