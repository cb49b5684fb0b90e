"""Write the outputs of the Open Inference Protocol: JSON, and binary data behind it."""

from collections.abc import Sequence
from itertools import accumulate

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
    json         their JSON, separated by commas; %d stands for a number of bytes, %b for data
    """

    are_binary: dict[str, bool]
    n_rows: int
    n_places: int
    json: bytes


def outputs_of(are_binary: dict[str, bool], n_rows: int, n_places: int) -> InferOutputs:
    """Return the outputs of these names, in their order."""
    heads: list[bytes] = []
    for name, is_binary in are_binary.items():
        shape = [n_rows] if name in ("lengths", "exact") else [n_rows, n_places]
        head = dump({"name": name, "shape": shape, "datatype": OUTPUTS[name]})
        data = b'"parameters":{"binary_data_size":%d}' if is_binary else b'"data":%b'
        heads.append(b"%b,%b}" % (head[:-1], data))
    return InferOutputs(are_binary, n_rows, n_places, b",".join(heads))


def write_outputs(outputs: InferOutputs, data: bytes, ends: Sequence[int]) -> tuple[bytes, bytes]:
    """Return the JSON of outputs, separated by commas, and their binary data.

    data    all outputs as binary data
    ends    where each of them ends in it
    """
    values: list[int | bytes] = []
    binaries: list[bytes] = []
    start = 0
    for (name, is_binary), end in zip(outputs.are_binary.items(), ends, strict=True):
        part = data[start:end]
        start = end
        if is_binary:
            binaries.append(part)
            values.append(len(part))
        elif name == "labels":
            values.append(orjson.dumps(binary_texts(part, outputs.n_rows * outputs.n_places, name)))
        else:
            array = np.frombuffer(part, DTYPES[OUTPUTS[name]])
            # of float32, numbers of Python would have more digits; of few others, an array takes
            # twice the time of a list
            values.append(dump(array) if name == "scores" else orjson.dumps(array.tolist()))
    return outputs.json % tuple(values), data if len(binaries) == len(ends) else b"".join(binaries)


def pack_predictions(
    names: NameTable, outputs: InferOutputs, predictions: Predictions
) -> tuple[bytes, list[int]]:
    """Return all outputs as binary data, as kernels write them, and where each of them ends.

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
    parts = [packed[name] for name in outputs.are_binary]
    return b"".join(parts), list(accumulate(map(len, parts)))


def _name_of(names: NameTable, label: int) -> bytes:
    """Return a label's name as UTF-8; an empty name for -1."""
    start, end = names.offsets[label : label + 2] if label >= 0 else (0, 0)
    return names.utf8[start:end].tobytes()
