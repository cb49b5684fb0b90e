"""The report of a version: what its training told, a JSON object kept as an array of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store.json_arrays import JSON_BYTES_MAX, json_array, read_json_array

REPORT = "report/json"
REPORT_BYTES_MAX = JSON_BYTES_MAX


def report_array(report: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the array of a report; raise Corrupt for one that no reader would take."""
    return json_array(REPORT, report)


def read_report(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the report among a version's arrays, {} if it has none; raise Corrupt when it is damaged."""
    return read_json_array(arrays, REPORT)
