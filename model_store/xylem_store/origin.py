"""A version's report, its origin, and the id of the job that it was made for.

Report and origin are JSON objects kept among the arrays as bytes: older readers ignore them, and
an archive carries them. The report is the result of training. The fields of the origin:

parent       {"model", "version", "content"}: the version that this one was made to follow, against
             which its promotion is measured; `content` is its `content_digest`, which identifies it
             under any name. Or null
job          the id of the job that made it, or null
rule         the rule that was to decide on its promotion, from the request for it, or null
calibration  the data on which its scores were calibrated ("source", "rows", "sha256"), and the
             quality; missing if they were not
feedback     {model: seconds since 1970}: until when feedback to a model was read for training; {}
             if never
libraries    the versions of the libraries that read texts besides the kernels, by name; only if
             there are any
data         what was read of the training rows: "rows", "labels", "examples" and others, as xylem
             inspect prints it; missing for versions that were not trained on rows
encoder      {"name", "sha256"}: the sentence encoder of its texts, by its name and content; only of
             a version that has one
recipe       the recipe of the model (`xylem.workflows.recipe`), with names of files and without
             their paths; only of a version that `xylem learn` made
vectorizer   {"file", "sha256"}: the vectorizer that texts are read like; only of a version that
             `xylem import-vectorizer` made

The outcome of the rule is not here: a published version never changes. It is in the history of the
aliases.
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
    """Return an object as the array `name`, such as `report/json`.

    Raises Corrupt for an object that no reader would accept.
    """
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Corrupt(
            name.partition("/")[0], "a JSON object, all numbers finite", str(error)
        ) from error
    array = np.frombuffer(text.encode("ascii"), np.uint8)
    read_json_array({name: array}, name)
    return array


def read_json_array(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, Any]:
    """Return the object in the array `name`, {} if there is none.

    Raises Corrupt if it is damaged.
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
    """Return the report among a version's arrays, {} if it has none.

    Raises Corrupt if it is damaged.
    """
    return read_json_array(arrays, REPORT)


MADE_FOR = "origin/id"


def made_for_array(made_for: str) -> NDArray[np.uint8]:
    """Return the array that holds the id of the job that a version was made for."""
    return np.frombuffer(made_for.encode(), np.uint8)


def is_made_for(manifest: Manifest, made_for: str) -> bool:
    """Return whether a version was made for the job with this id.

    Reads no file: the manifest has the digest of the array.
    """
    return MADE_FOR in manifest.arrays and manifest.arrays[MADE_FOR] == info_of(
        MADE_FOR, made_for_array(made_for)
    )


def made_for_of(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """Return the id of the job that a version was made for, None if its arrays have none."""
    return arrays[MADE_FOR].tobytes().decode("utf-8", "replace") if MADE_FOR in arrays else None


ORIGIN = "origin/json"  # the array's name in `Draft.extra`

# The field of an origin about the feedback a version was trained on: see `learnt_feedback`.
FEEDBACK = "feedback"

# Arrays that a digest of the content leaves out, those of members too: they differ even between
# versions of the same content.
_LEFT_OUT = (ORIGIN, MADE_FOR)


def content_digest(manifest: Manifest) -> str:
    """Return 64 hexadecimal digits that identify the arrays of a version, whatever its name.

    Origin and job do not count.
    """
    lines = [
        f"{info.sha256}  {name}\n"
        for name, info in sorted(manifest.arrays.items())
        if not name.endswith(_LEFT_OUT)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def parent_of(manifest: Manifest) -> dict[str, Any]:
    """Return the field `parent` of a version that is made to follow this one."""
    return {
        "model": manifest.model,
        "version": manifest.version,
        "content": content_digest(manifest),
    }


def origin_arrays(origin: Mapping[str, Any], made_for: str | None) -> dict[str, NDArray[Any]]:
    """Return the array of an origin, unless it is empty, and of the job's id, if there is one."""
    arrays: dict[str, NDArray[Any]] = {}
    if any(value is not None for value in origin.values()):
        arrays[ORIGIN] = json_array(ORIGIN, origin)
    if made_for is not None:
        arrays[MADE_FOR] = made_for_array(made_for)
    return arrays


def read_origin(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the origin among a version's arrays, {} if it has none.

    Raises Corrupt if it is damaged.
    """
    return read_json_array(arrays, ORIGIN)


def learnt_feedback(arrays: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return for each model until when feedback was read to train a version: seconds since 1970.

    A version that continues another one has learnt the feedback of that one too. Raises Corrupt.
    """
    times = read_origin(arrays).get(FEEDBACK, {})
    if not isinstance(times, dict) or not all(
        isinstance(time, int | float) for time in times.values()
    ):
        raise Corrupt(file_name(ORIGIN), "a time for each model in feedback", repr(times)[:80])
    return times
