"""manifest.json as a typed object: written in one form, parsed strictly. FORMAT.md is the spec."""

import dataclasses
import datetime
import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, get_args

from xylem_store.arrays import (
    ARRAY_BYTES_MAX,
    DESCRIPTORS,
    DIMENSIONS_MAX,
    HEADER_BYTES_MAX,
    ArrayInfo,
)
from xylem_store.documents import (
    DIGEST,
    Check,
    Scalar,
    checked,
    choice,
    integer,
    is_scalar,
    list_of,
    object_of,
    parse,
    record,
    refusal,
    render,
    seal,
    text,
)
from xylem_store.ensemble import LINKS, Kind, Link, Weights
from xylem_store.errors import Corrupt, UnsupportedSchema
from xylem_store.identifiers import NAME_PATTERN, VERSION_MAX

# The schema of this release. Until 0.1.0 is released, every change of the format stays in it.
SCHEMA_VERSION = 1

MANIFEST = "manifest.json"
SEAL = "manifest.sha256"
ARRAYS = "arrays"

MANIFEST_BYTES_MAX = 1 << 20
SEAL_BYTES_MAX = 256
ITEMS_MAX = 256  # the most arrays, parameters or metrics of a manifest

# The most labels, features or nodes: ids are int32, and so are offsets of them.
IDS_MAX = (1 << 31) - 2

TREES_MAX = 1 << 16

# The kinds of features of versions that hold no others.
FEATURE_KINDS = ("raw", "named", "tfidf", "hashing", "context", "chars", "words+chars")

CALIBRATION = "calibration"  # the group of the arrays of a calibration: see `xylem_store.extras`

# The kind of a version that holds other versions, and of its features.
#
# See `xylem_store.members`.
COMBINED = "combined"

MEMBERS_MAX = 8  # the most members of a combined version
COMBINED_ARRAYS_MAX = 512  # arrays of a combined version, including its members'
WEIGHTS: tuple[Weights, ...] = ("float32", "bfloat16", "int8")  # the types of weights

# Groups of arrays kept for training: rows, and the state from which online learners continue.
ROWS = "rows"
STATE = "state"

# The prefixes of the names of arrays that are not read when a version is opened to answer.
AT_REST = (f"{ROWS}/", f"{STATE}/")

ARRAY_NAME = r"[a-z0-9_]{1,24}(/[a-z0-9_]{1,24}){0,3}"

Parameter = Scalar | list[Scalar]
Item = TypeVar("Item")


class TrainerInfo(NamedTuple):
    """The trainer of an ensemble, and its parameters."""

    name: str
    parameters: Mapping[str, Parameter]


class DataInfo(NamedTuple):
    """The training data: the file's base name, its rows, and the sha256 of its bytes."""

    source: str
    rows: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Everything that is known of a version without opening its arrays.

    features   "kind", one of FEATURE_KINDS, and the parameters of that kind
    metrics    of the validation set, finite
    arrays     by name, "group/name"
    members    of a combined version: the versions that it holds, whose arrays are among its own
    """

    schema_version: int
    model: str
    version: int
    created_at: str
    kind: Kind
    link: Link
    weights: Weights
    n_trees: int
    n_nodes: int
    n_chunks: int
    n_labels: int
    n_features: int
    trainer: TrainerInfo
    seed: int
    code_version: str
    data: DataInfo
    metrics: Mapping[str, float]
    features: Mapping[str, Parameter]
    arrays: Mapping[str, ArrayInfo]
    members: "tuple[Manifest, ...]" = ()

    @property
    def full_name(self) -> str:
        """Return the version's name as commands print it: model@version."""
        return f"{self.model}@{self.version}"

    @property
    def fields(self) -> list[str]:
        """Return the fields of a text, NAME or NAME=WEIGHT: those of the version or of a member."""
        values = (version.features.get("fields") for version in (self, *self.members))
        return next((list(map(str, value)) for value in values if isinstance(value, list)), [])

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the bytes of manifest.json, in hexadecimal.

        It identifies the version: the manifest has the digests of its arrays.
        """
        return hashlib.sha256(render_manifest(self)).hexdigest()

    @property
    def model_bytes(self) -> int:
        """Return the size of the version's arrays on disk."""
        return sum(info.bytes for info in self.arrays.values())


def has_calibration(arrays: Iterable[str]) -> bool:
    """Return whether any calibration array, complete or not, is among these names of arrays."""
    return any(name.startswith(f"{CALIBRATION}/") for name in arrays)


