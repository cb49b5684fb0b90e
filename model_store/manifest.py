"""manifest.json as a typed object: written in one form, parsed strictly. FORMAT.md is the spec."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, get_args

from model_store.arrays import ARRAY_BYTES_MAX, DESCRIPTORS, DIMENSIONS_MAX, HEADER_BYTES_MAX, ArrayInfo
from model_store.documents import Fields, Scalar, is_scalar, parse, render, seal
from model_store.ensemble import LINKS, Kind, Link, Weights
from model_store.errors import Corrupt, UnsupportedSchema
from model_store.identifiers import VERSION_MAX

SCHEMA_VERSION = 6
"""The newest schema; a version is of the least that has what it needs: see `schema_of`."""

MANIFEST = "manifest.json"
SEAL = "manifest.sha256"
ARRAYS = "arrays"

MANIFEST_BYTES_MAX = 1 << 20
SEAL_BYTES_MAX = 256
ITEMS_MAX = 256
"""The most arrays, parameters or metrics of a manifest."""

IDS_MAX = (1 << 31) - 2
"""The most labels, features or nodes: ids are int32, and their offsets too."""

TREES_MAX = 1 << 16
FEATURE_KINDS = ("raw", "named", "tfidf", "hashing")
"""Of every schema; schema 2 has CONTEXT too, schema 3 CONTEXT and NEWER_FEATURE_KINDS."""

CONTEXT = "context"
"""Features that are windows of words."""

NEWER_FEATURE_KINDS = ("chars", "words+chars")
"""Features of schema 3: n-grams of characters."""

UNICODE = "unicode"
"""The parameter of features that schema 3 has: how characters beyond ASCII are read."""

CALIBRATION = "calibration"
"""How the names of the arrays begin that schema 4 has: see `model_store.extras`."""
WORD_FORMS = ("stem", "lemmas", "stop_words")
"""Parameters of features that schema 4 has: which words count, and by what form."""

CLEAN = "clean"
"""The parameter of features that schema 6 has: texts are read without what setting in lines did to them."""

COMBINED = "combined"
"""The kind of a version that holds others, from schema 5, and of its features: see `model_store.members`."""

MEMBERS_MAX = 8
COMBINED_ARRAYS_MAX = 512
"""Members of a combined version, and its arrays with theirs."""

WEIGHTS: tuple[Weights, ...] = ("float32", "bfloat16", "int8")
"""The types of weights, of all schemas."""

ROWS, STATE = "rows", "state"
"""Groups of arrays that are kept for training: rows, and what learners that go row by row go on from."""

AT_REST = (f"{ROWS}/", f"{STATE}/")
"""How the names of arrays begin that are not read when a version is opened to answer."""

ARRAY_NAME = re.compile(r"[a-z0-9_]{1,24}(/[a-z0-9_]{1,24}){0,3}", re.ASCII)

Parameter = Scalar | list[Scalar]
Item = TypeVar("Item")


class TrainerInfo(NamedTuple):
    """Who made the ensemble, and with which parameters."""

    name: str
    parameters: Mapping[str, Parameter]


class DataInfo(NamedTuple):
    """What it was made from: the file's base name, its rows, and the sha256 of its bytes."""

    source: str
    rows: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Everything that is known of a version without opening its arrays.

    features   "kind", one of FEATURE_KINDS, and the parameters of that kind
    metrics    of the validation set, finite
    arrays     by name, "group/name"
    members    of a combined version: those that it holds, whose arrays are among its own
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
    members: tuple[Manifest, ...] = ()

    @property
    def shown(self) -> str:
        """Return the version's name as commands have it: model@version."""
        return f"{self.model}@{self.version}"

    @property
    def model_bytes(self) -> int:
        """Return the size of the version's arrays on disk."""
        return sum(info.bytes for info in self.arrays.values())


def has_calibration(arrays: Iterable[str]) -> bool:
    """Return whether calibration arrays, whole or not, are among a version's, by their names."""
    return any(name.startswith(f"{CALIBRATION}/") for name in arrays)


def schema_of(link: Link, features: Mapping[str, Parameter], arrays: Iterable[str]) -> int:
    """Return the least schema that a version needs; `arrays` are the names of its arrays.

    6 for features with the parameter CLEAN; 5 for a combined version; 4 for calibrated scores and for
    features with a parameter of WORD_FORMS; 3 for features that are n-grams of characters, or with the
    parameter UNICODE; 2 for link softmax, whose rows an embedding makes; else 1.
    """
    if CLEAN in features:
        return 6
    if features.get("kind") == COMBINED:
        return 5
    if has_calibration(arrays) or any(name in features for name in WORD_FORMS):
        return 4
    if features.get("kind") in NEWER_FEATURE_KINDS or UNICODE in features:
        return 3
    return 2 if link == "softmax" else 1


