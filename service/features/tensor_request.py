"""Bodies of the Open Inference Protocol with texts or sparse rows, in JSON or as binary data behind it.

msgspec reads the envelope, which is declared here; a kernel reads the data of the tensors and makes rows of
the model of them, as `service.features.sparse_request` does with bodies of predict. What these do not take is
left to the models of requests, which say what is wrong with it.
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from numpy.typing import NDArray

from service.features.featurizer import Featurizer
from service.features.sparse_request import COUNT_LIMIT, BodyForms, SparseBodies, SparseQuery, data_of
from service.features.tensor_data import (
    COUNT,
    INDICES,
    INDPTR,
    LAYOUT_SIZE,
    N_TENSORS,
    TEXT,
    VALUES,
    read_tensors,
)
from service.kernels.search.query import NO_THRESHOLD, NUMBER, TUNED
from service.kernels.text.tensors import FORM_SIZE, OUTPUTS, form_of
from service.rows import SparseRows

_FORMS_KEPT = 256
_Count = Annotated[int, Meta(ge=1, lt=COUNT_LIMIT)]
_Size = Annotated[int, Meta(ge=0, lt=COUNT_LIMIT)]
_NO_DATA = Raw(b"")
_PLACES = {
    ("indptr", "INT64"): (INDPTR, 8),
    ("indices", "INT32"): (INDICES, 4),
    ("values", "FP32"): (VALUES, 4),
    ("text", "BYTES"): (TEXT, 0),
}
"""The place of each tensor in a layout, and bytes of an element in binary; 0: they differ."""

_ROWS = {INDPTR, INDICES, VALUES}


class _TensorParameters(Struct, forbid_unknown_fields=True):
    binary_data_size: _Size | None = None


class _Tensor(Struct, forbid_unknown_fields=True):
    name: str
    datatype: str
    shape: list[_Size]
    data: Raw = _NO_DATA
    parameters: _TensorParameters | UnsetType = UNSET


class _OutputParameters(Struct, forbid_unknown_fields=True):
    binary_data: bool | None = None


class _Output(Struct, forbid_unknown_fields=True):
    name: str
    parameters: _OutputParameters | UnsetType = UNSET


class _Parameters(Struct, forbid_unknown_fields=True):
    top_r: _Count | None = None
    beam_width: _Count | None = None
    threshold: float | Literal["tuned"] | None = None
    exact: bool = False
    binary_data_output: bool = False


class _Request(Struct, forbid_unknown_fields=True):
    inputs: list[_Tensor]
    id: str | None = None
    parameters: _Parameters | UnsetType = UNSET
    outputs: list[_Output] | None = None


_read_request = msgspec.json.Decoder(_Request).decode
_NO_PARAMETERS = _Parameters()


class TensorHead(NamedTuple):
    """What a body says besides its tensors' data: where these are is in the layout.

    data      the data of the tensors, one behind the other, as kernels take a message
    asked     what is asked for the rows, which are yet to be read
    identity  what the answer repeats
    """

    data: NDArray[np.uint8]
    asked: SparseQuery
    identity: str | None


class TensorBodies(SparseBodies):
    """Reads bodies of tensors too, into the same buffers: one thread at a time.

    form    int64[FORM_SIZE]: what the answer to the last of them has
    layout  int64[N_TENSORS, LAYOUT_SIZE]: where its tensors are (`service.features.tensor_data`)
    """

    def __init__(self, forms: BodyForms, featurizer: Featurizer) -> None:
        super().__init__(forms, featurizer)
        self.form = np.zeros(FORM_SIZE, np.int64)
        self.layout = np.zeros((N_TENSORS, LAYOUT_SIZE), np.int64)
        self.asked = np.zeros(len(SparseQuery._fields), np.int64)

    def tensor_rows(
        self, message: bytes, span: tuple[int, int]
    ) -> tuple[SparseRows, SparseQuery, float] | None:
        """Return what `read_rows` does of a body that `read_head` reads."""
        head = self.read_head(message, span)
        return None if head is None else self.rows_read(self.read_data(head))

    def read_head(self, message: bytes, span: tuple[int, int]) -> TensorHead | None:
        """Return what a body says whose JSON is message[span[0] : span[1]], its binary data behind that.

        None: it is not for kernels. The form and the layout, and the number as threshold, are written.
        """
        body = memoryview(message)
        try:
            request = _read_request(body[span[0] : span[1]])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        parameters = _NO_PARAMETERS if request.parameters is UNSET else request.parameters
        asked = self._asked_by(parameters)
        data = self._lay_out(request.inputs, body[span[1] :])
        form = _form_of(asked.top_r, parameters.binary_data_output, _outputs_of(request)) if asked else None
        if asked is None or data is None or form is None:
            return None
        self.form[:] = form
        return TensorHead(data, asked, request.id)

    def read_data(self, head: TensorHead) -> SparseQuery:
        """Return what `read` does of a body whose head has been read."""
        self.asked[:] = head.asked
        out = self.arrays[:3], self.asked, self.texts_at
        return SparseQuery(*read_tensors(head.data, self.layout, self.constants, *out))

    def _asked_by(self, parameters: _Parameters) -> SparseQuery | None:
        """Return what is asked for rows; None: their threshold is of all labels, or of none."""
        _, _, top_r, beam_width = self.constants
        kind, threshold = NO_THRESHOLD, parameters.threshold
        if threshold == "tuned":
            kind = TUNED
        elif threshold is not None:
            kind, self.arrays[3][0] = NUMBER, threshold
            if not 0 < self.arrays[3].item(0) < 1:
                return None
        top_r, beam_width = parameters.top_r or top_r, parameters.beam_width or beam_width
        return SparseQuery(0, 0, top_r, beam_width, kind, int(parameters.exact))

    def _lay_out(self, tensors: list[_Tensor], binary: memoryview) -> NDArray[np.uint8] | None:
        """Return the data of the tensors, one behind the other; where each is goes to the layout.

        None: they are not one of texts or the three of rows, or one is not of its type, shape and size.
        """
        parts: list[Raw | memoryview | bytes] = []
        found, at, behind = set(), 0, 0
        for tensor in tensors:
            place, width = _PLACES.get((tensor.name, tensor.datatype), (-1, 0))
            n, *more = tensor.shape or (-1,)
            is_shaped = n >= 0 and (not more or (place == TEXT and more == [1]))
            if place < 0 or place in found or not is_shaped:
                return None
            found.add(place)
            part: Raw | memoryview = tensor.data
            size = None if tensor.parameters is UNSET else tensor.parameters.binary_data_size
            if (size is None) == (part is _NO_DATA):
                return None
            if size is not None:
                if place != TEXT and size != n * width:
                    return None
                part, behind = binary[behind : behind + size], behind + size
            n_bytes = len(memoryview(part))
            self.layout[place] = n, at, at + n_bytes, size is not None
            at += n_bytes
            parts.append(part)
        if behind != len(binary) or (found != _ROWS and found != {TEXT}):
            return None
        self.layout[TEXT, COUNT] = -1 if found == _ROWS else self.layout[TEXT, COUNT]
        return data_of(b"".join(parts))


def _outputs_of(request: _Request) -> tuple[tuple[str, bool | None], ...]:
    """Return the outputs that are asked for; each: whether as binary data, None: it does not say it."""
    return tuple(
        (output.name, None if output.parameters is UNSET else output.parameters.binary_data)
        for output in request.outputs or ()
    )


@functools.lru_cache(_FORMS_KEPT)
def _form_of(
    places: int, is_binary: bool, outputs: tuple[tuple[str, bool | None], ...]
) -> NDArray[np.int64] | None:
    """Return the form of these outputs, of all if none are named; None: one is not known, or stands twice."""
    named = {name: is_binary if own is None else own for name, own in outputs}
    if len(named) != len(outputs) or not OUTPUTS.keys() >= named.keys():
        return None
    return form_of(places, named or dict.fromkeys(OUTPUTS, is_binary))
