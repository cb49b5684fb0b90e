"""Requests and answers of the Open Inference Protocol, made and
read here by hand, without our code.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.servers import ServerProcess

TYPES = {"text": "BYTES", "indptr": "INT64", "indices": "INT32", "values": "FP32"}
DTYPES = {"INT64": "<i8", "INT32": "<i4", "FP32": "<f4", "BOOL": "?"}
HEADER = "Inference-Header-Content-Length"


def tensor(name: str, data: Sequence[Any], **changes: Any) -> dict[str, Any]:
    """A tensor whose data are in the JSON."""
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
    """A body with some bytes put in and cut out, and where its JSON ends now."""
    for _ in range(data.draw(st.integers(1, 4))):
        at, more = data.draw(st.integers(0, len(body))), data.draw(st.sampled_from(letters))
        cut = data.draw(st.integers(0, 2))
        if n_json is not None and at < n_json:
            n_json += 1 - min(cut, n_json - at)
        body = body[:at] + bytes([more]) + body[at + cut :]
    return body, n_json


def csr(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The three tensors of sparse rows."""
    indptr = np.cumsum([0, *(len(row["indices"]) for row in rows)]).tolist()
    indices = [i for row in rows for i in row["indices"]]
    values = [value for row in rows for value in row["values"]]
    return [tensor("indptr", indptr), tensor("indices", indices), tensor("values", values)]


def packed(given: dict[str, Any]) -> bytes:
    """The data of a tensor as binary data."""
    if given["datatype"] == "BYTES":
        texts = [text.encode() for text in given["data"]]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return np.array(given["data"], DTYPES[given["datatype"]]).tobytes()


def binary_body(request: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """A request with all its tensors as binary data, and the headers that say so."""
    data = [packed(given) for given in request["inputs"]]
    inputs = [
        {
            **{key: given[key] for key in given if key != "data"},
            "parameters": {"binary_data_size": len(part)},
        }
        for given, part in zip(request["inputs"], data, strict=True)
    ]
    head = json.dumps({**request, "inputs": inputs}).encode()
    return b"".join([head, *data]), {
        "content-type": "application/octet-stream",
        HEADER: str(len(head)),
    }


def unpacked(content: bytes | dict[str, Any], n_json: int | None) -> dict[str, Any]:
    """The outputs of an answer by name, in the shapes that it says, and its other members."""
    rest = b""
    if isinstance(content, bytes):
        content, rest = json.loads(content[:n_json]), content[n_json:]
    found = {key: value for key, value in content.items() if key != "outputs"}
    for output in content["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = output["data"]
        else:
            part, rest = rest[:size], rest[size:]
            assert len(part) == size
            data = _elements(part, output["datatype"])
        n_rows, *more = output["shape"]
        assert len(data) == n_rows * (more[0] if more else 1)
        rows = [data[i * more[0] : (i + 1) * more[0]] for i in range(n_rows)] if more else data
        found[output["name"]] = rows
    assert not rest
    return found


def _elements(part: bytes, datatype: str) -> list[Any]:
    if datatype != "BYTES":
        return list(np.frombuffer(part, DTYPES[datatype]).tolist())
    texts = []
    while part:
        (n,) = struct.unpack_from("<I", part)
        texts.append(part[4 : 4 + n].decode())
        part = part[4 + n :]
    return texts


def predictions_of(found: dict[str, Any]) -> list[list[tuple[str, int, np.float32]]]:
    """The labels of each row as (name, id, score); what fills up a row has been checked."""
    rows, columns = [], (found[name] for name in ("labels", "label_ids", "scores", "lengths"))
    for names, ids, scores, n in zip(*columns, strict=True):
        assert {*zip(names[n:], ids[n:], scores[n:], strict=True)} <= {("", -1, 0.0)}
        rows.append(
            [(a, b, np.float32(c)) for a, b, c in zip(names[:n], ids[:n], scores[:n], strict=True)]
        )
    return rows


def infer(
    server: ServerProcess, path: str, request: dict[str, Any], *, binary: bool
) -> dict[str, Any]:
    """What a model answers, which must be 200."""
    body, headers = binary_body(request) if binary else (json.dumps(request).encode(), {})
    status, given, content = server.exchange("POST", path, body, **headers)
    assert status == 200, content
    n_json = given.get(HEADER.lower())
    return unpacked(content if n_json else json.loads(content), int(n_json) if n_json else None)
