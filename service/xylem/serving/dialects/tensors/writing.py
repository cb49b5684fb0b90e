"""Write the outputs of the Open Inference Protocol: JSON, and binary data behind it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from msgspec import Struct

from xylem.engine import Predictions
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.tensors.elements import DTYPES, binary_texts, packed_text
from xylem.serving.dialects.tensors.schema import OUTPUTS
from xylem_store import NameTable


class InferOutputs(Struct, frozen=True):
    """The outputs to answer with.

    are_binary   for the name of each, whether it is sent as binary data
    n_places     the places for labels of a row
    json         their JSON, separated by commas; %d stands for the number of rows and of bytes, %b
                 for data
    """

    are_binary: dict[str, bool]
    n_places: int
    json: bytes


def outputs_of(are_binary: dict[str, bool], n_places: int) -> InferOutputs:
    """Return the outputs of these names, in their order."""
    parts: list[bytes] = []
    for name, is_binary in are_binary.items():
        shape = b"%d" if name in ("lengths", "exact") else b"%%d,%d" % n_places
        data = b'"parameters":{"binary_data_size":%d}' if is_binary else b'"data":%b'
        names = name.encode(), OUTPUTS[name].encode()
        parts.append(b'{"name":"%b","shape":[%b],"datatype":"%b",%b}' % (names[0], shape, names[1], data))
    return InferOutputs(are_binary, n_places, b",".join(parts))


def write_outputs(
    outputs: InferOutputs, n_rows: int, parts: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """Return the outputs for n_rows rows: their JSON, separated by commas, and their binary data.

    parts   each output as binary data
    """
    values: list[Any] = []
    binaries: list[bytes] = []
    for (name, is_binary), part in zip(outputs.are_binary.items(), parts, strict=True):
        values.append(n_rows)
        if is_binary:
            binaries.append(part)
            values.append(len(part))
        elif name == "labels":
            values.append(orjson.dumps(binary_texts(part, n_rows * outputs.n_places, name)))
        elif name == "scores":
            values.append(orjson.dumps(np.frombuffer(part, np.float32), option=orjson.OPT_SERIALIZE_NUMPY))
        else:
            values.append(orjson.dumps(memoryview(part).cast(DTYPES[OUTPUTS[name]].char).tolist()))
    return outputs.json % tuple(values), b"".join(binaries)


def pack_predictions(
    names: NameTable, outputs: InferOutputs, predictions: Predictions
) -> list[bytes]:
    """Return each output as binary data, in the format that kernels write too.

    A row has n_places places; those without a label have an empty name, -1 and 0.
    """
    lengths = np.diff(predictions.ptr)
    has_label = np.arange(outputs.n_places) < lengths[:, None]
    labels = np.full(has_label.shape, -1, np.int32)
    scores = np.zeros(has_label.shape, np.float32)
    labels[has_label] = predictions.labels
    scores[has_label] = predictions.scores
    packed = {
        "label_ids": labels.tobytes(),
        "scores": scores.tobytes(),
        "lengths": lengths.astype(np.int32).tobytes(),
        "exact": predictions.exact.tobytes(),
    }
    if "labels" in outputs.are_binary:
        packed["labels"] = b"".join(
            packed_text(_name_of(names, label)) for label in labels.ravel().tolist()
        )
    return [packed[name] for name in outputs.are_binary]


def _name_of(names: NameTable, label: int) -> bytes:
    """Return a label's name as UTF-8; an empty name for -1."""
    if label < 0:
        return b""
    return names.utf8[names.offsets[label] : names.offsets[label + 1]].tobytes()
