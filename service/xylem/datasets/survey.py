"""Count rows as they are read, in one pass."""

import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from xylem.base import LabelRows
from xylem.datasets.stream import DataFile
from xylem_store import I32, I64

# How many rows are compared with each other, from the first: to hash all texts would take a good
# part of the time in which they are read.
SAMPLE_ROWS = 5000

# If rows have more labels than this on average, their labels were divided.
ONE_A_ROW = 1.05

SCRIPT_ROWS = 200  # of how many rows of a part the script is looked at, spread evenly

# A script of fewer rows is not reported: names and quotations are often in another one.
SCRIPT_SHARE_LEAST = 0.02


class Survey:
    """What was counted of the rows so far; ids of labels are those that the reader gives.

    n_rows        how many
    n_blank       how many of them have an empty or a blank text; whoever adds rows counts them
    n_lacking     how many lack a text in each of their fields; whoever joins fields counts them
    has_texts     whether rows are texts
    weight        the sum of the weights of rows; None: they have none
    sizes         int64[n], how many rows have i labels
    label_rows    int64[n], how many rows have label i
    first_places  int64[n], the number of the first row of label i, for `file.place`; 0 without rows
    lengths       how many labels rows list: one number if all list as many, else some
    """

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self.n_rows = self.n_blank = 0
        self.has_texts = False
        self.n_lacking: Counter[str] = Counter()
        self.weight: float | None = None
        self.sizes: I64 = np.zeros(1, np.int64)
        self.label_rows: I64 = np.zeros(0, np.int64)
        self.first_places: I64 = np.zeros(0, np.int64)
        self.lengths: set[int] = set()
        self._hashes: list[tuple[int, int]] = []
        self._scripts: Counter[str] = Counter()

    def add(
        self,
        labels: LabelRows,
        texts: Sequence[str] | None = None,
        places: I64 | None = None,
        lengths: I32 | None = None,
    ) -> None:
        """Count the rows of a part.

        places   int64[n], the numbers of the rows, ascending; None: they count from 1
        lengths  int32[n], how many labels each row lists, also repeated ones
        """
        n_rows = labels.n_rows
        if labels.weights is not None:
            self.weight = (self.weight or 0.0) + float(labels.weights.rows.sum(dtype=np.float64))
        counts = np.diff(labels.indptr)
        if places is None:
            places = np.arange(self.n_rows + 1, self.n_rows + n_rows + 1, dtype=np.int64)
        self.sizes = _as_long(self.sizes, int(counts.max(initial=0)) + 1)
        np.add.at(self.sizes, counts, 1)
        n_labels = int(labels.indices.max(initial=-1)) + 1
        self.label_rows = _as_long(self.label_rows, n_labels)
        self.first_places = _as_long(self.first_places, n_labels)
        is_new = self.label_rows[labels.indices] == 0
        # of several rows of a label the last one that is assigned stays: the first one
        self.first_places[labels.indices[is_new][::-1]] = np.repeat(places, counts)[is_new][::-1]
        np.add.at(self.label_rows, labels.indices, 1)
        if lengths is not None:
            self.lengths |= {int(lengths.min()), int(lengths.max())}
        self.n_rows += n_rows
        if texts is not None:
            self._add_texts(texts, labels, counts)

    def _add_texts(self, texts: Sequence[str], labels: LabelRows, counts: I64) -> None:
        self.has_texts = True
        for text in texts[:: max(1, len(texts) // SCRIPT_ROWS)]:
            letter = next((character for character in text if character.isalpha()), "")
            self._scripts[unicodedata.name(letter, "").partition(" ")[0] if letter else ""] += 1
        n_sampled = min(len(texts), SAMPLE_ROWS - len(self._hashes))
        n_labels = int(labels.indptr[n_sampled])
        if n_labels <= ONE_A_ROW * n_sampled:  # else the rows are no pairs of a text and a label
            first_labels = np.full(n_sampled, -1, np.int32)
            rows = np.repeat(np.arange(n_sampled), counts[:n_sampled])
            first_labels[rows] = labels.indices[:n_labels]
            self._hashes += zip(map(hash, texts[:n_sampled]), first_labels.tolist(), strict=True)

    @property
    def n_sampled(self) -> int:
        """Return how many rows were compared with each other."""
        return len(self._hashes)

    @property
    def n_repeated(self) -> int:
        """Return how many of the sampled rows have the text of an earlier one, and other labels."""
        return len(set(self._hashes)) - len({text for text, _ in self._hashes})

    @property
    def n_labelled(self) -> int:
        """Return how many rows have a label."""
        return self.n_rows - int(self.sizes[0])

    @property
    def script_shares(self) -> dict[str, float]:
        """Return the share of each script of the texts, if there are several."""
        counts = {script: n for script, n in self._scripts.most_common() if script}
        total = sum(counts.values())
        shares = {
            script.lower(): round(n / total, 3)
            for script, n in counts.items()
            if n >= SCRIPT_SHARE_LEAST * total
        }
        return shares if len(shares) > 1 else {}


def _as_long(counts: I64, n: int) -> I64:
    """Return counts of at least n things: those that are new have zeros.

    What is not written takes no memory: a file of one line may have a label whose id is large.
    """
    if len(counts) >= n:
        return counts
    longer = np.zeros(n, np.int64)
    longer[: len(counts)] = counts
    return longer
