"""One version as a directory: its files written from a draft, and opened again as a model.

A packed version is plain values that can be sent to another process. Unpickling them is as safe as
any unpickling; the model in them is checked against its digests and every invariant, like a version
of a store.
"""

import datetime
import errno
import functools
import importlib.metadata
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import (
    ArrayInfo,
    check_digest,
    file_name,
    group_of,
    info_of,
    map_array,
    write_array,
)
from xylem_store.checks import ENSEMBLE, LABELS, assemble, check_version
from xylem_store.documents import seal
from xylem_store.ensemble import Kind, Link, TreeEnsemble, Weights
from xylem_store.errors import Corrupt
from xylem_store.fs import FileSystem, Mapped, write_file
from xylem_store.manifest import (
    ARRAYS,
    AT_REST,
    COMBINED,
    MANIFEST,
    MANIFEST_BYTES_MAX,
    SCHEMA_VERSION,
    SEAL,
    SEAL_BYTES_MAX,
    DataInfo,
    Manifest,
    Parameter,
    TrainerInfo,
    parse_manifest,
    render_manifest,
)
from xylem_store.names import NameTable
from xylem_store.origin import MADE_FOR

_OF_MEMBER = re.compile(r"^member\d/")

# The errors of a file system that cannot give a file another name.
#
# They mean: it is gone, on another file system, not permitted, has too many names, or links are not
# supported.
NO_LINK = (errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)

# The space that a version needs besides its arrays' bytes: headers, manifest, directories.
HEADROOM_BYTES = 1 << 20


class StoredArray(NamedTuple):
    """An array of a version in the store: its file, and its entry in that version's manifest."""

    path: Path
    info: ArrayInfo


@dataclass(frozen=True)
class Draft:
    """The result of a training run, to be published.

    features  "kind" and the parameters of the features
    labels    the name of every label, n_labels of them
    extra     further arrays by "group/name": those of the features, and "labels/counts", int64[K],
              the training rows of each label
    members   of a combined version: the manifests of the versions that it holds, whose arrays are
              among `extra`
    files     the files in the store that already hold arrays of `extra`: they are linked, not
              written
    """

    kind: Kind
    link: Link
    weights: Weights
    n_features: int
    trainer: TrainerInfo
    seed: int
    data: DataInfo
    metrics: Mapping[str, float]
    features: Mapping[str, Parameter]
    ensemble: TreeEnsemble
    labels: NameTable
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    members: tuple[Manifest, ...] = ()
    files: Mapping[str, StoredArray] = field(default_factory=dict)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by "group/name".

        Raises Corrupt if `extra` has an array of the ensemble or the labels.
        """
        core_arrays = {} if self.kind == COMBINED else group_of(ENSEMBLE, self.ensemble)
        core_arrays |= group_of(LABELS, self.labels)
        for name in self.extra.keys() & core_arrays.keys():
            raise Corrupt(
                "draft", f"no extra array {name}, which is the ensemble's or the labels'", "one"
            )
        return {**core_arrays, **self.extra}

    def needed_bytes(self) -> int:
        """Return how many bytes publishing takes on disk, rounded up."""
        return (
            sum(array.nbytes for name, array in self.arrays().items() if name not in self.files)
            + HEADROOM_BYTES
        )


_MANIFEST_FIELDS = {entry.name for entry in fields(Draft)} & {
    entry.name for entry in fields(Manifest)
}


@dataclass(frozen=True)
class Model:
    """An opened version, mapped read-only; it stays valid when the version is deleted.

    arrays  all of them by "group/name", plain ndarrays over the maps
    """

    manifest: Manifest
    ensemble: TreeEnsemble
    labels: NameTable
    arrays: Mapping[str, NDArray[Any]]

    def at_rest(self, group: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a group that only training reads.

        Raises Corrupt for a wrong digest.
        """
        arrays = {name: item for name, item in self.arrays.items() if name.startswith(f"{group}/")}
        for name, array in arrays.items():
            info = self.manifest.arrays.get(name)  # a draft has no entries
            if info is not None and (sha256 := info_of(name, array).sha256) != info.sha256:
                where = f"{self.manifest.full_name}: {file_name(name)}"
                raise Corrupt(where, f"sha256 {info.sha256}", sha256)
        return arrays


@functools.cache
def code_version() -> str:
    """Return the version of this code, "0" if it is not installed."""
    try:
        return importlib.metadata.version("xylem-serve")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def model_of(draft: Draft) -> Model:
    """Return a draft as the model that it will be once published.

    Raises Corrupt as `manifest_of` does.
    """
    return Model(manifest_of(draft), draft.ensemble, draft.labels, draft.arrays())


def draft_of(model: Model) -> Draft:
    """Return a draft with the contents of a version, without the id of the job that made it."""
    core_names = group_of(ENSEMBLE, model.ensemble).keys() | group_of(LABELS, model.labels).keys()
    return Draft(
        **{name: getattr(model.manifest, name) for name in _MANIFEST_FIELDS},
        ensemble=model.ensemble,
        labels=model.labels,
        extra={
            name: array
            for name, array in model.arrays.items()
            if name not in core_names | {MADE_FOR}
        },
    )