def render_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of manifest.json.

    Raises Corrupt for a manifest that no reader would accept.
    """
    document = {
        **_facts(manifest),
        "arrays": {name: info._asdict() for name, info in manifest.arrays.items()},
    }
    if manifest.kind == COMBINED:
        document["members"] = [_facts(member) for member in manifest.members]
    try:
        data = render(document)
    except (TypeError, ValueError) as error:
        raise Corrupt(MANIFEST, "fields of JSON, all numbers finite", str(error)) from error
    parse_manifest(data, seal(data, MANIFEST))
    return data


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        **{name: getattr(manifest, name) for name in _FACTS},
        "trainer": manifest.trainer._asdict(),
        "data": manifest.data._asdict(),
    }


def parse_manifest(data: bytes, sealed: bytes) -> Manifest:
    """Return the manifest in the bytes of manifest.json and manifest.sha256.

    Raises UnsupportedSchema for another schema version and Corrupt, naming file and field, for
    everything else that FORMAT.md does not allow.
    """
    if sealed != seal(data, MANIFEST):
        raise Corrupt(SEAL, "the sha256 of manifest.json", ascii(sealed[:80]))
    if len(data) > MANIFEST_BYTES_MAX:
        raise Corrupt(MANIFEST, f"at most {MANIFEST_BYTES_MAX} bytes", "more")
    document = parse(data, MANIFEST)
    is_combined = document.get("kind") == COMBINED
    facts = record(
        dict,
        **_FACTS,
        arrays=object_of(
            ARRAY_ENTRY, COMBINED_ARRAYS_MAX if is_combined else ITEMS_MAX, ARRAY_NAME
        ),
        **{"members": list_of(record(dict, **_MEMBER), 1, MEMBERS_MAX)} if is_combined else {},
    )(document, MANIFEST)
    members = tuple(
        _checked(
            Manifest(**member, arrays=member_arrays(i, facts["arrays"])),
            f"{MANIFEST}: members[{i}]",
        )
        for i, member in enumerate(facts.pop("members", ()))
    )
    return _checked(Manifest(**facts, members=members), MANIFEST)


def _checked(manifest: Manifest, where: str) -> Manifest:
    """Return a manifest whose fields are each valid, after checking that they fit together.

    Raises Corrupt if they do not.
    """
    try:
        datetime.datetime.fromisoformat(manifest.created_at)
    except ValueError:
        raise refusal(f"{where}: created_at", "a time in UTC", manifest.created_at) from None
    choice(*LINKS[manifest.kind])(manifest.link, f"{where}: link")
    kinds = (COMBINED,) if manifest.kind == COMBINED else FEATURE_KINDS
    choice(*kinds)(manifest.features.get("kind"), f"{where}: features.kind")
    return manifest


def member_prefix(number: int) -> str:
    """Return the prefix of the names of a member's arrays."""
    return f"member{number}/"


def member_arrays(number: int, arrays: Mapping[str, Item]) -> dict[str, Item]:
    """Return the entries of one member among those of a combined version's arrays.

    number  that of the member; the names in the result are without its prefix
    """
    prefix = member_prefix(number)
    return {
        name.removeprefix(prefix): item for name, item in arrays.items() if name.startswith(prefix)
    }


def _schema(value: Any, where: str) -> int:
    version: int = integer(1, VERSION_MAX)(value, where)
    if version != SCHEMA_VERSION:
        raise UnsupportedSchema(
            where,
            f"schema {SCHEMA_VERSION}",
            f"{version} (a newer release wrote it, or a state before 0.1.0; train it again)",
        )
    return version


def _shape(value: Any, where: str) -> tuple[int, ...]:
    sizes: tuple[int, ...] = list_of(integer(0, ARRAY_BYTES_MAX), 0, DIMENSIONS_MAX)(value, where)
    if math.prod(sizes) > ARRAY_BYTES_MAX:
        raise refusal(where, f"sizes whose product is at most {ARRAY_BYTES_MAX}", value)
    return sizes


_FINITE = checked("a finite number", lambda value: type(value) in (int, float) and is_scalar(value))
_COUNT = integer(0, (1 << 63) - 1)
_PARAMETERS = object_of(
    checked(
        "a string, number, boolean, null, or a list of such",
        lambda value: all(map(is_scalar, value if type(value) is list else [value])),
    ),
    ITEMS_MAX,
)

# All fields but the arrays and members, in the order of Manifest.
_FACTS: dict[str, Check] = {
    "schema_version": _schema,
    "model": text(NAME_PATTERN),
    "version": integer(1, VERSION_MAX),
    "created_at": text(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "kind": choice(*get_args(Kind)),
    "link": choice(*get_args(Link)),
    "weights": choice(*WEIGHTS),
    "n_trees": integer(1, TREES_MAX),
    "n_nodes": integer(1, IDS_MAX),
    "n_chunks": integer(0, IDS_MAX),
    "n_labels": integer(1, IDS_MAX),
    "n_features": integer(1, IDS_MAX),
    "trainer": record(TrainerInfo, name=text(NAME_PATTERN), parameters=_PARAMETERS),
    "seed": _COUNT,
    "code_version": text(r"[0-9A-Za-z.+_-]{1,64}"),
    "data": record(DataInfo, source=text(r"[^\x00-\x1f\x7f/]{0,255}"), rows=_COUNT, sha256=DIGEST),
    "metrics": object_of(_FINITE, ITEMS_MAX),
    "features": _PARAMETERS,
}

_MEMBER = {**_FACTS, "kind": choice("label-tree", "decision-tree")}

# The check of an entry of arrays, which gives an ArrayInfo.
ARRAY_ENTRY = record(
    ArrayInfo,
    dtype=choice(*DESCRIPTORS),
    shape=_shape,
    bytes=integer(0, 8 * ARRAY_BYTES_MAX + HEADER_BYTES_MAX),
    sha256=DIGEST,
)
