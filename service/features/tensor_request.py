"""Bodies of the Open Inference Protocol with compressed sparse rows, in JSON or as binary data behind it.

As `service.features.sparse_request` does with bodies of predict: one call of a kernel makes rows of the model
of such a body, and what it does not take is left to the models of requests, which say what is wrong with it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.compiled.decorators import inlined, kernel
from service.features.featurizer import Featurizer
from service.features.sparse_request import (
    COUNT_LIMIT,
    BodyForms,
    SparseBodies,
    SparseQuery,
    data_of,
    finish_rows,
    read_option,
    read_truth,
)
from service.kernels.search.query import NO_THRESHOLD
from service.kernels.text.decimals import parse_id
from service.kernels.text.sparse_json import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    after,
    after_key,
    read_ids,
    read_numbers,
    skip_blanks,
)
from service.kernels.text.tensors import (
    FIRST_OUTPUT,
    FORM_SIZE,
    IDENTITY,
    IDENTITY_END,
    N_ALL,
    N_OUTPUTS,
    OUTPUTS,
    PLACES,
)
from service.rows import SparseRows

Words = tuple[NDArray[np.uint8], NDArray[np.int64]]
Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def _words(*words: str) -> Words:
    """Return JSON strings as one text, and where each of them begins and ends."""
    texts = [f'"{word}"'.encode() for word in words]
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])


_MEMBERS, _MEMBERS_PTR = _words("id", "inputs", "parameters", "outputs")
_ID, _INPUTS, _PARAMETERS, _OUTPUTS = range(4)
_FIELDS, _FIELDS_PTR = _words("name", "shape", "datatype", "data", "parameters")
_NAME, _SHAPE, _DATATYPE, _DATA, _OWN_PARAMETERS = range(5)
_TENSORS, _TENSORS_PTR = _words("indptr", "indices", "values")
_INDPTR, _INDICES, _VALUES = range(3)
_TYPES, _TYPES_PTR = _words("INT64", "INT32", "FP32")
_NAMES, _NAMES_PTR = _words(*OUTPUTS)
_BINARY_SIZE, _BINARY, _ALL_BINARY = (
    np.frombuffer(f'"{key}"'.encode(), np.uint8)
    for key in ("binary_data_size", "binary_data", "binary_data_output")
)
_QUOTE, _BACKSLASH, _ZERO, _B, _I, _TILDE, _BLANK = 34, 92, 48, 98, 105, 126, 32
_NOT_SAID = -1


class TensorBodies(SparseBodies):
    """Reads bodies of tensors too, into the same buffers: one thread at a time.

    form  int64[FORM_SIZE]: what the answer to the last of them has
    """

    def __init__(self, forms: BodyForms, featurizer: Featurizer) -> None:
        super().__init__(forms, featurizer)
        self.form = np.zeros(FORM_SIZE, np.int64)

    def tensor_rows(
        self, message: bytes, span: tuple[int, int]
    ) -> tuple[SparseRows, SparseQuery, float] | None:
        """Return what `read_rows` does of a body whose JSON is message[span[0] : span[1]].

        What is behind that are its binary data.
        """
        out = self.arrays[:3], self.arrays[3], self.form
        return self.rows_read(SparseQuery(*read_tensors(data_of(message), span, self.constants, *out)))


@kernel
def read_tensors(
    data: NDArray[np.uint8],
    span: tuple[int, int],
    constants: tuple[int, int, int, int],
    rows_out: Rows,
    number_out: NDArray[np.float32],
    form_out: NDArray[np.int64],
) -> tuple[int, int, int, int, int, int]:
    """Read a body into rows that are sorted, summed and normalised; return the fields of SparseQuery.

    data       uint8[..]   the body's end is two bytes before its end, as `data_of` makes it
    span       where the JSON of the body begins and ends; binary data are between that and the body's end
    constants  features of the model, code of the norm, top_r and beam_width if the body does not say them
    rows_out   indptr, indices, values, which bound the rows; number_out as `read_body` has it
    form_out   int64[FORM_SIZE]  what the answer has (`service.kernels.text.tensors`)

    Takes a part of what the protocol allows: the three tensors, each with its name before its data; an id of
    printable ASCII without escapes; options as `read_body` takes them. Work is bounded by the body's length.
    """
    start, end = span
    n_features, norm, top_r, beam_width = constants
    indptr, indices, values = rows_out
    tensors = np.full((3, 2), np.int64(_NOT_SAID))
    form_out[IDENTITY] = form_out[IDENTITY_END] = form_out[N_OUTPUTS] = 0
    options = top_r, beam_width, NO_THRESHOLD, 0
    i, seen, n_binary, is_binary, more = after(data, start, OPEN), 0, 0, 0, True
    while more:
        key, i = _key_at(data, i, _MEMBERS, _MEMBERS_PTR)
        if key < 0 or seen >> key & 1:
            i = len(data) - 1
        elif key == _ID:
            i = _read_identity(data, i, form_out)
        elif key == _INPUTS:
            i, n_binary = _read_inputs(data, i, n_features, rows_out, tensors)
        elif key == _PARAMETERS:
            i, options, is_binary = _read_parameters(data, i, options, number_out)
        else:
            i = _read_outputs(data, i, form_out)
        seen |= 1 << key if key >= 0 else 0
        i, more = _after_comma(data, i)
    i = after(data, i, CLOSE)
    if i < end:
        i = skip_blanks(data, i)
    begins, indptr[0] = indptr[0], 0  # where the rows of each body begin, whatever this one said
    if i != end or not seen >> _INPUTS & 1 or end + n_binary != len(data) - 2:
        return 0, 0, 0, 0, 0, 0
    if tensors[_INDPTR, 1] >= 0:
        begins = _unpack(data, end + tensors[_INDPTR, 1], 8)
    n_rows = _copy_rows(data, end, n_features, tensors, rows_out)
    if begins != 0 or n_rows == 0:
        return 0, 0, 0, 0, 0, 0
    n_values = finish_rows(norm, indptr[: n_rows + 1], indices, values)
    if n_values < 0:
        return 0, 0, 0, 0, 0, 0
    _settle_form(options[0], is_binary, form_out)
    return n_rows, n_values, options[0], options[1], options[2], options[3]


@inlined
def _settle_form(top_r: int, is_binary: int, form: NDArray[np.int64]) -> None:
    """Say how many places a row has, and of outputs that did not say it how they come; none named are all."""
    form[PLACES] = top_r
    if form[N_OUTPUTS] == 0:
        form[N_OUTPUTS] = N_ALL
        for k in range(N_ALL):
            form[FIRST_OUTPUT + k] = 2 * k + is_binary
        return
    for k in range(form[N_OUTPUTS]):
        output, said = form[FIRST_OUTPUT + k] // 3, form[FIRST_OUTPUT + k] % 3
        form[FIRST_OUTPUT + k] = 2 * output + (is_binary if said == 2 else said)


@inlined
def _word_at(
    data: NDArray[np.uint8], i: int, words: NDArray[np.uint8], ptr: NDArray[np.int64]
) -> tuple[int, int]:
    """Return (which of the words stands here, the place after it); -1 and the last place: none."""
    i = skip_blanks(data, i)
    for word in range(len(ptr) - 1):
        at, k = i, ptr[word]
        while k < ptr[word + 1] and data[at] == words[k]:
            at += 1
            k += 1
        if k == ptr[word + 1]:
            return word, at
    return -1, len(data) - 1


@inlined
def _key_at(
    data: NDArray[np.uint8], i: int, words: NDArray[np.uint8], ptr: NDArray[np.int64]
) -> tuple[int, int]:
    """Return what `_word_at` does, the place being that after the colon."""
    word, i = _word_at(data, i, words, ptr)
    return word, after(data, i, COLON)


@inlined
def _after_comma(data: NDArray[np.uint8], i: int) -> tuple[int, bool]:
    """Return the place after blanks and a comma, and True; without a comma that after blanks, and False."""
    i = skip_blanks(data, i)
    return (i + 1, True) if data[i] == COMMA else (i, False)


@inlined
def _read_identity(data: NDArray[np.uint8], i: int, form: NDArray[np.int64]) -> int:
    """Read a string of printable ASCII without escapes; return the place after it."""
    i = after(data, i, _QUOTE)
    form[IDENTITY] = i
    while _BLANK <= data[i] <= _TILDE and data[i] != _QUOTE and data[i] != _BACKSLASH:
        i += 1
    form[IDENTITY_END] = i
    return i + 1 if data[i] == _QUOTE else len(data) - 1


@inlined
def _read_parameters(
    data: NDArray[np.uint8], i: int, options: tuple[int, int, int, int], number_out: NDArray[np.float32]
) -> tuple[int, tuple[int, int, int, int], int]:
    """Read the object of parameters; return (the place after it, options, whether outputs are binary)."""
    is_binary, more = 0, True
    i = skip_blanks(data, after(data, i, OPEN))
    if data[i] == CLOSE:
        return i + 1, options, is_binary
    while more:
        i = skip_blanks(data, i)
        key_end = after_key(data, i, _ALL_BINARY)
        if key_end < len(data) - 1:
            i, is_binary = read_truth(data, key_end)
        else:
            i, options = read_option(data, i, options, number_out)
        i, more = _after_comma(data, i)
    return after(data, i, CLOSE), options, is_binary


@inlined
def _read_outputs(data: NDArray[np.uint8], i: int, form: NDArray[np.int64]) -> int:
    """Read the list of outputs; return the place after it. Each becomes 3 * its place in OUTPUTS + 0, 1 or 2.

    2: it does not say whether it comes as binary data.
    """
    i = skip_blanks(data, after(data, i, OPEN_LIST))
    if data[i] == CLOSE_LIST:
        return i + 1
    n, named, more = 0, 0, True
    while more:
        output, said, i = _read_output(data, i)
        if output < 0 or named >> output & 1:
            return len(data) - 1
        named |= 1 << output
        form[FIRST_OUTPUT + n] = 3 * output + said
        n += 1
        i, more = _after_comma(data, i)
    form[N_OUTPUTS] = n
    return after(data, i, CLOSE_LIST)


@inlined
def _read_output(data: NDArray[np.uint8], i: int) -> tuple[int, int, int]:
    """Read an output that is asked for; return (which, whether as binary data, the place after it)."""
    output, said, more = -1, 2, True
    i = after(data, i, OPEN)
    while more:
        key, i = _key_at(data, i, _FIELDS, _FIELDS_PTR)
        if key == _NAME and output < 0:
            output, i = _word_at(data, i, _NAMES, _NAMES_PTR)
        elif key == _OWN_PARAMETERS and said == 2:
            i = skip_blanks(data, after(data, i, OPEN))
            if data[i] != CLOSE:
                i, said = read_truth(data, after_key(data, i, _BINARY))
            i = after(data, i, CLOSE)
        else:
            i = len(data) - 1
        i, more = _after_comma(data, i)
    return output, said, after(data, i, CLOSE)


@inlined
def _read_inputs(
    data: NDArray[np.uint8], i: int, n_features: int, rows: Rows, tensors: NDArray[np.int64]
) -> tuple[int, int]:
    """Read the list of the three tensors; return (the place after it, bytes of their binary data)."""
    i, n_binary = after(data, i, OPEN_LIST), 0
    for k in range(3):
        i, n_binary = _read_tensor(data, i, n_binary, n_features, rows, tensors)
        i = after(data, i, CLOSE_LIST if k == 2 else COMMA)
    return i, n_binary


@inlined
def _read_tensor(
    data: NDArray[np.uint8],
    i: int,
    n_binary: int,
    n_features: int,
    rows: Rows,
    tensors: NDArray[np.int64],
) -> tuple[int, int]:
    """Read a tensor; return (the place after it, bytes of binary data of all so far).

    tensors  int64[3, 2]  of each: elements, and where its data begin among the binary data, -1: in JSON
    """
    i, more = after(data, i, OPEN), True
    tensor, datatype, n, n_data, n_bytes = _NOT_SAID, _NOT_SAID, _NOT_SAID, _NOT_SAID, _NOT_SAID
    while more:
        key, i = _key_at(data, i, _FIELDS, _FIELDS_PTR)
        if key == _NAME and tensor < 0:
            tensor, i = _word_at(data, i, _TENSORS, _TENSORS_PTR)
        elif key == _SHAPE and n < 0:
            i, n = _read_size(data, after(data, i, OPEN_LIST))
            i = after(data, i, CLOSE_LIST)
        elif key == _DATATYPE and datatype < 0:
            datatype, i = _word_at(data, i, _TYPES, _TYPES_PTR)
        elif key == _DATA and tensor >= 0 and n_data < 0:
            i, n_data = _read_data(data, i, tensor, n_features, rows)
        elif key == _OWN_PARAMETERS and n_bytes < 0:
            i = skip_blanks(data, after(data, i, OPEN))
            if data[i] != CLOSE:
                i, n_bytes = _read_size(data, after(data, after_key(data, i, _BINARY_SIZE), COLON))
            i = after(data, i, CLOSE)
        else:
            i = len(data) - 1
        i, more = _after_comma(data, i)
    i = after(data, i, CLOSE)
    if i == len(data) - 1 or tensor < 0 or tensors[tensor, 0] >= 0 or datatype != tensor or n < 0:
        return len(data) - 1, n_binary
    is_binary = n_data < 0
    if (is_binary and n_bytes != n * (8 if tensor == _INDPTR else 4)) or (
        not is_binary and (n_data != n or n_bytes >= 0)
    ):
        return len(data) - 1, n_binary
    tensors[tensor, 0] = n
    if is_binary:
        tensors[tensor, 1] = n_binary
        n_binary += n_bytes
    return i, n_binary


@inlined
def _read_data(data: NDArray[np.uint8], i: int, tensor: int, n_features: int, rows: Rows) -> tuple[int, int]:
    """Read the elements of a tensor to its array; return (the place after them, how many)."""
    indptr, indices, values = rows
    i = after(data, i, OPEN_LIST)
    if tensor == _INDPTR:
        return read_ids(data, i, len(indices) + 1, indptr, 0)
    if tensor == _INDICES:
        return read_ids(data, i, n_features, indices, 0)
    return read_numbers(data, i, values, 0)


@inlined
def _read_size(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Read an integer of at least 0; return (the place after it, the integer)."""
    i = skip_blanks(data, i)
    number, end = parse_id(data, i, COUNT_LIMIT)
    if end == i or number >= COUNT_LIMIT or (data[i] == _ZERO and end > i + 1):
        return len(data) - 1, _NOT_SAID
    return end, number


