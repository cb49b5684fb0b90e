"""Lines of NDJSON that are texts and nothing else, read and made rows of without the interpreter's lock.

As `service.features.sparse_lines` does with sparse rows: what is more, or not right, is left to others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model_store.compiled.handles import handle_of
from service.features.characters import ready_codes
from service.features.featurizer import Featurizer
from service.features.text_featurizer import TextFeaturizer
from service.kernels.text.strings import UTF8_A_CHARACTER
from service.kernels.text.texts import BodyTexts, read_text_lines
from service.rows import SparseRows

_BYTES_MAX = 1 << 24
"""Of all lines together: they take four times as much while they are read."""


def text_rows_of_lines(
    lines: Sequence[bytes], featurizer: Featurizer, text_bytes_max: int
) -> SparseRows | None:
    """Return the rows of lines such as `{"text": "a text"}`, as the featurizer makes them.

    None when it takes no texts or Python looks for their words; when a line has more, a longer text, a
    character that is for Python (`ready_codes`), or is wrong; or when all are more than 16 MB. Thread-safe.
    """
    if not isinstance(featurizer, TextFeaturizer) or featurizer.forms is not None:
        return None
    data = np.frombuffer(b"\n".join([*lines, b"\0"]), np.uint8)
    if len(data) > _BYTES_MAX:
        return None
    by, parameters = featurizer.text_rows, featurizer.parameters
    texts = BodyTexts(
        rows_by=0,  # called from here
        table=by.table,
        ready=ready_codes(parameters.lowercase, parameters.unicode),
        utf8=np.empty(UTF8_A_CHARACTER * len(data), np.uint8),
        text_ptr=np.zeros(len(lines) + 1, np.int64),
        characters_max=len(data),
        bytes_max=text_bytes_max,
    )
    if not read_text_lines(data, handle_of(texts)):
        return None
    rows = by.kernel(texts.utf8[: texts.text_ptr[-1]], texts.text_ptr, by.table)
    return SparseRows(*rows, featurizer.n_features)
