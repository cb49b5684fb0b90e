"""Make requests and read answers of the Open Inference Protocol, independently of xylem."""

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.helpers.servers import ServerProcess

TYPES = {"text": "BYTES", "indptr": "INT64", "indices": "INT32", "values": "FP32"}
DTYPES = {"INT64": "<i8", "INT32": "<i4", "FP32": "<f4", "BOOL": "?"}
HEADER = "Inference-Header-Content-Length"


def tensor(name: str, data: Sequence[Any], **changes: Any) -> dict[str, Any]:
    """Return a tensor whose data are in the JSON."""
    return {
        "name": name,
        "shape": [len(data)],
        "datatype": TYPES[name],
        "data": list(data),
        **changes,
    }


def changed(
    data: st.DataObject, body: bytes, n_json: int | None, letters: bytes
) -> tuple[bytes, int | None]:
    """Insert and remove some bytes of a body; return it, and the new length of its JSON."""
    for _ in range(data.draw(st.integers(1, 4))):
        offset, new_byte = data.draw(st.integers(0, len(body))), data.draw(st.sampled_from(letters))
        cut = data.draw(st.integers(0, 2))
        if n_json is not None and offset < n_json:
            n_json += 1 - min(cut, n_json - offset)
        body = body[:offset] + bytes([new_byte]) + body[offset + cut :]
    return body, n_json


def csr(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the three tensors of sparse rows."""
    indptr = np.cumsum([0, *(len(row["indices"]) for row in rows)]).tolist()
    indices = [i for row in rows for i in row["indices"]]
    values = [value for row in rows for value in row["values"]]
    return [tensor("indptr", indptr), tensor("indices", indices), tensor("values", values)]


def packed(tensor_json: dict[str, Any]) -> bytes:
    """Return the data of a tensor as binary data."""
    if tensor_json["datatype"] == "BYTES":
        texts = [text.encode() for text in tensor_json["data"]]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return np.array(tensor_json["data"], DTYPES[tensor_json["datatype"]]).tobytes()


def binary_body(request: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return the body of a request with all tensors as binary data, and its headers."""
    data = [packed(tensor_json) for tensor_json in request["inputs"]]
    inputs = [
        {
            **{key: tensor_json[key] for key in tensor_json if key != "data"},
            "parameters": {"binary_data_size": len(part)},
        }
        for tensor_json, part in zip(request["inputs"], data, strict=True)
    ]
    head = json.dumps({**request, "inputs": inputs}).encode()
    return b"".join([head, *data]), {
        "content-type": "application/octet-stream",
        HEADER: str(len(head)),
    }


def unpacked(content: bytes | dict[str, Any], n_json: int | None) -> dict[str, Any]:
    """Return the outputs of an answer by name, in their shapes, and its other members."""
    binary = b""
    if isinstance(content, bytes):
        content, binary = json.loads(content[:n_json]), content[n_json:]
    outputs = {key: value for key, value in content.items() if key != "outputs"}
    for output in content["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = output["data"]
        else:
            part, binary = binary[:size], binary[size:]
            assert len(part) == size
            data = elements_of(part, output["datatype"])
        n_rows, *columns = output["shape"]
        assert len(data) == n_rows * (columns[0] if columns else 1)
        rows = (
            [data[i * columns[0] : (i + 1) * columns[0]] for i in range(n_rows)]
            if columns
            else data
        )
        outputs[output["name"]] = rows
    assert not binary
    return outputs


def elements_of(part: bytes, datatype: str) -> list[Any]:
    """Return the elements of a tensor from its binary data."""
    if datatype != "BYTES":
        return list(np.frombuffer(part, DTYPES[datatype]).tolist())
    texts = []
    while part:
        (n,) = struct.unpack_from("<I", part)
        texts.append(part[4 : 4 + n].decode())
        part = part[4 + n :]
    return texts


def predictions_of(outputs: dict[str, Any]) -> list[list[tuple[str, int, np.float32]]]:
    """Return the labels of each row as (name, id, score); check the values that pad the rows."""
    rows, columns = [], (outputs[name] for name in ("labels", "label_ids", "scores", "lengths"))
    for names, ids, scores, n in zip(*columns, strict=True):
        assert {*zip(names[n:], ids[n:], scores[n:], strict=True)} <= {("", -1, 0.0)}
        rows.append(
            [(a, b, np.float32(c)) for a, b, c in zip(names[:n], ids[:n], scores[:n], strict=True)]
        )
    return rows


def infer(
    server: ServerProcess, path: str, request: dict[str, Any], *, binary: bool
) -> dict[str, Any]:
    """Send a request, whose status must be 200; return the outputs."""
    body, headers = binary_body(request) if binary else (json.dumps(request).encode(), {})
    status, response_headers, content = server.exchange("POST", path, body, **headers)
    assert status == 200, content
    n_json = response_headers.get(HEADER.lower())
    return unpacked(content if n_json else json.loads(content), int(n_json) if n_json else None)
