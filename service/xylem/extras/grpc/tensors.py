"""Tensors: a ModelInferRequest becomes a request with binary tensors, and its answer a message.

Elements that are typed become binary data too, so that one reader checks and reads both forms. The
answer has its elements in the form of the request.
"""

import math
from typing import Any

import numpy as np
import orjson

from xylem.base import BadRequest
from xylem.extras.grpc.messages import message_class

# For each type of our tensors, the field that has its typed elements.
FIELDS = {
    "BYTES": "bytes_contents",
    "INT64": "int64_contents",
    "INT32": "int_contents",
    "FP32": "fp32_contents",
    "BOOL": "bool_contents",
}

_DTYPES = {"INT64": "<i8", "INT32": "<i4", "FP32": "<f4", "BOOL": "?"}


def tensor_body(call: Any) -> tuple[bytes, int]:
    """Return the body of a request with binary tensors, and how many of its bytes are JSON.

    Raises BadRequest for what only a message can have; the dialect finds all other faults.
    """
    n_raw = len(call.raw_input_contents)
    if n_raw and n_raw != len(call.inputs):
        raise BadRequest(
            f"expected {len(call.inputs)} elements, one for each of the inputs, found {n_raw}"
        ).with_path("raw_input_contents")
    parts = [_binary(call, i) for i in range(len(call.inputs))]
    parameters = {name: _value(name, value) for name, value in call.parameters.items()}
    request = {
        "parameters": parameters | {"binary_data_output": n_raw > 0},
        "inputs": [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "datatype": tensor.datatype,
                "parameters": {"binary_data_size": len(part)},
            }
            for tensor, part in zip(call.inputs, parts, strict=True)
        ],
        "outputs": [{"name": output.name} for output in call.outputs],
        "id": call.id or None,
    }
    head = orjson.dumps(request)
    return b"".join((head, *parts)), len(head)


def _binary(call: Any, index: int) -> bytes:
    tensor = call.inputs[index]
    place = f"inputs[{index}].contents"
    if call.raw_input_contents:
        if tensor.HasField("contents"):
            raise BadRequest("expected contents or raw_input_contents, found both").with_path(place)
        return bytes(call.raw_input_contents[index])
    field = FIELDS.get(tensor.datatype)
    if field is None:
        return b""  # the dialect names the type that it expects
    elements = getattr(tensor.contents, field)
    n = math.prod(tensor.shape)
    if len(elements) != n and min(tensor.shape, default=0) >= 0:
        raise BadRequest(
            f"expected {n} elements, as the shape says, found {len(elements)}"
        ).with_path(f"{place}.{field}")
    if tensor.datatype == "BYTES":
        return b"".join([len(text).to_bytes(4, "little") + text for text in elements])
    return np.array(elements, _DTYPES[tensor.datatype]).tobytes()


def _value(name: str, parameter: Any) -> Any:
    """Return the value of a parameter. A text that is JSON is what the JSON says."""
    kind = parameter.WhichOneof("parameter_choice")
    value: Any = None if kind is None else getattr(parameter, kind)
    if kind == "double_param" and not math.isfinite(value):
        raise BadRequest(f"expected a finite number, found {value}").with_path(f"parameters.{name}")
    try:
        return orjson.loads(value) if kind == "string_param" else value
    except orjson.JSONDecodeError:
        return value


def tensor_message(answer: bytes, n_json: int | None) -> Any:
    """Return the ModelInferResponse that says what an answer says.

    n_json  how many bytes of the answer are JSON, before binary data; None: all
    """
    start = len(answer) if n_json is None else n_json
    head = orjson.loads(answer[:start])
    message = message_class("ModelInferResponse")(
        model_name=head["model_name"],
        model_version=head["model_version"],
        id=head.get("id", ""),
        parameters={name: {"int64_param": value} for name, value in head["parameters"].items()},
    )
    for output in head["outputs"]:
        datatype = output["datatype"]
        tensor = message.outputs.add(name=output["name"], datatype=datatype, shape=output["shape"])
        if n_json is None:
            data = output["data"]
            getattr(tensor.contents, FIELDS[datatype]).extend(
                [text.encode() for text in data] if datatype == "BYTES" else data
            )
        else:
            end = start + output["parameters"]["binary_data_size"]
            message.raw_output_contents.append(answer[start:end])
            start = end
    return message
