"""Read lines of NDJSON that are only sparse rows, or only texts, without the interpreter's lock.

To read a line by a JSON library and to check each number costs more than to predict it. The kernels
here accept a subset of JSON. All other lines are left to the library, whose checks say what is
wrong with them.
"""

from collections.abc import Sequence

import numpy as np

from xylem.base import SparseRows
from xylem.engine import Featurizer
from xylem.serving.kernels.sparse_json import END, read_instance, skip_blanks
from xylem.serving.kernels.text_json import read_text_lines
from xylem_store import F32, I64, U8, handle_of, kernel


def read_sparse_lines(lines: Sequence[bytes], features_max: int) -> tuple[I64, I64, F32] | None:
    """Return lines such as `{"indices": [3, 17], "values": [0.5, 1]}` as compressed rows.

    lines         without line ends
    features_max  the most features of a line

    Returns indptr int64[n + 1], indices int64[nnz] in [0, 2^31) and values float32[nnz], each
    float32(float(text)) and finite. The rows are not checked any further. Returns None if a line
    has other keys or another order, too many features, an id or a number that a kernel cannot read
    exactly, or is wrong. Cost: about a nanosecond a byte.
    """
    data = np.frombuffer(b"\n".join([*lines, b"\0"]), np.uint8)
    indptr = np.zeros(len(lines) + 1, np.int64)
    indices = np.empty(len(data) // 2, np.int64)
    values = np.empty(len(data) // 2, np.float32)
    if not _read(data, features_max, indptr, indices, values):
        return None
    n = int(indptr[-1])
    return indptr, indices[:n], values[:n]


@kernel
def _read(data: U8, features_max: int, indptr_out: I64, indices_out: I64, values_out: F32) -> bool:
    """Read all lines; return whether all are sparse rows.

    Every line ends with END, a byte that does not occur within a line.
    """
    i = 0
    start = 0
    for row in range(len(indptr_out) - 1):
        i, n = read_instance(data, i, 1 << 31, indices_out, values_out, start)
        i = skip_blanks(data, i)
        if data[i] != END or n - start > features_max:
            return False
        indptr_out[row + 1] = start = n
        i += 1
    return True


_BYTES_MAX = 1 << 24  # of all lines together, because reading them takes four times as much


def text_rows_of_lines(
    lines: Sequence[bytes], featurizer: Featurizer, text_bytes_max: int
) -> SparseRows | None:
    """Return the rows of lines such as `{"text": "a text"}`, as the featurizer makes them.

    Return None if the featurizer takes no texts or changes words in Python (stems, stop words); if
    a line has other keys, a longer text than text_bytes_max, a character that only Python handles
    (`ready_codes`), or is wrong; or if all lines are more than 16 MB. Thread-safe.
    """
    data = np.frombuffer(b"\n".join([*lines, b"\0"]), np.uint8)
    if len(data) > _BYTES_MAX:
        return None
    texts = featurizer.body_texts(len(lines), len(data), text_bytes_max)
    return (
        featurizer.rows_of_read(texts, len(lines))
        if len(texts.ready) and read_text_lines(data, handle_of(texts))
        else None
    )
