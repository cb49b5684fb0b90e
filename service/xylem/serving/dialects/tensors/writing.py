"""Write the outputs of the Open Inference Protocol: JSON, and binary data behind it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from xylem.engine import Predictions
from xylem.serving.dialects.tensors.elements import DTYPES, binary_texts, packed_text
from xylem.serving.dialects.tensors.reading import InferPlan
from xylem.serving.dialects.tensors.schema import OUTPUTS
from xylem_store import NameTable


def write_outputs(plan: InferPlan, parts: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the requested outputs: their JSON, separated by commas, and their binary data.

    parts   each output as binary data
    """
    outputs: list[dict[str, Any]] = []
    binaries: list[bytes] = []
    n_places = plan.options.top_r
    for (name, is_binary), part in zip(plan.outputs.items(), parts, strict=True):
        shape = [plan.n_rows] if name in ("lengths", "exact") else [plan.n_rows, n_places]
        output: dict[str, Any] = {"name": name, "shape": shape, "datatype": OUTPUTS[name]}
        if is_binary:
            binaries.append(part)
            output["parameters"] = {"binary_data_size": len(part)}
        elif name == "labels":
            output["data"] = binary_texts(part, plan.n_rows * n_places, name)
        else:
            output["data"] = np.frombuffer(part, DTYPES[OUTPUTS[name]])
        outputs.append(output)
    json = orjson.dumps(outputs, option=orjson.OPT_SERIALIZE_NUMPY)
    return json[1:-1], b"".join(binaries)


def pack_predictions(names: NameTable, plan: InferPlan, predictions: Predictions) -> list[bytes]:
    """Return each requested output as binary data, in the format that kernels write too.

    A row has top_r places; those without a label have an empty name, -1 and 0.
    """
    lengths = np.diff(predictions.ptr)
    has_label = np.arange(plan.options.top_r) < lengths[:, None]
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
    if "labels" in plan.outputs:
        packed["labels"] = b"".join(
            packed_text(_name_of(names, label)) for label in labels.ravel().tolist()
        )
    return [packed[name] for name in plan.outputs]


def _name_of(names: NameTable, label: int) -> bytes:
    """Return a label's name as UTF-8; an empty name for -1."""
    if label < 0:
        return b""
    return names.utf8[names.offsets[label] : names.offsets[label + 1]].tobytes()