@inlined
def _unpack(data: NDArray[np.uint8], at: int, n_bytes: int) -> int:
    """Return the integer of so many bytes at data[at], the least byte first; negative only with 8."""
    number = np.int64(0)
    for k in range(n_bytes):
        number |= np.int64(data[at + k]) << (8 * k)
    return int(number)


@inlined
def _copy_rows(
    data: NDArray[np.uint8], end: int, n_features: int, tensors: NDArray[np.int64], rows: Rows
) -> int:
    """Copy the binary data, which begin at data[end]; return how many rows they and the others make, 0: none.

    The ends of the rows must ascend to the number of indices, and there must be as many values.
    """
    indptr, indices, values = rows
    n_rows, n = tensors[_INDPTR, 0] - 1, tensors[_INDICES, 0]
    if n_rows < 1 or n_rows >= len(indptr) or n > len(indices) or tensors[_VALUES, 0] != n:
        return 0
    is_right = True
    at = end + tensors[_INDPTR, 1]
    for row in range(1, n_rows + 1):
        if tensors[_INDPTR, 1] >= 0:
            indptr[row] = _unpack(data, at + 8 * row, 8)
        is_right &= indptr[row] >= indptr[row - 1]
    if not is_right or indptr[n_rows] != n:
        return 0
    if tensors[_INDICES, 1] >= 0:
        at = end + tensors[_INDICES, 1]
        for k in range(n):
            feature = _unpack(data, at + 4 * k, 4)
            is_right &= feature < n_features
            indices[k] = feature
    if tensors[_VALUES, 1] >= 0:
        at, bits = end + tensors[_VALUES, 1], values.view(np.uint32)
        for k in range(n):
            bits[k] = _unpack(data, at + 4 * k, 4)
    return n_rows if is_right else 0