def _links(kind: Kind, schema_version: int) -> tuple[Link, ...]:
    """Return the links of a schema: softmax of 2, all others of 1, every one from 3 on."""
    links: tuple[Link, ...] = LINKS[kind]
    if schema_version > 2:
        return links
    return tuple(link for link in links if (link == "softmax") == (schema_version == 2))


def render_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of manifest.json; raise Corrupt for a manifest that no reader would take."""
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
    """Return all fields but those of the arrays and members."""
    names = [field.name for field in dataclasses.fields(manifest)][: -len(("arrays", "members"))]
    return {
        **{name: getattr(manifest, name) for name in names},
        "trainer": manifest.trainer._asdict(),
        "data": manifest.data._asdict(),
    }


def manifest_digest(manifest: Manifest) -> str:
    """Return the SHA-256 of the bytes of manifest.json, in hex: with its arrays' digests, of the version."""
    return hashlib.sha256(render_manifest(manifest)).hexdigest()


def parse_manifest(data: bytes, sealed: bytes) -> Manifest:
    """Return the manifest in the bytes of manifest.json and manifest.sha256.

    Raises UnsupportedSchema for another schema version and Corrupt, naming file and field, for all else
    that FORMAT.md does not allow.
    """
    if sealed != seal(data, MANIFEST):
        raise Corrupt(SEAL, "the sha256 of manifest.json", ascii(sealed[:80]))
    if len(data) > MANIFEST_BYTES_MAX:
        raise Corrupt(MANIFEST, f"at most {MANIFEST_BYTES_MAX} bytes", "more")
    fields = Fields(parse(data, MANIFEST), MANIFEST)
    manifest = _manifest(fields, _arrays)
    if manifest.kind == COMBINED:
        manifest = dataclasses.replace(manifest, members=_members(fields, manifest.arrays))
    fields.done()
    return manifest


def _members(fields: Fields, arrays: Mapping[str, ArrayInfo]) -> tuple[Manifest, ...]:
    """Return the manifests of the members, with the arrays of each."""
    found = fields.take("members")
    if type(found) is not list or not 1 <= len(found) <= MEMBERS_MAX:
        raise fields.refusal("members", f"a list of 1 to {MEMBERS_MAX}", found)
    members = []
    for i, facts in enumerate(found):
        each = Fields(facts, f"{MANIFEST}: members[{i}]")
        own = member_arrays(i, arrays)
        member = _manifest(each, lambda fields, schema, own=own: own)  # type: ignore[misc]
        each.done()
        if member.kind == COMBINED:
            raise each.refusal("kind", "a kind of trees", COMBINED)
        members.append(member)
    return tuple(members)


def member_prefix(number: int) -> str:
    """Return how the names of the arrays of a member begin."""
    return f"member{number}/"


def member_arrays(number: int, arrays: Mapping[str, Item]) -> dict[str, Item]:
    """Return what belongs to a member among a combined version's arrays, by the member's own names."""
    prefix = member_prefix(number)
    return {name.removeprefix(prefix): item for name, item in arrays.items() if name.startswith(prefix)}


def own_arrays(n_members: int, arrays: Mapping[str, Item]) -> dict[str, Item]:
    """Return what belongs to no member."""
    prefixes = tuple(map(member_prefix, range(n_members)))
    return {name: item for name, item in arrays.items() if not name.startswith(prefixes)}


