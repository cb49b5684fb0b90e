"""Lines of NDJSON that are texts and nothing else, read and made rows of without the interpreter's lock.

As `service.features.sparse_lines` does with sparse rows: what is more, or not right, is left to others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model_store.compiled.handles import handle_of
from service.base.rows import SparseRows
from service.features.featurizer import Featurizer
from service.features.text_featurizer import TextFeaturizer, body_texts
from service.kernels.text.texts import read_text_lines

_BYTES_MAX = 1 << 24
"""Of all lines together: they take four times as much while they are read."""


def text_rows_of_lines(
    lines: Sequence[bytes], featurizer: Featurizer, text_bytes_max: int
) -> SparseRows | None:
    """Return the rows of lines such as `{"text": "a text"}`, as the featurizer makes them.

    None when it takes no texts or Python looks for their words; when a line has more, a longer text, a
    character that is for Python (`ready_codes`), or is wrong; or when all are more than 16 MB. Thread-safe.
    """
    data = np.frombuffer(b"\n".join([*lines, b"\0"]), np.uint8)
    if not isinstance(featurizer, TextFeaturizer) or len(data) > _BYTES_MAX:
        return None
    texts = body_texts(featurizer, len(lines), len(data), text_bytes_max)
    if not len(texts.ready) or not read_text_lines(data, handle_of(texts)):
        return None
    return featurizer.rows_of_read(texts, len(lines))
