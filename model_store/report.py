"""The report of a version: what its training told, a JSON object kept as an array of bytes."""

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

REPORT = "report/json"
REPORT_BYTES_MAX = 1 << 20


def report_array(report: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the array of a report; raise Corrupt for one that no reader would take."""
    try:
        text = json.dumps(report, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Corrupt("report", "a JSON object, all numbers finite", str(error)) from error
    array = np.frombuffer(text.encode("ascii"), np.uint8)
    read_report({REPORT: array})
    return array


def read_report(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the report among a version's arrays, {} if it has none; raise Corrupt when it is damaged."""
    if REPORT not in arrays:
        return {}
    array = take(arrays, REPORT, "uint8", (None,))
    where = file_name(REPORT)
    if len(array) > REPORT_BYTES_MAX:
        raise Corrupt(where, f"at most {REPORT_BYTES_MAX} bytes", len(array))
    report = parse(array.tobytes(), where)
    try:
        json.dumps(report, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Corrupt(where, "finite numbers", str(error)) from error
    return report
