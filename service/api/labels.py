"""The JSON of labels, written once for those that are found again and again."""

from __future__ import annotations

from model_store.names import NameTable, name_of
from service.api.wire import dump

BYTES_KEPT_MAX = 4 << 20
"""Bytes of labels that are kept, at most; beyond them they are written anew."""


class LabelTexts(dict[int, bytes]):
    """For each label id its JSON object up to the score: `{"label":"role::program","id":12,"score":`.

    Threads may share it: what two of them write at once is the same.
    """

    def __init__(self, names: NameTable) -> None:
        super().__init__()
        self._names = names
        self._bytes_left = BYTES_KEPT_MAX

    def __missing__(self, label: int) -> bytes:
        """Write a label's text, and keep it; when they are too many, first forget all others."""
        text = b'{"label":%b,"id":%d,"score":' % (dump(name_of(self._names, label)), label)
        self._bytes_left -= len(text)
        if self._bytes_left < 0:
            self.clear()
            self._bytes_left = BYTES_KEPT_MAX
        self[label] = text
        return text
