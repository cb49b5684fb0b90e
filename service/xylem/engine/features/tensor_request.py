"""Bodies of the Open Inference Protocol with texts or sparse rows,
in JSON or as binary data behind it.

As `request_bodies` does with bodies of predict: one call of a kernel makes rows of the model of
such a body, and what it does not take is left to the models of requests, which say what is wrong
with it.
"""

import numpy as np

from xylem.base import RowArrays
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.request_bodies import (
    BodyForms,
    BodyQuery,
    RequestBodies,
    data_of,
    finish_rows,
    read_option,
    read_truth,
)
from xylem.engine.features.tensor_data import (
    INDPTR,
    N_TENSORS,
    NOT_SAID,
    TEXT,
    copy_rows,
    copy_texts,
    read_data,
    read_size,
    unpack,
)
from xylem.engine.kernels.search.call import NO_THRESHOLD
from xylem.engine.kernels.text.sparse_json import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    after,
    after_key,
    skip_blanks,
)
from xylem.engine.kernels.text.tensors import (
    FIRST_OUTPUT,
    FORM_SIZE,
    IDENTITY,
    IDENTITY_END,
    N_ALL,
    N_OUTPUTS,
    OUTPUTS,
    PLACES,
)
from xylem.engine.kernels.text.texts import TEXTS, BodyTexts
from xylem_store import F32, I64, U8, Handle, inlined, kernel, struct_at

Words = tuple[U8, I64]


def _words(*words: str) -> Words:
    """Return JSON strings as one text, and where each of them begins and ends."""
    texts = [f'"{word}"'.encode() for word in words]
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])


_MEMBERS, _MEMBERS_PTR = _words("id", "inputs", "parameters", "outputs")
_ID, _INPUTS, _PARAMETERS = range(3)
_FIELDS, _FIELDS_PTR = _words("name", "shape", "datatype", "data", "parameters")
_NAME, _SHAPE, _DATATYPE, _DATA, _OWN_PARAMETERS = range(5)
_TENSORS, _TENSORS_PTR = _words("indptr", "indices", "values", "text")
_TYPES, _TYPES_PTR = _words("INT64", "INT32", "FP32", "BYTES")
_NAMES, _NAMES_PTR = _words(*OUTPUTS)
_BINARY_SIZE, _BINARY, _ALL_BINARY = (
    np.frombuffer(f'"{key}"'.encode(), np.uint8)
    for key in ("binary_data_size", "binary_data", "binary_data_output")
)
_QUOTE = 34
_BACKSLASH = 92
_TILDE = 126
_BLANK = 32


class TensorBodies(RequestBodies):
    """Reads bodies of tensors too, into the same buffers: one thread at a time.

    form  int64[FORM_SIZE]: what the answer to the last of them has
    """

    def __init__(self, forms: BodyForms, featurizer: Featurizer) -> None:
        super().__init__(forms, featurizer)
        self.form = np.zeros(FORM_SIZE, np.int64)

    def read_infer(self, message: bytes, span: tuple[int, int]) -> BodyQuery:
        """Return what `read` does of a body whose JSON is message[span[0] : span[1]].

        What are behind that are its binary data.
        """
        out = self.arrays[:3], self.arrays[3], self.form, self.texts_at
        return BodyQuery(*read_tensors(data_of(message), span, self.constants, *out))


