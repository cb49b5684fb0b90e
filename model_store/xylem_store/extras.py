"""Optional arrays of a version besides its trees, and their checks; FORMAT.md describes them.

Calibration: the knots of the map from a model's own scores to probabilities. A version has both
arrays or none, and none with link softmax, whose probabilities are exact.

Re-ranking (Jain et al. 2016, PFastreXML): what a decision-tree ensemble needs to re-rank its
candidates. A version has all of these arrays or none, and only a decision-tree ensemble has them.

Embedding: turns a row of features into the dense row that a tree with softmax nodes takes.
Source: Jernite, Choromanska and Sontag 2017, "Simultaneous Learning of Trees and Representations
for Extreme Classification and Density Estimation", sections 2 and 6. A version whose link is
softmax has all of these arrays, and no other version has any.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import (
    check_all,
    check_lists,
    element_name,
    empty_group,
    file_name,
    has_group,
    take,
    take_group,
)
from xylem_store.compiled.bits import BLOCK_BITS
from xylem_store.compiled.handles import F32_1, I32_1, I64_1, handle
from xylem_store.ensemble import TreeEnsemble
from xylem_store.errors import Corrupt
from xylem_store.manifest import CALIBRATION, Manifest, has_calibration

KNOTS_MAX = 256  # the most knots: each score of an answer is looked up among them


@handle
class Calibration(NamedTuple):
    """The strictly increasing, piecewise linear map of scores to probabilities, by its knots.

    x  float32[n]  scores of the model, strictly ascending from 0 to 1, 2 <= n <= KNOTS_MAX
    y  float32[n]  their probabilities, strictly ascending from 0, at most 1

    Both are empty in a version without calibration: scores stay as they are.
    """

    x: F32_1
    y: F32_1


NO_CALIBRATION = empty_group(Calibration)  # the calibration of a version that has none


def assemble_calibration(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> Calibration:
    """Return a version's calibration, read-only, or NO_CALIBRATION. Reads no data.

    Raises Corrupt if its arrays do not fit, or the link is softmax.
    """
    if not has_calibration(arrays):
        return NO_CALIBRATION
    if manifest.link == "softmax":
        raise Corrupt(
            "manifest.json: arrays", f"no array of {CALIBRATION} with link softmax", "one"
        )
    calibration = take_group(arrays, CALIBRATION, Calibration, y="x")
    if not 2 <= len(calibration.x) <= KNOTS_MAX:
        raise Corrupt(file_name(f"{CALIBRATION}/x"), f"2 to {KNOTS_MAX} knots", len(calibration.x))
    return calibration


def check_calibration(calibration: Calibration) -> None:
    """Raise Corrupt unless every invariant of Calibration holds.

    The caller has checked that its numbers are finite.
    """
    for name, values in calibration._asdict().items():
        if not len(values):
            continue
        where = f"{CALIBRATION}/{name}"
        if values[0] != 0:
            raise Corrupt(element_name(where, 0), "0", values[0])
        check_all(
            where, np.diff(values, prepend=np.float32(-1)) > 0, "more than the one before", values
        )
        last = len(values) - 1
        if values[last] > 1 or (name == "x" and values[last] != 1):
            raise Corrupt(
                element_name(where, last), "1" if name == "x" else "at most 1", values[last]
            )


RERANK = "tail"  # the prefix of the names of these arrays


@handle
class Rerank(NamedTuple):
    """The mean row of every label, and the weights of re-ranking.

    ptr         int64[K + 1]  label l has features[ptr[l] : ptr[l + 1]], ascending, distinct
    features    int32[..]     below D
    values      float32[..]   of mu_l, the mean of the label's l2-normalised training rows; may be
                              pruned
    norm2       float32[K]    |mu_l|^2, 0 or more
    parameters  float32[2]    alpha in [0, 1] and gamma >= 0: a candidate's score P becomes
                              P^alpha * exp(-gamma / 2 * |x - mu_l|^2)^(1 - alpha), x the
                              l2-normalised row
    """

    ptr: I64_1
    features: I32_1
    values: F32_1
    norm2: F32_1
    parameters: F32_1


NO_RERANK = empty_group(Rerank)  # the arrays of a version that does not re-rank


def has_rerank(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a version has any re-ranking arrays, complete or not."""
    return has_group(arrays, RERANK)


def assemble_rerank(manifest: Manifest, arrays: Mapping[str, NDArray[Any]]) -> Rerank:
    """Return the re-ranking arrays of a version that has them, read-only. Reads no data.

    Raises Corrupt if they do not fit, or the version is not a decision-tree ensemble.
    """
    if manifest.kind != "decision-tree":
        raise Corrupt("manifest.json: arrays", f"no array of {RERANK} in a {manifest.kind}", "one")
    return take_group(
        arrays,
        RERANK,
        Rerank,
        ptr=manifest.n_labels + 1,
        values="features",
        norm2=manifest.n_labels,
        parameters=2,
    )


def check_rerank(rerank: Rerank, n_features: int) -> None:
    """Raise Corrupt unless every invariant of Rerank holds.

    The caller has checked that its floats are finite.
    """
    check_lists(RERANK, rerank, "ptr", "features", n_features)
    check_all(f"{RERANK}/norm2", rerank.norm2 >= 0, "a square, 0 or more", rerank.norm2)
    check_all(
        f"{RERANK}/parameters",
        (rerank.parameters >= 0) & (rerank.parameters <= (1, np.inf)),
        "alpha from 0 to 1, then gamma of 0 or more",
        rerank.parameters,
    )


# The prefix of the names of these arrays.
EMBEDDING = "embedding"

