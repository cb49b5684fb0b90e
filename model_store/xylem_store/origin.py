"""What a version tells besides its manifest: its report, its origin,
and the id of what it was made for.

Report and origin are JSON objects kept among the arrays as bytes: older readers pass them over, and
an archive carries them. The report is what training told. The fields of the origin:

parent   {"model", "version", "content"}: the version that this one was made to follow, which its
         promotion is measured against; `content` is its `content_digest`, by which it is known
         under any name. Or null
job      the id of the job that made it, or null
rule     the rule that was to decide on its promotion, as the request for it said, or null
calibration  what its scores were calibrated on ("source", "rows", "sha256"), and how well; not
             there if not
feedback  {model: seconds since 1970}: until when feedback to a model was read to train on; {} if
          never
libraries  the versions of the libraries that read texts beside our kernels, by name; only where
           there are any
vectorizer  {"file", "sha256"}: the vectorizer that texts are read as; only of `xylem
            import-vectorizer`

What came of the rule is not here: a published version never changes. The history of aliases has it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import file_name, info_of, take
from xylem_store.documents import parse
from xylem_store.errors import Corrupt
from xylem_store.manifest import Manifest

JSON_BYTES_MAX = 1 << 20


def json_array(name: str, document: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the array `name`, as `report/json`, of an object; raise
    Corrupt for one no reader would take.
    """
    group = name.partition("/")[0]
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Corrupt(group, "a JSON object, all numbers finite", str(error)) from error
    array = np.frombuffer(text.encode("ascii"), np.uint8)
    read_json_array({name: array}, name)
    return array


def read_json_array(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, Any]:
    """Return the object that the array `name` holds, {} if there is
    none; raise Corrupt for a damaged one.
    """
    if name not in arrays:
        return {}
    array = take(arrays, name, "uint8", (None,))
    where = file_name(name)
    if len(array) > JSON_BYTES_MAX:
        raise Corrupt(where, f"at most {JSON_BYTES_MAX} bytes", len(array))
    document = parse(array.tobytes(), where)
    try:
        json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Corrupt(where, "finite numbers", str(error)) from error
    return document


REPORT = "report/json"


def read_report(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the report among a version's arrays, {} if it has
    none; raise Corrupt when it is damaged.
    """
    return read_json_array(arrays, REPORT)


MADE_FOR = "origin/id"


def made_for_array(made_for: str) -> NDArray[np.uint8]:
    """Return the array that says what a version was made for: the id of a job."""
    return np.frombuffer(made_for.encode(), np.uint8)


def is_made_for(manifest: Manifest, made_for: str) -> bool:
    """Return whether a version was made for it.

    Reads no file: the manifest has the digest of the array's.
    """
    array = made_for_array(made_for)
    return MADE_FOR in manifest.arrays and manifest.arrays[MADE_FOR] == info_of(MADE_FOR, array)


def made_for_of(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """Return what a version was made for, None where its arrays do not say it."""
    return arrays[MADE_FOR].tobytes().decode("utf-8", "replace") if MADE_FOR in arrays else None


ORIGIN = "origin/json"
"""The array's name, among `Draft.extra`."""

FEEDBACK = "feedback"
"""The field of an origin that says which rows of feedback a version was
trained on: see `learnt_feedback`.
"""

_LEFT_OUT = (ORIGIN, MADE_FOR)  # what differs between two versions that are the same otherwise


def content_digest(manifest: Manifest) -> str:
    """Return 64 hexadecimal digits: the same for two versions of the
    same arrays, whatever their names.
    """
    lines = [
        f"{info.sha256}  {name}\n"
        for name, info in sorted(manifest.arrays.items())
        if name not in _LEFT_OUT
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def parent_of(manifest: Manifest) -> dict[str, Any]:
    """Return the field `parent` of what is made to follow a version."""
    return {
        "model": manifest.model,
        "version": manifest.version,
        "content": content_digest(manifest),
    }


def origin_arrays(origin: Mapping[str, Any], made_for: str | None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an origin, if it says anything, and of what
    a version was made for, if that is.
    """
    arrays: dict[str, NDArray[Any]] = {}
    if any(value is not None for value in origin.values()):
        arrays[ORIGIN] = json_array(ORIGIN, origin)
    if made_for is not None:
        arrays[MADE_FOR] = made_for_array(made_for)
    return arrays


def read_origin(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the origin among a version's arrays, {} if it has
    none; raise Corrupt when it is damaged.
    """
    return read_json_array(arrays, ORIGIN)


def learnt_feedback(arrays: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return until when feedback to each model was read to train a version, in seconds since 1970.

    A version that goes on from another one has learnt what that one had. Raises Corrupt.
    """
    times = read_origin(arrays).get(FEEDBACK, {})
    if not isinstance(times, dict) or not all(
        isinstance(time, int | float) for time in times.values()
    ):
        raise Corrupt(file_name(ORIGIN), "a time for each model in feedback", repr(times)[:80])
    return times
