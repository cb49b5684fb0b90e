"""Predictions -> JSON: their labels by name, their ids signed."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable
from service.inference.answering import Predictions
from service.kernels.text.prediction_json import TOKEN_ROOM, write_predictions
from service.kernels.text.prediction_json import Seal as Seal

_BYTES_A_LABEL, _BYTES_A_ROW = 128, 512
"""Room made for a label and a row at first; labels with long names are written again with more."""


class Spans(NamedTuple):
    """Answers, wherever they are: row i has labels[starts[i] : ends[i]], the best first, and their scores.

    starts, ends  int64[n]
    labels        int32[..]
    scores        float32[..]  finite and not below 0
    exact         uint8[n]: 0 or 1
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    exact: NDArray[np.uint8]


def predictions_json(
    names: NameTable, thresholds: NDArray[np.float32], seal: Seal, serial: int, spans: Spans
) -> list[bytes]:
    """Return a Prediction of `service.serving.wire` for each row, byte for byte as orjson writes it.

    thresholds  float32[K] that a label's score must reach to be named by its prediction's token; [0]: none
    seal        what signs the tokens; serial: the number of the first one, the others' follow
    """
    n_rows, n_labels = len(spans.starts), len(spans.labels)
    token, ends = np.empty(TOKEN_ROOM + 4 * n_labels, np.uint8), np.empty(n_rows, np.int64)
    room = text_room(n_rows, n_labels)
    what = spans[:], thresholds, (names.offsets, names.utf8), seal[:], serial
    while True:
        text = np.empty(room, np.uint8)
        if write_predictions(*what, token, text, ends):
            return cut(text.data, ends)
        room *= 4


def text_room(n_rows: int, n_labels: int) -> int:
    """Return the bytes that so many rows and labels of all of them are likely to need."""
    return _BYTES_A_ROW * n_rows + _BYTES_A_LABEL * n_labels


def cut(text: memoryview, ends: NDArray[np.int64]) -> list[bytes]:
    """Return the texts that end at these places."""
    return [bytes(text[start:end]) for start, end in pairwise([0, *ends.tolist()])]


def spans_of(found: Predictions) -> Spans:
    """Return where the answers are."""
    return Spans(found.ptr[:-1], found.ptr[1:], found.labels, found.scores, found.exact)