def _manifest(fields: Fields, arrays_of: Callable[[Fields, int], dict[str, ArrayInfo]]) -> Manifest:
    """Return a manifest without members; `arrays_of` takes its arrays from the fields."""
    schema_version = fields.integer("schema_version", 1, VERSION_MAX)
    if schema_version > SCHEMA_VERSION:
        raise UnsupportedSchema(f"{MANIFEST}: schema_version", f"1 to {SCHEMA_VERSION}", schema_version)
    kind: Kind = fields.choice("kind", get_args(Kind))
    manifest = Manifest(
        schema_version=schema_version,
        model=fields.text("model", r"[a-z0-9][a-z0-9._-]{0,62}"),
        version=fields.integer("version", 1, VERSION_MAX),
        created_at=_time(fields, "created_at"),
        kind=kind,
        link=fields.choice("link", _links(kind, schema_version)),
        weights=fields.choice("weights", WEIGHTS),
        n_trees=fields.integer("n_trees", 1, TREES_MAX),
        n_nodes=fields.integer("n_nodes", 1, IDS_MAX),
        n_chunks=fields.integer("n_chunks", 0, IDS_MAX),
        n_labels=fields.integer("n_labels", 1, IDS_MAX),
        n_features=fields.integer("n_features", 1, IDS_MAX),
        trainer=_trainer(fields.take("trainer")),
        seed=fields.integer("seed", 0, (1 << 63) - 1),
        code_version=fields.text("code_version", r"[0-9A-Za-z.+_-]{1,64}"),
        data=_data(fields.take("data")),
        metrics=_metrics(fields),
        features=_features(fields, schema_version),
        arrays=arrays_of(fields, schema_version),
    )
    if (kind == COMBINED) != (manifest.features["kind"] == COMBINED):
        raise fields.refusal("features.kind", f"that of kind {kind}", manifest.features["kind"])
    least = schema_of(manifest.link, manifest.features, manifest.arrays)
    if least != schema_version:
        raise fields.refusal("schema_version", f"{least} for such features and arrays", schema_version)
    return manifest


def _time(fields: Fields, name: str) -> str:
    found = fields.text(name, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    try:
        datetime.datetime.fromisoformat(found)
    except ValueError:
        raise fields.refusal(name, "a time in UTC", found) from None
    return found


def _trainer(found: object) -> TrainerInfo:
    fields = Fields(found, f"{MANIFEST}: trainer")
    name = fields.text("name", r"[a-z0-9][a-z0-9._-]{0,62}")
    parameters = _parameters(fields, "parameters")
    fields.done()
    return TrainerInfo(name, parameters)


def _data(found: object) -> DataInfo:
    fields = Fields(found, f"{MANIFEST}: data")
    source = fields.text("source", r"[^\x00-\x1f\x7f/]{0,255}")
    info = DataInfo(source, fields.integer("rows", 0, (1 << 63) - 1), fields.text("sha256", r"[0-9a-f]{64}"))
    fields.done()
    return info


def _parameters(fields: Fields, name: str) -> dict[str, Parameter]:
    found = fields.items(name, ITEMS_MAX)
    for key, value in found.items():
        values = value if type(value) is list else [value]
        if not all(is_scalar(item) for item in values):
            raise fields.refusal(f"{name}.{key}", "a string, number, boolean, null, or a list of such", value)
    return found


def _metrics(fields: Fields) -> dict[str, float]:
    found = fields.items("metrics", ITEMS_MAX)
    for key, value in found.items():
        if type(value) not in (int, float) or not is_scalar(value):
            raise fields.refusal(f"metrics.{key}", "a finite number", value)
    return {key: float(value) for key, value in found.items()}


def _features(fields: Fields, schema_version: int) -> dict[str, Parameter]:
    found = _parameters(fields, "features")
    kinds: tuple[str, ...] = FEATURE_KINDS if schema_version == 1 else (*FEATURE_KINDS, CONTEXT)
    if schema_version > 2:
        kinds += NEWER_FEATURE_KINDS
    if schema_version > 4:
        kinds += (COMBINED,)
    if found.get("kind") not in kinds:
        raise fields.refusal("features.kind", " or ".join(kinds), found.get("kind"))
    return found


def _arrays(fields: Fields, schema_version: int) -> dict[str, ArrayInfo]:
    found = fields.items("arrays", COMBINED_ARRAYS_MAX if schema_version > 4 else ITEMS_MAX)
    for name in found:
        if not ARRAY_NAME.fullmatch(name):
            raise fields.refusal("arrays", f"names of {ARRAY_NAME.pattern}", name)
    return {name: _array_info(value, f"{MANIFEST}: arrays.{name}") for name, value in found.items()}


def _array_info(found: object, where: str) -> ArrayInfo:
    fields = Fields(found, where)
    dtype = fields.choice("dtype", tuple(DESCRIPTORS))
    shape: Any = fields.take("shape")
    sizes_allowed = (
        type(shape) is list
        and len(shape) <= DIMENSIONS_MAX
        and all(type(size) is int and 0 <= size <= ARRAY_BYTES_MAX for size in shape)
    )
    if not sizes_allowed or math.prod(shape) > ARRAY_BYTES_MAX:
        raise fields.refusal("shape", f"at most {DIMENSIONS_MAX} sizes, their product bounded", shape)
    n_bytes = fields.integer("bytes", 0, 8 * ARRAY_BYTES_MAX + HEADER_BYTES_MAX)
    sha256 = fields.text("sha256", r"[0-9a-f]{64}")
    fields.done()
    return ArrayInfo(dtype, tuple(shape), n_bytes, sha256)
