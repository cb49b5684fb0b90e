"""The index of an object store: all models, with their aliases and the digests of versions."""

from collections.abc import Mapping
from typing import NamedTuple

from xylem_store.alias import SERIAL_MAX, Alias, Change, alias_of, apply
from xylem_store.documents import (
    DIGEST,
    integer,
    object_of,
    optional,
    parse_sealed,
    record,
    refusal,
    render_sealed,
)
from xylem_store.errors import BadNames, Corrupt
from xylem_store.identifiers import ALIAS, NAME_PATTERN, VERSION, check_alias
from xylem_store.label_info import Head, head_digest

MODELS_MAX = 10_000  # models of an object store
ALIASES_MAX = 256  # aliases of a model
INDEX_BYTES_MAX = 16 << 20  # of the index; nearly all of it may be names of denied labels
_LABEL_INFO_BYTES_MAX = 1 << 40  # of a label info; the format allows no more


class RemoteInfo(NamedTuple):
    """A model's label info.

    digest  the SHA-256 of its head, which has the digests of the other parts
    bytes   its length
    """

    digest: str
    bytes: int

    @staticmethod
    def from_head(head: Head) -> "RemoteInfo":
        """Return the entry of the label info with this head."""
        return RemoteInfo(digest=head_digest(head), bytes=head.file_bytes)


class RemoteModel(NamedTuple):
    """A model's aliases by name, the digests of their versions, and its label info, if any."""

    aliases: Mapping[str, Alias] = {}
    digests: Mapping[int, str] = {}
    label_info: RemoteInfo | None = None

    def changed(
        self, changes: Mapping[str, Change], digests: Mapping[int, str], serial: int, place: str
    ) -> "RemoteModel":
        """Return the model with its aliases changed; the changed aliases get this serial number.

        changes  the change of each alias
        digests  the digests of versions that the aliases may name now
        place    the object store and the model, for error messages

        Raises what `xylem_store.alias.apply` raises.
        """
        aliases = dict(self.aliases)
        for name, change in changes.items():
            old_alias = aliases.get(check_alias(name), Alias(0))
            new_alias = apply(change, old_alias, f"{place}@{name}")
            if new_alias is None:
                aliases.pop(name, None)
            elif new_alias != old_alias:
                aliases[name] = new_alias._replace(serial=serial)
        named_versions = {version for alias in aliases.values() for version in alias.versions}
        return self._replace(
            aliases=aliases,
            digests={
                n: digest
                for n, digest in {**self.digests, **digests}.items()
                if n in named_versions
            },
        )


class RemoteIndex(NamedTuple):
    """All models by name. Each change increases the generation; 0: nothing has been written yet."""

    generation: int = 0
    models: Mapping[str, RemoteModel] = {}

    def render(self) -> bytes:
        """Return the index as bytes: the document, and a line that proves it complete.

        Raises BadNames for more than an index may contain.
        """
        models = {
            name: {
                "aliases": {alias: document.fields() for alias, document in model.aliases.items()},
                "digests": {str(version): digest for version, digest in model.digests.items()},
                "label_info": model.label_info and model.label_info._asdict(),
            }
            for name, model in self.models.items()
        }
        data = render_sealed({"generation": self.generation, "models": models})
        n_aliases = max(len(model.aliases) for model in self.models.values())
        for n, n_max, unit in (
            (len(models), MODELS_MAX, "models"),
            (n_aliases, ALIASES_MAX, "aliases of a model"),
            (len(data), INDEX_BYTES_MAX, "bytes, denied labels and all"),
        ):
            if n > n_max:
                raise BadNames(f"expected an index of at most {n_max} {unit}, found {n}")
        return data

    @staticmethod
    def parse(data: bytes, where: str) -> "RemoteIndex":
        """Return the index in these bytes; raise Corrupt, which names `where`, for other bytes."""
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
