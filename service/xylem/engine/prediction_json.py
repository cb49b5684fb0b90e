"""Write answers as JSON: predictions with the names of labels and signed ids; or tensors of the
Open Inference Protocol, followed by binary data.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from xylem.engine.answering import Predictions
from xylem.engine.kernels.text.prediction_json import TOKEN_ROOM, write_predictions
from xylem.engine.kernels.text.prediction_json import Seal as Seal
from xylem.engine.kernels.text.tensors import (
    BINARY_END,
    FIRST_OUTPUT,
    FORM_SIZE,
    JSON_END,
    N_OUTPUTS,
    PLACES,
    write_tensors,
)
from xylem.engine.kernels.text.tensors import OUTPUTS as OUTPUTS
from xylem.engine.options import ALL_ALLOWED
from xylem_store import F32, I32, I64, U8, NameTable

_BYTES_A_LABEL = 128
_BYTES_A_ROW = 512
"""The first buffer's bytes for a label and a row; if they do not suffice, it is enlarged."""


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
    """Return a Prediction of `xylem.serving.lines` for each row, byte for byte as orjson writes it.

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


_CODES = {name: code for code, name in enumerate(OUTPUTS)}
_BYTES_FIRST = 2048
_BYTES_A_PLACE = 128
"""The first buffer's bytes, and those for a place; if they do not suffice, it is enlarged."""


def form_of(places: int, outputs: Mapping[str, bool]) -> I64:
    """Return the form of an answer of tensors, as `write_tensors` takes it.

    places   places for labels of a row
    outputs  the names of the outputs, and whether each is sent as binary data
    """
    form = np.zeros(FORM_SIZE, np.int64)
    form[PLACES], form[N_OUTPUTS] = places, len(outputs)
    for k, (name, is_binary) in enumerate(outputs.items(), FIRST_OUTPUT):
        form[k] = 2 * _CODES[name] + is_binary
    return form


def tensors_json(names: NameTable, form: I64, spans: Spans) -> tuple[bytes, bytes]:
    """Return the outputs that a form asks for, with a row for each of `spans`.

    The result is (JSON of the outputs, separated by commas; their binary data). The form is
    written to.
    """
    room = _BYTES_FIRST + _BYTES_A_PLACE * len(spans.starts) * int(form[PLACES])
    while True:
        text = np.empty(room, np.uint8)
        if write_tensors(spans[:], (names.offsets, names.utf8), form, text):
            return tensors_of(text.data, form)
        room *= 4


def tensors_of(text: memoryview, form: I64) -> tuple[bytes, bytes]:
    """Return (JSON, binary data) of the outputs that a kernel wrote to `text`, as `form` says."""
    middle = form.item(JSON_END)
    end = form.item(BINARY_END)
    return bytes(text[:middle]), bytes(text[middle:end])
