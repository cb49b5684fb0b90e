"""Long texts in chunks: each is searched by itself, and a label's score
is the mean of its scores in them.

A model that was trained on short texts knows nothing of long ones: their rows have many more words,
of many subjects. Chunks of the length of its training texts are what it knows.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from xylem.base import BadParameter, SparseRows, offsets
from xylem.engine.answering import Predictions
from xylem.engine.options import PredictOptions
from xylem_store import F32, I64, Bools

CHUNK_CHARACTERS_MIN = 500
"""The least length of a chunk: what a chunk needs besides its text has a bound then."""

# labels of a chunk whose scores are known, at least; the others' count as 0 in the mean
CHUNK_LABELS = 100
_LAST_SPACE = re.compile(r"\s\S*\Z")


def check_chunk_characters(most: object, name: str) -> int:
    """Return the length of a chunk, if it may be one.

    Raises BadParameter, which calls it `name`.
    """
    if type(most) is not int or most < CHUNK_CHARACTERS_MIN:
        raise BadParameter(
            f"{name}: expected an integer of at least {CHUNK_CHARACTERS_MIN}, found {most!r:.40}"
        )
    return most


def chunks_of(text: str, most: int) -> list[str]:
    """Return a text in chunks of about the same length, of at most so
    many characters, cut between words.

    Where there is no space in the second half of a chunk, it is cut where it is full.
    """
    chunks = []
    start = 0
    while (n_left := len(text) - start) > most:
        n_chunks = -(-n_left // most)
        chunk = text[start : start - (-n_left // n_chunks)]
        space = _LAST_SPACE.search(chunk)
        if space is not None and 2 * space.start() >= len(chunk):
            chunk = chunk[: space.start()]
        chunks.append(chunk)
        start += len(chunk)
    return [*chunks, text[start:]]


def divide(texts: Sequence[str], most: int) -> tuple[list[str], I64]:
    """Return the chunks of texts, and int64[n + 1]: text i has the chunks ptr[i] to ptr[i + 1]."""
    divided = [chunks_of(text, most) for text in texts]
    ptr = offsets(map(len, divided))
    return [chunk for chunks in divided for chunk in chunks], ptr


def search_chunks(
    search: Callable[[SparseRows, PredictOptions], Predictions],
    rows: SparseRows,
    ptr: I64,
    options: PredictOptions,
    n_labels: int,
    least: F32 | float | None,
) -> Predictions:
    """Return the answers to instances, by a search of the rows of their chunks.

    ptr, least   as `mean_of` takes them; the threshold of `options` is passed over
    """
    top_r = min(max(options.top_r, CHUNK_LABELS), n_labels)
    found = search(rows, options._replace(top_r=top_r, threshold=None))
    return mean_of(found, ptr, np.diff(rows.indptr) > 0, n_labels, options.top_r, least)


def mean_of(
    found: Predictions,
    ptr: I64,
    has_features: Bools,
    n_labels: int,
    top_r: int,
    least: F32 | float | None,
) -> Predictions:
    """Return the answers to instances from those to their chunks,
    never exact: a chunk's labels are some.

    ptr           int64[n + 1]: instance i has the chunks ptr[i] to ptr[i + 1]
    has_features  bool[chunks]; a chunk without any says nothing, and is left out if another has
                  some
    least         the score that labels must reach, or float32[K], each its own; None: any
    """
    n = len(ptr) - 1
    of_chunk = np.repeat(np.arange(n), np.diff(ptr))
    n_filled = np.bincount(of_chunk, has_features, n)
    counts = has_features | (n_filled[of_chunk] == 0)
    n_counted = np.bincount(of_chunk, counts, n)
    chunk = np.repeat(np.arange(len(of_chunk)), np.diff(found.ptr))
    is_counted = counts[chunk]
    keys, places = np.unique(
        of_chunk[chunk[is_counted]] * n_labels + found.labels[is_counted], return_inverse=True
    )
    instance, label = np.divmod(keys, n_labels)
    sums = np.bincount(places, found.scores[is_counted], len(keys))
    scores = (sums / n_counted[instance]).astype(np.float32)
    if least is not None:
        passes = scores >= (least if isinstance(least, float) else least[label])
        instance = instance[passes]
        label = label[passes]
        scores = scores[passes]
    order = np.lexsort((label, -scores, instance))
    instance = instance[order]
    label = label[order]
    scores = scores[order]
    starts = np.searchsorted(instance, np.arange(n + 1))
    is_best = np.arange(len(instance)) - starts[instance] < top_r
    ends = offsets(np.bincount(instance[is_best], minlength=n))
    costs = found.costs
    if len(costs):
        costs = np.stack([np.bincount(of_chunk, column, n) for column in costs.T], 1).astype(
            np.int64
        )
    return Predictions(
        ends, label[is_best].astype(np.int32), scores[is_best], np.zeros(n, np.uint8), costs
    )