@kernel
def read_tensors(
    data: U8,
    span: tuple[int, int],
    constants: tuple[int, int, int, int],
    rows_out: RowArrays,
    number_out: F32,
    form_out: I64,
    texts_at: Handle,
) -> tuple[int, int, int, int, int, int]:
    """Read a body into rows that are sorted, summed and normalised; return the fields of BodyQuery.

    data       uint8[..]   the body's end is two bytes before its end, as `data_of` makes it
    span       where the JSON of the body begins and ends; binary data are between that and the
               body's end
    constants  features of the model, code of the norm, top_r and beam_width if the body does not
               say them
    rows_out   indptr, indices, values, which bound the rows; number_out as `read_body` has it
    form_out   int64[FORM_SIZE]  what the answer has (`xylem.engine.kernels.text.tensors`)
    texts_at   of BodyTexts, where the instances are read to if they are texts

    Takes a part of what the protocol allows: one tensor of texts, or the three of sparse rows, each
    with its name before its data; an id of printable ASCII without escapes; options as `read_body`
    takes them. Work is bounded by the body's length.
    """
    start, end = span
    n_features, norm, top_r, beam_width = constants
    indptr = rows_out[0]
    texts = struct_at(BodyTexts, texts_at)
    tensors = np.full((N_TENSORS, 2), np.int64(NOT_SAID))
    form_out[IDENTITY] = form_out[IDENTITY_END] = form_out[N_OUTPUTS] = 0
    options = top_r, beam_width, NO_THRESHOLD, 0
    i = after(data, start, OPEN)
    seen = 0
    n_binary = 0
    is_binary = 0
    more = True
    while more:
        key, i = _key_at(data, i, _MEMBERS, _MEMBERS_PTR)
        if key < 0 or seen >> key & 1:
            i = len(data) - 1
        elif key == _ID:
            i = _read_identity(data, i, form_out)
        elif key == _INPUTS:
            i, n_binary = _read_inputs(data, i, n_features, rows_out, texts, tensors)
        elif key == _PARAMETERS:
            i, options, is_binary = _read_parameters(data, i, options, number_out)
        else:
            i = _read_outputs(data, i, form_out)
        seen |= 1 << key if key >= 0 else 0
        i, more = _after_comma(data, i)
    i = after(data, i, CLOSE)
    if i < end:
        i = skip_blanks(data, i)
    begins = indptr[0]  # where the rows of each body begin, whatever this one said
    indptr[0] = 0
    if i != end or not seen >> _INPUTS & 1 or end + n_binary != len(data) - 2:
        return 0, 0, 0, 0, 0, 0
    if tensors[TEXT, 0] >= 0:
        is_right = tensors[TEXT, 1] < 0 or copy_texts(data, end, n_binary, tensors[TEXT, 0], texts)
        n_rows = tensors[TEXT, 0] if is_right else 0
        n_values = TEXTS
    else:
        n_rows, n_values = _finish_rows(data, end, (n_features, norm), begins, tensors, rows_out)
    if n_rows == 0:
        return 0, 0, 0, 0, 0, 0
    _settle_form(options[0], is_binary, form_out)
    return n_rows, n_values, options[0], options[1], options[2], options[3]


@inlined
def _finish_rows(
    data: U8, end: int, constants: tuple[int, int], begins: int, tensors: I64, rows: RowArrays
) -> tuple[int, int]:
    """Bring the rows of the three tensors into their form; return (how
    many, their values); 0, 0: not right.

    constants  features of the model, code of the norm
    begins     where the rows begin if that is said in JSON
    """
    n_features, norm = constants
    # the ends of no row: there may be no bytes to read the first of them
    if tensors[INDPTR, 0] < 2:
        return 0, 0
    if tensors[INDPTR, 1] >= 0:
        begins = unpack(data, end + tensors[INDPTR, 1], 8)
    n_rows = copy_rows(data, end, n_features, tensors, rows)
    if begins != 0 or n_rows == 0:
        return 0, 0
    n_values = finish_rows(norm, rows[0][: n_rows + 1], rows[1], rows[2])
    return (n_rows, n_values) if n_values >= 0 else (0, 0)


@inlined
def _settle_form(top_r: int, is_binary: int, form: I64) -> None:
    """Say how many places a row has, and of outputs that did not say it
    how they come; none named are all.
    """
    form[PLACES] = top_r
    if form[N_OUTPUTS] == 0:
        form[N_OUTPUTS] = N_ALL
        for k in range(N_ALL):
            form[FIRST_OUTPUT + k] = 2 * k + is_binary
        return
    for k in range(form[N_OUTPUTS]):
        output = form[FIRST_OUTPUT + k] // 3
        said = form[FIRST_OUTPUT + k] % 3
        form[FIRST_OUTPUT + k] = 2 * output + (is_binary if said == 2 else said)


@inlined
def _word_at(data: U8, i: int, words: U8, ptr: I64) -> tuple[int, int]:
    """Return (which of the words stands here, the place after it); -1 and the last place: none."""
    i = skip_blanks(data, i)
    for word in range(len(ptr) - 1):
        at = i
        k = ptr[word]
        while k < ptr[word + 1] and data[at] == words[k]:
            at += 1
            k += 1
        if k == ptr[word + 1]:
            return word, at
    return -1, len(data) - 1


@inlined
def _key_at(data: U8, i: int, words: U8, ptr: I64) -> tuple[int, int]:
    """Return what `_word_at` does, the place being that after the colon."""
    word, i = _word_at(data, i, words, ptr)
    return word, after(data, i, COLON)


@inlined
def _after_comma(data: U8, i: int) -> tuple[int, bool]:
    """Return the place after blanks and a comma, and True; without a
    comma that after blanks, and False.
    """
    i = skip_blanks(data, i)
    return (i + 1, True) if data[i] == COMMA else (i, False)


@inlined
def _read_identity(data: U8, i: int, form: I64) -> int:
    """Read a string of printable ASCII without escapes; return the place after it."""
    i = after(data, i, _QUOTE)
    form[IDENTITY] = i
    while _BLANK <= data[i] <= _TILDE and data[i] != _QUOTE and data[i] != _BACKSLASH:
        i += 1
    form[IDENTITY_END] = i
    return i + 1 if data[i] == _QUOTE else len(data) - 1


