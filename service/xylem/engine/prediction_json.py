"""Answers -> JSON: predictions, their labels by name and their ids signed; or tensors of the Open
Inference Protocol, with binary data behind them.
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
"""Room made for a label and a row at first; labels with long names are written again with more."""


class Spans(NamedTuple):
    """Answers, wherever they are: row i has labels[starts[i] :
    ends[i]], the best first, and their scores.

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

    thresholds  float32[K] that a label's score must reach to be named by its prediction's token;
                [0]: none
    seal        what signs the tokens; serial: the number of the first one, the others' follow
    unlearned   uint8[K], 1 of labels that are not learned; [0]: all are
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
            return cut(text.data, ends)
        room *= 4


def text_room(n_rows: int, n_labels: int) -> int:
    """Return the bytes that so many rows and labels of all of them are likely to need."""
    return _BYTES_A_ROW * n_rows + _BYTES_A_LABEL * n_labels


def cut(text: memoryview, ends: I64) -> list[bytes]:
    """Return the texts that end at these places."""
    return [bytes(text[start:end]) for start, end in pairwise([0, *ends.tolist()])]


def spans_of(predictions: Predictions) -> Spans:
    """Return where the answers are."""
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
"""Room made at first, and for a place; labels with long names are written again with more."""


def form_of(places: int, outputs: Mapping[str, bool]) -> I64:
    """Return what `write_tensors` takes: places of a row, and which
    outputs; each: whether as binary data.
    """
    form = np.zeros(FORM_SIZE, np.int64)
    form[PLACES], form[N_OUTPUTS] = places, len(outputs)
    for k, (name, is_binary) in enumerate(outputs.items(), FIRST_OUTPUT):
        form[k] = 2 * _CODES[name] + is_binary
    return form


def tensors_json(names: NameTable, form: I64, spans: Spans) -> tuple[bytes, bytes]:
    """Return the outputs that a form asks for, a row for each of `spans`. The form is written to.

    (their JSON, commas between; their binary data)
    """
    room = _BYTES_FIRST + _BYTES_A_PLACE * len(spans.starts) * int(form[PLACES])
    while True:
        text = np.empty(room, np.uint8)
        if write_tensors(spans[:], (names.offsets, names.utf8), form, text):
            return tensors_of(text.data, form)
        room *= 4


def tensors_of(text: memoryview, form: I64) -> tuple[bytes, bytes]:
    """Return the outputs that were written to a text."""
    middle = form.item(JSON_END)
    end = form.item(BINARY_END)
    return bytes(text[:middle]), bytes(text[middle:end])
