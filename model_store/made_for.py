"""What a version was made for, told apart by an id: so that it is published once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import info_of
from model_store.manifest import Manifest

MADE_FOR = "origin/id"


def made_for_array(made_for: str) -> NDArray[np.uint8]:
    """Return the array that says what a version was made for: the id of a job."""
    return np.frombuffer(made_for.encode(), np.uint8)


def is_made_for(manifest: Manifest, made_for: str) -> bool:
    """Return whether a version was made for it. Reads no file: the manifest has the digest of the array's."""
    array = made_for_array(made_for)
    return MADE_FOR in manifest.arrays and manifest.arrays[MADE_FOR] == info_of(MADE_FOR, array)


def made_for_of(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """Return what a version was made for, None where its arrays do not say it."""
    return arrays[MADE_FOR].tobytes().decode("utf-8", "replace") if MADE_FOR in arrays else None
