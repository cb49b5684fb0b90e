"""Long texts are cut into chunks: each chunk is searched by itself, and a label's score is the mean
of its scores in the chunks.

A model that was trained on short texts predicts long ones badly: their rows have many more words,
of many subjects. Chunks of about the length of the training texts look like the rows it has seen.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from xylem.base import BadParameter, SparseRows, offsets
from xylem.engine import Featurizer, Predictions, PredictOptions
from xylem_store import F32, I64, Bools

Chunk = TypeVar("Chunk")

# The least length of a chunk. It bounds the number of chunks, and so the memory they need.
CHUNK_CHARACTERS_MIN = 500

# each chunk is searched for at least this many labels; all other scores count as 0 in the mean
CHUNK_LABELS = 100
_LAST_SPACE = re.compile(r"\s\S*\Z")


def check_chunk_characters(n_characters: object, name: str) -> int:
    """Return the length of a chunk, in characters, if it is valid.

    Raises BadParameter, whose message calls the parameter `name`.
    """
    if type(n_characters) is not int or n_characters < CHUNK_CHARACTERS_MIN:
        raise BadParameter(
            f"{name}: expected an integer of at least {CHUNK_CHARACTERS_MIN}, "
            f"found {n_characters!r:.40}"
        )
    return n_characters


def chunks_of(text: str, characters_max: int) -> list[str]:
    """Return the chunks of a text: about equally long, cut between words.

    A chunk has at most `characters_max` characters. If there is no space in its second half, it is
    cut within a word.
    """
    chunks = []
    start = 0
    while (n_left := len(text) - start) > characters_max:
        n_chunks = -(-n_left // characters_max)
        chunk = text[start : start - (-n_left // n_chunks)]
        space = _LAST_SPACE.search(chunk)
        if space is not None and 2 * space.start() >= len(chunk):
            chunk = chunk[: space.start()]
        chunks.append(chunk)
        start += len(chunk)
    return [*chunks, text[start:]]


def rows_of_chunks(
    chunks: Sequence[Chunk],
    ptr: I64,
    make: Callable[[Sequence[Chunk], Featurizer], SparseRows],
    featurizer: Featurizer,
) -> SparseRows:
    """Return a row for each chunk, as `make` makes them of chunks with a featurizer.

    Only the first chunk of an instance has the first words of its text, which may count more.

    ptr  int64[n + 1]: instance i has the chunks ptr[i] .. ptr[i + 1] - 1, at least one
    """
    continues = np.ones(len(chunks), np.bool_)
    continues[ptr[:-1]] = False
    if not continues.any():
        return make(chunks, featurizer)
    first_chunks = np.flatnonzero(~continues)
    later_chunks = np.flatnonzero(continues)
    return SparseRows.join(
        [
            make([chunks[i] for i in first_chunks.tolist()], featurizer),
            make([chunks[i] for i in later_chunks.tolist()], featurizer.continuation),
        ]
    ).take(np.argsort(np.concatenate([first_chunks, later_chunks])))


def rows_of_divided_texts(
    texts: Sequence[str],
    characters_max: int,
    featurizer: Featurizer,
    vectors: F32 | None = None,
) -> tuple[SparseRows, I64]:
    """Return (rows, ptr): text i has the rows ptr[i] .. ptr[i + 1] - 1, one for each chunk.

    vectors  those of the texts, which all of their chunks have; None: there are none
    """
    divided = [chunks_of(text, characters_max) for text in texts]
    pairs = [(chunk, i) for i, chunks in enumerate(divided) for chunk in chunks]
    ptr = offsets(map(len, divided))

    def make(pairs: Sequence[tuple[str, int]], makes: Featurizer) -> SparseRows:
        chosen, owners = zip(*pairs, strict=True)
        return makes.transform_with_vectors(
            chosen, None if vectors is None else vectors[list(owners)]
        )

    return rows_of_chunks(pairs, ptr, make, featurizer), ptr


def search_chunks(
    search: Callable[[SparseRows, PredictOptions], Predictions],
    rows: SparseRows,
    ptr: I64,
    options: PredictOptions,
    n_labels: int,
    threshold: F32 | float | None,
) -> Predictions:
    """Search the rows of chunks, and return the predictions of the instances.

    ptr, threshold  as `mean_of` takes them; the threshold of `options` is ignored
    """
    top_r = min(max(options.top_r, CHUNK_LABELS), n_labels)
    return mean_of(
        search(rows, options._replace(top_r=top_r, threshold=None, limit=None)),
        ptr,
        np.diff(rows.indptr) > 0,
        n_labels,
        min(options.top_r, options.limit or options.top_r),
        threshold,
    )


def mean_of(
    predictions: Predictions,
    ptr: I64,
    has_features: Bools,
    n_labels: int,
    top_r: int,
    threshold: F32 | float | None,
) -> Predictions:
    """Return the predictions of instances: for each label the mean over the instance's chunks.

    They are never marked exact, because a chunk's predictions are not all labels.

    predictions   of the chunks
    ptr           int64[n + 1]: instance i has the chunks ptr[i] .. ptr[i + 1] - 1
    has_features  bool[chunks]; a chunk without features is left out of the mean if another chunk of
                  its instance has some
    threshold     the score that labels must reach, or float32[K], one a label; None: any score
    """
    n = len(ptr) - 1
    instance_of_chunk = np.repeat(np.arange(n), np.diff(ptr))
    n_filled = np.bincount(instance_of_chunk, has_features, n)
    is_in_mean = has_features | (n_filled[instance_of_chunk] == 0)
    n_counted = np.bincount(instance_of_chunk, is_in_mean, n)
    chunk = np.repeat(np.arange(len(instance_of_chunk)), np.diff(predictions.ptr))
    is_counted = is_in_mean[chunk]
    keys, places = np.unique(
        instance_of_chunk[chunk[is_counted]] * n_labels + predictions.labels[is_counted],
        return_inverse=True,
    )
    instance, label = np.divmod(keys, n_labels)
    scores = (
        np.bincount(places, predictions.scores[is_counted], len(keys)) / n_counted[instance]
    ).astype(np.float32)
    if threshold is not None:
        passes = scores >= (threshold if isinstance(threshold, float) else threshold[label])
        instance, label, scores = (column[passes] for column in (instance, label, scores))
    order = np.lexsort((label, -scores, instance))
    instance, label, scores = (column[order] for column in (instance, label, scores))
    starts = np.searchsorted(instance, np.arange(n + 1))
    is_best = np.arange(len(instance)) - starts[instance] < top_r
    costs = predictions.costs
    if len(costs):
        costs = np.stack(
            [np.bincount(instance_of_chunk, column, n) for column in costs.T], 1
        ).astype(np.int64)
    return Predictions(
        offsets(np.bincount(instance[is_best], minlength=n)),
        label[is_best].astype(np.int32),
        scores[is_best],
        np.zeros(n, np.uint8),
        costs,
    )
