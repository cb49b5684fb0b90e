"""Predicted labels and their scores as JSON."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable
from service.kernels.label_json import write_labels

_BYTES_A_LABEL = 128
"""Room made for a label at first; labels with long names are written again with more."""


def labels_json(
    names: NameTable, ptr: NDArray[np.int64], labels: NDArray[np.int32], scores: NDArray[np.float32]
) -> list[bytes]:
    """Return a JSON list for each row, `[{"label":"a","id":3,"score":0.5},...]`, as orjson writes it.

    Parameters: ptr int64[n + 1]; labels int32[..] and scores float32[..], finite and not below 0, as in
    Predictions. Any number of threads may call it.
    """
    ends = np.empty(len(ptr) - 1, np.int64)
    room = _BYTES_A_LABEL * (len(labels) + len(ptr))
    while True:
        out = np.empty(room, np.uint8)
        if write_labels(ptr, labels, scores.view(np.uint32), names.offsets, names.utf8, out, ends):
            break
        room *= 4
    if len(ends) == 1:
        return [out[: ends.item(0)].tobytes()]
    text = out.data
    return [bytes(text[start:end]) for start, end in pairwise([0, *ends.tolist()])]
