"""JSON objects kept among a version's arrays, as bytes: readers that do not know one pass it over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.array_access import take
from model_store.arrays import file_name
from model_store.documents import parse
from model_store.errors import Corrupt

JSON_BYTES_MAX = 1 << 20


def json_array(name: str, found: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the array `name`, as `report/json`, of an object; raise Corrupt for one no reader would take."""
    what = name.partition("/")[0]
    try:
        text = json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Corrupt(what, "a JSON object, all numbers finite", str(error)) from error
    array = np.frombuffer(text.encode("ascii"), np.uint8)
    read_json_array({name: array}, name)
    return array


def read_json_array(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, Any]:
    """Return the object that the array `name` holds, {} if there is none; raise Corrupt for a damaged one."""
    if name not in arrays:
        return {}
    array = take(arrays, name, "uint8", (None,))
    where = file_name(name)
    if len(array) > JSON_BYTES_MAX:
        raise Corrupt(where, f"at most {JSON_BYTES_MAX} bytes", len(array))
    found = parse(array.tobytes(), where)
    try:
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Corrupt(where, "finite numbers", str(error)) from error
    return found
