"""Write predictions as JSON, with the names of labels and signed ids."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from xylem.engine import ALL_ALLOWED, Predictions
from xylem.serving.dialects.predict.kernels.prediction_json import TOKEN_ROOM, write_predictions
from xylem.serving.kernels.seals import Seal
from xylem_store import F32, I32, I64, U8, NameTable

# the first buffer's bytes for a label and a row; if they do not suffice, it is enlarged
_BYTES_A_LABEL = 128
_BYTES_A_ROW = 512


class Spans(NamedTuple):
    """Answers of rows: row i has labels[starts[i] : ends[i]], the best first, and their scores.

    starts, ends  int64[n]
    labels        int32[..]
    scores        float32[..]  finite and not below 0
    exact         uint8[n]: 0 or 1
    """

    starts: I64
    ends: I64
    labels: I32
    scores: F32
    exact: U8


def predictions_json(
    names: NameTable,
    thresholds: F32,
    seal: Seal,
    serial: int,
    spans: Spans,
    unlearned: U8 = ALL_ALLOWED,
) -> list[bytes]:
    """Return the JSON of a Prediction for each row, byte for byte as orjson writes it.

    thresholds  float32[K]: a token lists the labels whose score reaches their threshold; [0]: it
                lists all labels
    seal        signs the tokens
    serial      the number of the first row's token; the others follow
    unlearned   uint8[K], 1 for labels that are not learned; [0]: all are learned
    """
    n_rows = len(spans.starts)
    n_labels = len(spans.labels)
    token = np.empty(TOKEN_ROOM + 4 * n_labels, np.uint8)
    ends = np.empty(n_rows, np.int64)
    room = text_room(n_rows, n_labels)
    arguments = spans[:], thresholds, (names.offsets, names.utf8, unlearned), seal[:], serial
    while True:
        text = np.empty(room, np.uint8)
        if write_predictions(*arguments, token, text, ends):
            return cut_texts(text.data, ends)
        room *= 4


def text_room(n_rows: int, n_labels: int) -> int:
    """Return the bytes that n_rows rows with n_labels labels in all are likely to need."""
    return _BYTES_A_ROW * n_rows + _BYTES_A_LABEL * n_labels


def cut_texts(text: memoryview, ends: I64) -> list[bytes]:
    """Return the texts that follow each other in `text` and end at these places."""
    return [bytes(text[start:end]) for start, end in pairwise([0, *ends.tolist()])]


def spans_of(predictions: Predictions) -> Spans:
    """Return predictions as Spans."""
    return Spans(
        predictions.ptr[:-1],
        predictions.ptr[1:],
        predictions.labels,
        predictions.scores,
        predictions.exact,
    )