def manifest_of(draft: Draft) -> Manifest:
    """Check a draft, and return its manifest, still without the model, version and arrays.

    Raises Corrupt for a draft that breaks an invariant of the format: it never reaches the disk.
    """
    trees = draft.ensemble
    shapes = (
        [(member.n_trees, member.n_nodes, member.n_chunks) for member in draft.members]
        if draft.kind == COMBINED
        else [(int(trees.child_ptr[0]), len(trees.parent), len(trees.directory))]
    )
    n_trees, n_nodes, n_chunks = map(sum, zip(*shapes, strict=True))
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        model="draft",
        version=1,
        created_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        kind=draft.kind,
        link=draft.link,
        weights=draft.weights,
        n_trees=n_trees,
        n_nodes=n_nodes,
        n_chunks=n_chunks,
        n_labels=draft.labels.n_names,
        n_features=int(draft.n_features),
        trainer=TrainerInfo(draft.trainer.name, dict(draft.trainer.parameters)),
        seed=int(draft.seed),
        code_version=code_version(),
        data=draft.data,
        metrics={name: float(value) for name, value in draft.metrics.items()},
        features=dict(draft.features),
        arrays={},
        members=draft.members,
    )
    render_manifest(manifest)
    check_version(manifest, draft.arrays())
    return manifest


def write_arrays(
    fs: FileSystem,
    directory: Path,
    arrays: Mapping[str, NDArray[Any]],
    files: Mapping[str, StoredArray] | None = None,
) -> dict[str, ArrayInfo]:
    """Write arrays into a new version's directory, all synced; return the manifest's entries.

    files  as in Draft: these are linked, or copied if they cannot be linked
    """
    home = directory / ARRAYS
    fs.mkdir(home)
    infos = {}
    for name, array in sorted(arrays.items()):
        stored = (files or {}).get(name)
        infos[name] = (
            stored.info
            if stored is not None and _is_linked(fs, stored.path, home / file_name(name))
            else write_array(fs, home, name, array)
        )
    fs.fsync_dir(home)
    return infos


def _is_linked(fs: FileSystem, source: Path, target: Path) -> bool:
    """Give a file another name; return False if the file system cannot, or the file is gone."""
    try:
        fs.link(source, target)
    except OSError as error:
        if error.errno in NO_LINK:
            return False
        raise
    return True


def write_manifest(fs: FileSystem, directory: Path, manifest: Manifest) -> None:
    """Write the manifest and its seal, the last files of a version, and sync the directory."""
    data = render_manifest(manifest)
    write_file(fs, directory / MANIFEST, [data])
    write_file(fs, directory / SEAL, [seal(data, MANIFEST)])
    fs.fsync_dir(directory)


def read_manifest(fs: FileSystem, directory: Path) -> Manifest:
    """Return a version's manifest. Raises Corrupt, or FileNotFoundError if a file is missing."""
    return parse_manifest(
        fs.read(directory / MANIFEST, MANIFEST_BYTES_MAX), fs.read(directory / SEAL, SEAL_BYTES_MAX)
    )


def map_version(
    fs: FileSystem, directory: Path, manifest: Manifest
) -> tuple[Model, dict[str, Mapped]]:
    """Return the model over the mapped arrays of a version, and the maps by the arrays' names.

    Types, shapes and lengths are checked, data are not read: see `verify_version`. Raises Corrupt,
    or FileNotFoundError if a file is missing.
    """
    arrays: dict[str, NDArray[Any]] = {}
    maps: dict[str, Mapped] = {}
    for name, info in manifest.arrays.items():
        arrays[name], maps[name] = map_array(fs, directory / ARRAYS, name, info)
    ensemble, labels = assemble(manifest, arrays)
    return Model(manifest, ensemble, labels, arrays), maps


def verify_version(model: Model, maps: Mapping[str, Mapped], *, resting: bool = True) -> None:
    """Raise Corrupt unless every digest is right and every invariant holds.

    resting  whether to read the arrays too that only training reads; `Model.at_rest` checks them
             when they are needed

    Cost: two passes over the data.
    """
    for name, info in model.manifest.arrays.items():
        if resting or not _OF_MEMBER.sub("", name).startswith(AT_REST):
            check_digest(name, maps[name], info)
    check_version(model.manifest, model.arrays)


# The manifest, its seal, and the arrays by "group/name".
Packed: TypeAlias = tuple[bytes, bytes, dict[str, NDArray[Any]]]


def pack(model: Model) -> Packed:
    """Return a model as plain values.

    Cost: one pass over the arrays of a model that was never published, else nothing.
    """
    manifest = render_manifest(
        replace(
            model.manifest,
            arrays=model.manifest.arrays
            or {name: info_of(name, array) for name, array in model.arrays.items()},
        )
    )
    return manifest, seal(manifest, MANIFEST), dict(model.arrays)


def unpack(packed: Packed) -> Model:
    """Return the model that was packed, over the arrays in `packed`, which are not copied.

    Raises Corrupt unless the seal, every digest and every invariant hold. Cost: two passes over the
    arrays.
    """
    document, sealed, packed_arrays = packed
    manifest = parse_manifest(document, sealed)
    if packed_arrays.keys() != manifest.arrays.keys():
        raise Corrupt(
            "packed model", f"the arrays {sorted(manifest.arrays)}", sorted(packed_arrays)
        )
    arrays: dict[str, NDArray[Any]] = {}
    for name, info in manifest.arrays.items():
        # in the form that kernels take: numpy's own class, little-endian, C-contiguous, read-only
        plain = (
            np.ascontiguousarray(packed_arrays[name], packed_arrays[name].dtype.newbyteorder("<"))
            .view(np.ndarray)
            .reshape(packed_arrays[name].shape)
        )
        plain.flags.writeable = False
        arrays[name] = plain
        if (plain.dtype.name, plain.shape) != (info.dtype, info.shape):
            raise Corrupt(
                f"packed model: {name}", f"{info.dtype}{info.shape}", f"{plain.dtype}{plain.shape}"
            )
        if (sha256 := info_of(name, plain).sha256) != info.sha256:
            raise Corrupt(f"packed model: {name}", f"sha256 {info.sha256}", sha256)
    ensemble, labels = assemble(manifest, arrays)
    check_version(manifest, arrays)
    return Model(manifest, ensemble, labels, arrays)