@inlined
def _read_parameters(
    data: U8, i: int, options: tuple[int, int, int, int], number_out: F32
) -> tuple[int, tuple[int, int, int, int], int]:
    """Read the object of parameters; return (the place after it,
    options, whether outputs are binary).
    """
    is_binary = 0
    more = True
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
def _read_outputs(data: U8, i: int, form: I64) -> int:
    """Read the list of outputs; return the place after it. Each becomes 3
    * its place in OUTPUTS + 0, 1 or 2.

    2: it does not say whether it comes as binary data.
    """
    i = skip_blanks(data, after(data, i, OPEN_LIST))
    if data[i] == CLOSE_LIST:
        return i + 1
    n = 0
    named = 0
    more = True
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
def _read_output(data: U8, i: int) -> tuple[int, int, int]:
    """Read an output that is asked for; return (which, whether as binary data, the
    place after it).
    """
    output = -1
    said = 2
    more = True
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
    data: U8, i: int, n_features: int, rows: RowArrays, texts: BodyTexts, tensors: I64
) -> tuple[int, int]:
    """Read the list of one tensor or three; return (the place
    after it, bytes of their binary data).
    """
    i = after(data, i, OPEN_LIST)
    n_binary = 0
    for k in range(3):
        i, n_binary = _read_tensor(data, i, n_binary, n_features, rows, texts, tensors)
        if k == 0 and tensors[TEXT, 0] >= 0:
            break
        i = after(data, i, COMMA) if k < 2 else i
    is_one_kind = tensors[TEXT, 0] < 0 or tensors[INDPTR:TEXT, 0].max() < 0
    return after(data, i, CLOSE_LIST) if is_one_kind else len(data) - 1, n_binary


@inlined
def _read_tensor(
    data: U8,
    i: int,
    n_binary: int,
    n_features: int,
    rows: RowArrays,
    texts: BodyTexts,
    tensors: I64,
) -> tuple[int, int]:
    """Read a tensor; return (the place after it, bytes of binary data of all so far).

    tensors  int64[N_TENSORS, 2]  of each: elements, and where its binary data begin among them, -1:
             in JSON
    """
    i = after(data, i, OPEN)
    more = True
    tensor = NOT_SAID
    datatype = NOT_SAID
    n = NOT_SAID
    n_data = NOT_SAID
    n_bytes = NOT_SAID
    while more:
        key, i = _key_at(data, i, _FIELDS, _FIELDS_PTR)
        if key == _NAME and tensor < 0:
            tensor, i = _word_at(data, i, _TENSORS, _TENSORS_PTR)
        elif key == _SHAPE and n < 0:
            i, n = _read_shape(data, i, tensor)
        elif key == _DATATYPE and datatype < 0:
            datatype, i = _word_at(data, i, _TYPES, _TYPES_PTR)
        elif key == _DATA and tensor >= 0 and n_data < 0:
            i, n_data = read_data(data, i, tensor, n_features, rows, texts)
        elif key == _OWN_PARAMETERS and n_bytes < 0:
            i = skip_blanks(data, after(data, i, OPEN))
            if data[i] != CLOSE:
                i, n_bytes = read_size(data, after(data, after_key(data, i, _BINARY_SIZE), COLON))
            i = after(data, i, CLOSE)
        else:
            i = len(data) - 1
        i, more = _after_comma(data, i)
    i = after(data, i, CLOSE)
    if i == len(data) - 1 or tensor < 0 or tensors[tensor, 0] >= 0 or datatype != tensor or n < 0:
        return len(data) - 1, n_binary
    if tensor == TEXT and len(texts.ready) == 0:
        return len(data) - 1, n_binary
    is_binary = n_data < 0
    is_long = n_bytes >= 0 if tensor == TEXT else n_bytes == n * (8 if tensor == INDPTR else 4)
    if (is_binary and not is_long) or (not is_binary and (n_data != n or n_bytes >= 0)):
        return len(data) - 1, n_binary
    tensors[tensor, 0] = n
    if is_binary:
        tensors[tensor, 1] = n_binary
        n_binary += n_bytes
    return i, n_binary


@inlined
def _read_shape(data: U8, i: int, tensor: int) -> tuple[int, int]:
    """Read `[n]`, of texts `[n, 1]` too; return (the place after it, n)."""
    i, n = read_size(data, after(data, i, OPEN_LIST))
    i = skip_blanks(data, i)
    if tensor == TEXT and data[i] == COMMA:
        i, width = read_size(data, i + 1)
        i = i if width == 1 else len(data) - 1
    return after(data, i, CLOSE_LIST), n