DIM_MAX = 1024  # the most dimensions: as many as features in a group
PLACES_MAX = 16  # the most places of a window of words

_EXPONENT = np.uint16(0x7F80)  # bits of a bfloat16 that are all set in inf and NaN


class Embedding(NamedTuple):
    """Makes the dense row of a row x: the sum over its features f of x_f * turned(f), or the mean.

    u     float32[V, d]     the vectors of V words, 1 <= d <= DIM_MAX; or uint16[V, d]: as bfloat16
    r     float32[T, R, d]  feature f is word f % V at place f // V; there are T * V features.
          turned(f) depends on R. R = 0: it is u[word], and T is 1. R = 1: it is r[place] times
          u[word], each dimension by itself. R = d: it is the matrix r[place] times u[word]
    mean  int32[1]          1: sums are divided by the sum of |x_f|, unless that is 0; 0: sums are
          not divided
    """

    u: NDArray[Any]
    r: NDArray[np.float32]
    mean: NDArray[np.int32]


def assemble_embedding(n_features: int, arrays: Mapping[str, NDArray[Any]]) -> Embedding:
    """Return the embedding of a version with `n_features` features, read-only. Reads no data.

    Raises Corrupt if an array is missing or does not fit.
    """
    stored = arrays.get(f"{EMBEDDING}/u")
    u = take(
        arrays,
        f"{EMBEDDING}/u",
        "uint16" if stored is not None and stored.dtype == np.uint16 else "float32",
        (None, None),
    )
    n_words, dim = u.shape
    if not 1 <= dim <= DIM_MAX or n_words < 1:
        raise Corrupt(
            element_name(f"{EMBEDDING}/u", 0), f"words of 1 to {DIM_MAX} dimensions", str(u.shape)
        )
    r = take(arrays, f"{EMBEDDING}/r", "float32", (None, None, dim))
    n_places, n_turned, _ = r.shape
    if not 1 <= n_places <= PLACES_MAX or n_places * n_words != n_features:
        raise Corrupt(
            element_name(f"{EMBEDDING}/r", 0), f"{n_features} features / {n_words} words", n_places
        )
    if n_turned not in (0, 1, dim) or (n_turned == 0 and n_places != 1):
        raise Corrupt(
            element_name(f"{EMBEDDING}/r", 0),
            f"1 or {dim} rows a place, or none of one place",
            n_turned,
        )
    return Embedding(u, r, take(arrays, f"{EMBEDDING}/mean", "int32", (1,)))


def check_embedding(embedding: Embedding) -> None:
    """Raise Corrupt unless `mean` is 0 or 1 and bfloat16 numbers are finite.

    The caller has checked that float32 numbers are finite.
    """
    if embedding.u.dtype == np.uint16:
        check_all(
            f"{EMBEDDING}/u", (embedding.u & _EXPONENT) != _EXPONENT, "a finite number", embedding.u
        )
    check_all(
        f"{EMBEDDING}/mean", (embedding.mean == 0) | (embedding.mean == 1), "0 or 1", embedding.mean
    )


TAIL_LEAST = 4  # a tail of fewer features is not worth a test of each row

_FEW_CHUNKS = 64


def dense_tail(ensemble: TreeEnsemble) -> tuple[int, int]:
    """Return (end, n): every chunk has the n features before `end`, and none after them.

    Their rows are dense, and so the last dense rows of each chunk. n is 0 for fewer than TAIL_LEAST
    features. Cost: a look at a few chunks, and if these have a tail, at all of them.
    """
    directory = ensemble.directory
    if not len(directory) or (
        len(directory) > _FEW_CHUNKS
        and not dense_tail(ensemble._replace(directory=directory[:_FEW_CHUNKS]))[1]
    ):
        return 0, 0
    last_group = directory.shape[1] - 1
    last_block = (last_group << BLOCK_BITS) + int(directory[0, last_group, 0]).bit_length() - 1
    size = end = 0
    for block in range(last_block, -1, -1):
        words = directory[:, block >> BLOCK_BITS]
        bit = np.uint32(block & 31)
        if not (words[:, 0] >> bit & np.uint32(1)).all():
            break
        places = (
            ensemble.block_ptr[: len(directory)]
            + words[:, 1]
            + np.bitwise_count(words[:, 0] & ((np.uint32(1) << bit) - np.uint32(1)))
        )
        features = ensemble.blocks[places]
        if block == last_block:
            end = (block << BLOCK_BITS) + int(features[:, 0].max()).bit_length()
            if (words[:, 0] >> bit != 1).any():
                break
        width = end - (block << BLOCK_BITS) - size
        missing = ~int(np.bitwise_and.reduce(features[:, 1])) & ((1 << width) - 1)
        size += width - missing.bit_length()
        if missing:
            break
    return (end, size) if size >= TAIL_LEAST else (0, 0)


def is_full(ensemble: TreeEnsemble, n_features: int) -> bool:
    """Return whether every chunk has a dense row for each feature, and so no sparse rows."""
    n_blocks = -(-n_features // 32)
    n_chunks = len(ensemble.directory)
    if len(ensemble.blocks) != n_blocks * n_chunks or len(ensemble.row_ptr) != n_chunks:
        return False
    every = np.full(n_blocks, 0xFFFFFFFF, np.uint32)
    if n_features % 32:
        every[-1] = (1 << n_features % 32) - 1
    return bool(
        (ensemble.block_ptr == (np.arange(n_chunks + 1) * n_blocks)).all()
        and (ensemble.blocks.reshape(n_chunks, n_blocks, 4)[:, :, :2] == every[:, None]).all()
    )
