"""Candidates of rows by members that have not seen these rows: the members are trained by folds.

A member knows the labels of a row that it was trained on better than those of a later row. A ranker
that is fitted to its candidates of such rows trusts the member too much, and its figures by folds
are too good. So rows are held out: members are trained on the others, and propose labels for them
(stacking: Wolpert 1992, "Stacked generalization").
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from xylem.base import Dataset, OnProgress, SparseRows, offsets
from xylem.datasets import renumbered
from xylem.engine import CombinedPredictor, make_predictor
from xylem.evaluation import digests_of, labelled_dataset
from xylem.vocabulary.beams import MeasuredBeam, measure_beams, with_beam
from xylem.vocabulary.combined import CombinedParts
from xylem.vocabulary.featurizers import featurizer_of, rows_of_member
from xylem.vocabulary.near_rows import GROUP_ROWS, group_alike
from xylem.vocabulary.ranker import Candidates, candidates_of
from xylem_store import (
    I64,
    ROWS,
    Bools,
    Draft,
    Model,
    NameTable,
    all_names,
    find_all,
    model_of,
    take,
)

# The rows are divided into this many parts, of which one is held out at a time.
PARTS = 5

# Parts are held out until they have this many rows together, or until all parts were held out.
#
# A ranker of 20,000 rows takes twice as long; its P@1, P@3 and P@5 on held-out rows of debtags-src
# differ by at most 0.1 (ADR 25).
RANKED_ROWS = 10_000

# The array of a version that tells which rows it was trained on: 32 bits of each one's digest.
ROW_DIGESTS = f"{ROWS}/digests"

# Trains a member on some of the rows, as the member was trained on all of them.
PartTrainer: TypeAlias = Callable[[Dataset], Draft]


class FoldedCandidates(NamedTuple):
    """Candidates of rows by members that have not seen them.

    rows   the numbers of the rows, in the order of the candidates: of many rows not all have some
    beams  the beam widths that were measured on the first part that was held out; the last one was
           chosen. Empty if that of the parts stays
    """

    candidates: Candidates
    rows: I64
    beams: list[MeasuredBeam]


def candidates_by_folds(
    dataset: Dataset,
    members: Sequence[Model],
    trainers: Sequence[PartTrainer | None],
    parts_of: Callable[[Sequence[Model], Dataset], CombinedParts],
    labels: NameTable,
    *,
    kind: str | None = None,
    seed: int,
    on_progress: OnProgress,
) -> FoldedCandidates:
    """Return the candidates of rows, each by members that were trained on other rows.

    members   as they will be served; rows are similar by the features of the first one
    trainers  of the members; None: the member has seen none of the rows, and proposes as it is
    parts_of  combines the members of a fold. It gets the rows that they were trained on, from which
              it may draw near rows, and count the words of texts
    labels    the labels of the combination that will be served, whose ids the candidates have
    kind      of the ranker by which a beam width is chosen; None: that of the parts stays

    Similar rows are held out together, because later rows often have no such twin. Raises BadInput.
    Deterministic. Cost: up to PARTS more trainings of each member with a trainer, and RANKED_ROWS
    rows answered.
    """
    folds = divide(rows_of_member(members[0], dataset), seed)
    folds = folds[: -(-RANKED_ROWS // len(folds[0]))]
    beams: list[MeasuredBeam] = []
    fold_candidates: list[Candidates] = []
    for done, held_out in enumerate(folds):
        on_progress("folds", done, len(folds))
        training = dataset.take(np.setdiff1d(np.arange(dataset.n_rows), held_out))
        training = training.with_occurring_labels()
        fold_members = [
            member if train is None else model_of(train(training))
            for member, train in zip(members, trainers, strict=True)
        ]
        parts = parts_of(fold_members, training)
        trial = parts.unranked(seed)
        labelled = labelled_dataset(
            renumbered(dataset.take(held_out), trial.labels), featurizer_of(trial)
        )
        if kind is not None:
            beams = beams or measure_beams(parts, labelled, kind, seed, on_progress)
            trial = with_beam(parts, beams[-1].beam_width).unranked(seed)
        predictor = make_predictor(trial)
        assert isinstance(predictor, CombinedPredictor)
        candidates = candidates_of(predictor, labelled, on_progress)
        # a member that was trained on fewer rows may list its labels in another order
        ids = find_all(labels, all_names(trial.labels)).astype(np.int32)
        fold_candidates.append(candidates._replace(labels=ids[candidates.labels]))
    on_progress("folds", len(folds), len(folds))
    ptr = offsets(np.concatenate([np.diff(part.ptr) for part in fold_candidates]))
    joined = [np.concatenate(arrays) for arrays in list(zip(*fold_candidates, strict=True))[1:]]
    return FoldedCandidates(Candidates(ptr, *joined), np.concatenate(folds), beams)


def divide(rows: SparseRows, seed: int) -> list[I64]:
    """Return PARTS parts of the rows, ascending; similar rows are in the same part.

    The seed deals the groups of similar rows to the parts.
    """
    group = group_alike(rows, min(GROUP_ROWS, -(-rows.n_rows // (2 * PARTS))))
    part = np.random.default_rng(seed).permutation(int(group.max()) + 1)[group] % PARTS
    return [np.flatnonzero(part == number) for number in range(PARTS)]


def seen_rows(member: Model, dataset: Dataset) -> Bools:
    """Return which rows a version was trained on, bool[n], as far as it stores that.

    It has seen all rows of the file that it was trained on, and those whose digests it stores.
    Raises BadInput for instances of another kind.
    """
    if member.manifest.data.sha256 == dataset.sha256:
        return np.ones(dataset.n_rows, np.bool_)
    if ROW_DIGESTS not in member.arrays:  # it was imported, or predicts words
        return np.zeros(dataset.n_rows, np.bool_)
    return np.isin(
        digests_of(rows_of_member(member, dataset)).astype(np.uint32),
        take(member.arrays, ROW_DIGESTS, "uint32", (None,)),
    )
