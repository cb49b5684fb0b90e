"""A model as plain values that another process may be sent: what an archive has, in memory.

A pickle of them is as safe as pickles are; the model in it is held against its digests and against every
invariant, as one of a store is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import info_of
from model_store.checks import assemble, check_version
from model_store.documents import seal
from model_store.errors import Corrupt
from model_store.manifest import MANIFEST, parse_manifest, render_manifest
from model_store.version import Model

Packed: TypeAlias = tuple[bytes, bytes, dict[str, NDArray[Any]]]
"""The manifest, its seal, and the arrays by "group/name"."""


def pack(model: Model) -> Packed:
    """Return a model as plain values. Cost: of a model that was never published, one pass over its arrays."""
    infos = model.manifest.arrays or {name: info_of(name, array) for name, array in model.arrays.items()}
    manifest = render_manifest(replace(model.manifest, arrays=infos))
    return manifest, seal(manifest, MANIFEST), dict(model.arrays)


def unpack(packed: Packed) -> Model:
    """Return the model that `pack` was given, over the arrays here, which are not copied.

    Raises Corrupt unless the seal, every digest and every invariant hold. Cost: two passes over the arrays.
    """
    document, sealed, found = packed
    manifest = parse_manifest(document, sealed)
    if found.keys() != manifest.arrays.keys():
        raise Corrupt("packed model", f"the arrays {sorted(manifest.arrays)}", sorted(found))
    arrays = {name: _plain(array) for name, array in found.items()}
    for name, info in manifest.arrays.items():
        array = arrays[name]
        if (array.dtype.name, array.shape) != (info.dtype, info.shape):
            raise Corrupt(f"packed model: {name}", f"{info.dtype}{info.shape}", f"{array.dtype}{array.shape}")
        if (sha256 := info_of(name, array).sha256) != info.sha256:
            raise Corrupt(f"packed model: {name}", f"sha256 {info.sha256}", sha256)
    ensemble, labels = assemble(manifest, arrays)
    check_version(manifest, arrays)
    return Model(manifest, ensemble, labels, arrays)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as kernels take it: of numpy's own class, little-endian, C-contiguous, read-only."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).view(np.ndarray).reshape(array.shape)
    plain.flags.writeable = False
    return plain
