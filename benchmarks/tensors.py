"""Instances as bodies of the Open Inference Protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

_TENSORS = (("indptr", "INT64", "<i8"), ("indices", "INT32", "<i4"), ("values", "FP32", "<f4"))


def text_as_json(text: str) -> bytes:
    """Return the body with a text as a tensor in the JSON."""
    return orjson.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]})


def as_json(instance: dict[str, Any]) -> bytes:
    """Return the body with the three tensors of a sparse row in the JSON."""
    inputs = [
        {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}
        for (name, datatype, _), data in zip(_TENSORS, _csr(instance), strict=True)
    ]
    return orjson.dumps({"inputs": inputs})


def as_binary(instance: dict[str, Any]) -> tuple[bytes, str]:
    """Return the body with the tensors behind the JSON, answers too, and the header's line that says so."""
    parts = [
        np.array(data, dtype).tobytes() for (_, _, dtype), data in zip(_TENSORS, _csr(instance), strict=True)
    ]
    inputs = [
        {
            "name": name,
            "shape": [len(data)],
            "datatype": datatype,
            "parameters": {"binary_data_size": len(part)},
        }
        for (name, datatype, _), data, part in zip(_TENSORS, _csr(instance), parts, strict=True)
    ]
    head = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    return b"".join([head, *parts]), f"inference-header-content-length: {len(head)}\r\n"


def _csr(instance: dict[str, Any]) -> tuple[list[int], list[int], list[float]]:
    return [0, len(instance["indices"])], instance["indices"], instance["values"]
