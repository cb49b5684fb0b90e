"""Number the words of texts, as word features have them."""

from collections.abc import Sequence

import numpy as np

from xylem.base import Growing, offsets
from xylem.engine.features.characters import in_blocks
from xylem.engine.features.ngram_counts import Vocabulary, count_ids
from xylem.engine.features.parameters import WordParameters
from xylem.engine.features.word_forms import fit_forms, words_of
from xylem_store import I32, I64, NameTable, build_names


class WordNumbers:
    """Numbers the words of texts in the order of their first appearance.

    stops  the stop words, which have no numbers
    """

    def __init__(self, parameters: WordParameters) -> None:
        """Start without words. Raises as `fit_forms`."""
        self._parameters = parameters
        self._forms = fit_forms(parameters)
        self._vocabulary = Vocabulary()
        self.stops: NameTable = build_names([]) if self._forms is None else self._forms.stops

    @property
    def n(self) -> int:
        """The number of words so far."""
        return self._vocabulary.n

    def read(self, texts: Sequence[str]) -> tuple[I64, I32]:
        """Return (ptr, ids): text i has the words ids[ptr[i] : ptr[i + 1]]; new words are added.

        A word that is too long to have a number is -1.
        """
        ids = Growing(np.int32)
        sizes = Growing(np.int64)
        for block in in_blocks(texts):
            words = words_of(block, self._parameters, self._forms)
            ids.extend(self._vocabulary.add(words.utf8, words.start, words.end))
            sizes.extend(np.diff(words.word_ptr))
        return offsets(sizes.finish()), ids.finish()

    def add(self, words: Sequence[str]) -> I32:
        """Return the numbers of words in their forms; new words are added."""
        encoded = [word.encode() for word in words]
        ends = offsets(list(map(len, encoded)))
        return self._vocabulary.add(np.frombuffer(b"".join(encoded), np.uint8), ends[:-1], ends[1:])

    def count(self, ptr: I64, ids: I32) -> I64:
        """Return in how many texts each word so far stands; `ptr` and `ids` as `read` has them."""
        return count_ids(ids, ptr, self.n)[0]

    def words(self) -> list[str]:
        """Return the words so far, in the order of their numbers."""
        return self._vocabulary.names(np.arange(self.n))
