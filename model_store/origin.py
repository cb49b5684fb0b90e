"""The origin of a version: what it was made for, told apart by an id, so that it is published once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import header_of
from model_store.manifest import Manifest

ORIGIN = "origin/id"


def origin_array(origin: str) -> NDArray[np.uint8]:
    """Return the array that says the origin of a version."""
    return np.frombuffer(origin.encode(), np.uint8)


def is_of_origin(manifest: Manifest, origin: str) -> bool:
    """Return whether a version has this origin. Reads no file: the manifest has the digest of the array's."""
    array = origin_array(origin)
    digest = hashlib.sha256(header_of("uint8", array.shape) + array.tobytes()).hexdigest()
    return ORIGIN in manifest.arrays and manifest.arrays[ORIGIN].sha256 == digest


def origin_of(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """Return the origin that the arrays of a version say, None where they say none."""
    return arrays[ORIGIN].tobytes().decode("utf-8", "replace") if ORIGIN in arrays else None
