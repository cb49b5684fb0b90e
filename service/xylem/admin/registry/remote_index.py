"""The index of an object store: its models, versions and aliases in one document."""

from collections.abc import Mapping
from typing import NamedTuple

from xylem_store import (
    ALIAS,
    DIGEST,
    NAME_PATTERN,
    SERIAL_MAX,
    VERSION,
    Alias,
    BadNames,
    Corrupt,
    alias_of,
    integer,
    object_of,
    optional,
    parse_sealed,
    record,
    refusal,
    render_sealed,
)

MODELS_MAX = 10_000  # models of an object store
ALIASES_MAX = 256  # aliases of a model
INDEX_BYTES_MAX = 16 << 20  # of the index; nearly all of it may be names of denied labels
_LABEL_INFO_BYTES_MAX = 1 << 40  # of a label info; the format allows no more


class RemoteVersion(NamedTuple):
    """A version's number, and the SHA-256 of its manifest, which has those of all its arrays."""

    version: int
    digest: str


class RemoteInfo(NamedTuple):
    """A model's label info.

    digest  the SHA-256 of its head, which has the digests of all that follows
    bytes   its length
    """

    digest: str
    bytes: int


class RemoteModel(NamedTuple):
    """A model's aliases by name, the digests of their versions, and its label info, if any."""

    aliases: Mapping[str, Alias] = {}
    digests: Mapping[int, str] = {}
    label_info: RemoteInfo | None = None


class RemoteIndex(NamedTuple):
    """All models by name. Each change increases the generation; 0: nothing has been written yet."""

    generation: int = 0
    models: Mapping[str, RemoteModel] = {}


def render_index(index: RemoteIndex) -> bytes:
    """Return an index as bytes: the document, and a line that proves it complete.

    Raises BadNames for more than an index may contain.
    """
    models = {}
    for name, model in index.models.items():
        aliases = {alias: document.fields() for alias, document in model.aliases.items()}
        digests = {str(version): digest for version, digest in model.digests.items()}
        info = model.label_info and model.label_info._asdict()
        models[name] = {"aliases": aliases, "digests": digests, "label_info": info}
    data = render_sealed({"generation": index.generation, "models": models})
    n_aliases = max(len(model.aliases) for model in index.models.values())
    for n, n_max, unit in (
        (len(models), MODELS_MAX, "models"),
        (n_aliases, ALIASES_MAX, "aliases of a model"),
        (len(data), INDEX_BYTES_MAX, "bytes, denied labels and all"),
    ):
        if n > n_max:
            raise BadNames(f"expected an index of at most {n_max} {unit}, found {n}")
    return data


def parse_index(data: bytes, where: str) -> RemoteIndex:
    """Return the index in these bytes; raise Corrupt, which names `where`, for anything else."""
    if len(data) > INDEX_BYTES_MAX:
        raise Corrupt(where, f"at most {INDEX_BYTES_MAX} bytes", "more")
    index: RemoteIndex = _INDEX(parse_sealed(data, where), where)
    return index


def _model_of(value: object, where: str) -> RemoteModel:
    model: RemoteModel = _MODEL(value, where)
    digests = {int(number): digest for number, digest in model.digests.items()}
    if digests.keys() != {
        version for alias in model.aliases.values() for version in alias.versions
    }:
        raise refusal(
            f"{where}: digests", "one of each version that an alias names", sorted(digests)
        )
    return model._replace(digests=digests)


_MODEL = record(
    RemoteModel,
    aliases=object_of(alias_of, ALIASES_MAX, ALIAS),
    digests=object_of(DIGEST, 3 * ALIASES_MAX, VERSION),
    label_info=optional(record(RemoteInfo, digest=DIGEST, bytes=integer(1, _LABEL_INFO_BYTES_MAX))),
)
_INDEX = record(
    RemoteIndex,
    generation=integer(1, SERIAL_MAX),
    models=object_of(_model_of, MODELS_MAX, NAME_PATTERN),
)
