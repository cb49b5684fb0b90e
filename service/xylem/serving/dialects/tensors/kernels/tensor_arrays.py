"""Read tensors of a request, which are binary data, into rows of a model."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xylem.base import RowArrays
from xylem.engine import BodyTexts, finish_rows
from xylem.serving.dialects.predict.kernels.request_bodies import TEXTS, BodyQuery
from xylem.serving.dialects.tensors.kernels.tensors import (
    BEAM_WIDTH,
    FORM_SIZE,
    IS_EXACT,
    N_BYTES,
    N_OUTPUTS,
    N_ROWS,
    OUTPUT,
    TEXT,
    THRESHOLD,
    TOP_R,
    copy_rows,
    copy_texts,
)
from xylem_store import I64, U8, Handle, kernel, struct_at


class TensorLayout(NamedTuple):
    """Where tensors lie in binary data.

    n_values    the number of values of all rows; 0 for texts
    n_bytes     the number of bytes of all tensors
    indptr, indices, values, text   where each tensor begins, -1 for one that is not there
    """

    n_rows: int
    n_values: int
    n_bytes: int
    indptr: int = -1
    indices: int = -1
    values: int = -1
    text: int = -1


def form_of(layout: TensorLayout, query: BodyQuery, outputs: Sequence[int]) -> I64:
    """Return the form of a request (`dialects.tensors.kernels.tensors`), int64[FORM_SIZE].

    query     how to predict; its numbers of rows and values are ignored
    outputs   the outputs of the answer: 0 to 4 for labels, label_ids, scores, lengths, exact
    """
    form = np.zeros(FORM_SIZE, np.int64)
    form[: len(layout)] = layout  # its fields stand in the order of the form's first places
    form[TOP_R] = query.top_r
    form[BEAM_WIDTH] = query.beam_width
    form[THRESHOLD] = query.threshold
    form[IS_EXACT] = query.is_exact
    form[N_OUTPUTS] = len(outputs)
    form[OUTPUT : OUTPUT + len(outputs)] = outputs
    return form


@kernel
def read_arrays(
    data: U8,
    start: int,
    constants: tuple[int, int, int, int],
    rows_out: RowArrays,
    form: I64,
    texts_at: Handle,
) -> tuple[int, int, int, int, int, int]:
    """Read the tensors of a form into rows that are sorted, summed and normalised.

    data        uint8[..]  two bytes longer than the tensors need
    start       where the tensors begin
    constants   features of the model, code of the norm, and two that only `read_body` needs
    rows_out    indptr, indices, values, which bound the rows
    form        int64[FORM_SIZE] (`dialects.tensors.kernels.tensors`)
    texts_at    the handle of BodyTexts, into which instances are read if they are texts

    Returns the fields of a BodyQuery; all are 0 if the tensors are not right.
    """
    n_features, norm, _, _ = constants
    if start + form[N_BYTES] != len(data) - 2:
        return 0, 0, 0, 0, 0, 0
    if form[TEXT] >= 0:
        n_values = TEXTS
        n_rows = form[N_ROWS]
        is_right = copy_texts(data, start, form, struct_at(BodyTexts, texts_at))
    else:
        indptr, indices, values = rows_out
        n_rows = copy_rows(data, start, n_features, form, rows_out)
        n_values = finish_rows(norm, indptr[: n_rows + 1], indices, values)
        is_right = n_rows > 0 and n_values >= 0
    if not is_right:
        return 0, 0, 0, 0, 0, 0
    return n_rows, n_values, form[TOP_R], form[BEAM_WIDTH], form[THRESHOLD], form[IS_EXACT]
