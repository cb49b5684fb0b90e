"""Calibration arrays: the knots of the map from a model's own scores to probabilities, and their checks.

FORMAT.md says the arrays. A version has both of them or none, and none with link softmax, whose probabilities
are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import at, file_name, take
from model_store.compiled.handles import F32_1, handle
from model_store.errors import Corrupt
from model_store.manifest import CALIBRATION, Manifest, has_calibration

KNOTS_MAX = 256
"""The most knots: a score is looked up among them for each label of an answer."""


@handle
class Calibration(NamedTuple):
    """The strictly rising map of scores, straight from knot to knot.

    x  float32[n]  scores of the model, strictly ascending from 0 to 1, 2 <= n <= KNOTS_MAX
    y  float32[n]  what becomes of them, strictly ascending from 0, at most 1

    Or both empty: scores stay as they are.
    """

    x: F32_1
    y: F32_1


def _nothing() -> NDArray[np.float32]:
    none = np.empty(0, np.float32)
    none.flags.writeable = False  # as the arrays of a version: one compiled form of every kernel
    return none


NO_CALIBRATION = Calibration(_nothing(), _nothing())
"""Of a version that is not calibrated."""


def assemble_calibration(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> Calibration:
    """Return a version's calibration, read-only, NO_CALIBRATION if it has none; raise Corrupt.

    Reads no data.
    """
    if not has_calibration(arrays):
        return NO_CALIBRATION
    if manifest.link == "softmax":
        raise Corrupt("manifest.json: arrays", f"no array of {CALIBRATION} with link softmax", "one")
    x = take(arrays, f"{CALIBRATION}/x", "float32", (None,))
    if not 2 <= len(x) <= KNOTS_MAX:
        raise Corrupt(file_name(f"{CALIBRATION}/x"), f"2 to {KNOTS_MAX} knots", len(x))
    return Calibration(x, take(arrays, f"{CALIBRATION}/y", "float32", (len(x),)))


def check_calibration(calibration: Calibration) -> None:
    """Raise Corrupt unless every invariant of Calibration holds; all numbers were seen to be finite."""
    for name, values in calibration._asdict().items():
        if not len(values):
            continue
        where = f"{CALIBRATION}/{name}"
        if values[0] != 0:
            raise Corrupt(at(where, 0), "0", values[0])
        falls = np.flatnonzero(np.diff(values) <= 0)
        if len(falls):
            index = int(falls[0]) + 1
            raise Corrupt(at(where, index), f"more than {values[index - 1]}, the one before", values[index])
        last = len(values) - 1
        if values[last] > 1 or (name == "x" and values[last] != 1):
            raise Corrupt(at(where, last), "1" if name == "x" else "at most 1", values[last])


def calibration_arrays(calibration: Calibration) -> dict[str, NDArray[np.float32]]:
    """Return the arrays of a calibration by name, as `Draft.extra` takes them."""
    return {f"{CALIBRATION}/{name}": values for name, values in calibration._asdict().items()}
