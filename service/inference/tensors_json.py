"""Answers -> tensors of the Open Inference Protocol, as JSON and as binary data behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.names import NameTable
from service.inference.prediction_json import Spans
from service.kernels.text.tensors import (
    BINARY_END,
    FIRST_OUTPUT,
    FORM_SIZE,
    JSON_END,
    N_OUTPUTS,
    PLACES,
    write_tensors,
)
from service.kernels.text.tensors import OUTPUTS as OUTPUTS

_CODES = {name: code for code, name in enumerate(OUTPUTS)}
_BYTES_FIRST, _BYTES_A_PLACE = 2048, 128
"""Room made at first, and for a place; labels with long names are written again with more."""


class Tensors(NamedTuple):
    """The outputs of an answer: their JSON, commas between, and the binary data."""

    json: bytes
    binary: bytes


def form_of(places: int, outputs: Mapping[str, bool]) -> NDArray[np.int64]:
    """Return what `write_tensors` takes: places of a row, and which outputs; each: whether as binary data."""
    form = np.zeros(FORM_SIZE, np.int64)
    form[PLACES], form[N_OUTPUTS] = places, len(outputs)
    for k, (name, is_binary) in enumerate(outputs.items(), FIRST_OUTPUT):
        form[k] = 2 * _CODES[name] + is_binary
    return form


def tensors_json(names: NameTable, form: NDArray[np.int64], spans: Spans) -> Tensors:
    """Return the outputs that a form asks for, a row for each of `spans`. The form is written to."""
    room = tensors_room(len(spans.starts) * int(form[PLACES]))
    while True:
        text = np.empty(room, np.uint8)
        if write_tensors(spans[:], (names.offsets, names.utf8), form, text):
            return tensors_of(text.data, form)
        room *= 4


def tensors_room(n_places: int) -> int:
    """Return the bytes that so many places of all rows are likely to need."""
    return _BYTES_FIRST + _BYTES_A_PLACE * n_places


def tensors_of(text: memoryview, form: NDArray[np.int64]) -> Tensors:
    """Return the outputs that were written to a text."""
    middle, end = form.item(JSON_END), form.item(BINARY_END)
    return Tensors(bytes(text[:middle]), bytes(text[middle:end]))
