"""The origin of a version: what the manifest does not say of where it came from.

A JSON object kept as an array of bytes: older readers pass it over, and an archive carries it. Its fields:

parent   {"model", "version", "content"}: the version that this one was made to follow, which its promotion is
         measured against; `content` is its `content_digest`, by which it is known under any name. Or null
job      the id of the job that made it, or null
rule     the rule that was to decide on its promotion, as the request for it said, or null
calibration  what its scores were calibrated on ("source", "rows", "sha256"), and how well; not there if not
libraries  the versions of the libraries that read texts beside our kernels, by name; only where there are any
vectorizer  {"file", "sha256"}: the vectorizer that texts are read as; only of `xylem import-vectorizer`

What came of the rule is not here: a published version never changes. The history of aliases has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.json_arrays import json_array, read_json_array
from model_store.made_for import MADE_FOR
from model_store.manifest import Manifest

ORIGIN = "origin/json"
"""The array's name, among `Draft.extra`."""

_LEFT_OUT = (ORIGIN, MADE_FOR)
"""What differs between two versions that are the same otherwise."""


def content_digest(manifest: Manifest) -> str:
    """Return 64 hexadecimal digits: the same for two versions of the same arrays, whatever their names."""
    lines = [
        f"{info.sha256}  {name}\n" for name, info in sorted(manifest.arrays.items()) if name not in _LEFT_OUT
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def parent_of(manifest: Manifest) -> dict[str, Any]:
    """Return the field `parent` of what is made to follow a version."""
    return {
        "model": manifest.model,
        "version": manifest.version,
        "content": content_digest(manifest),
    }


def origin_array(origin: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the array of an origin; raise Corrupt for one that no reader would take."""
    return json_array(ORIGIN, origin)


def read_origin(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the origin among a version's arrays, {} if it has none; raise Corrupt when it is damaged."""
    return read_json_array(arrays, ORIGIN)
