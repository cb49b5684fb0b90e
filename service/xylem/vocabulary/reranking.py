"""`xylem train ... --rerank`: re-rank a model's candidates by its scores and near training rows.

The rows that a ranker is fitted to are held out: the trainer learns from the others, and its model
proposes labels for them (stacking: Wolpert 1992, "Stacked generalization"). The published version
is a combined version of one member, which is trained on all rows. It is kept only if the held-out
rows gain by it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from xylem.base import BadParameter, Dataset, OnProgress, SparseRows, offsets
from xylem.engine import CombinedPredictor, make_predictor
from xylem.evaluation import labelled_dataset
from xylem.vocabulary.combined import combined_parts, no_ranker
from xylem.vocabulary.featurizers import featurizer_of
from xylem.vocabulary.near_rows import GROUP_ROWS, check_rerank, group_alike, near_of
from xylem.vocabulary.ranker import (
    BOOSTED_ROWS,
    Candidates,
    candidates_of,
    fit_ranker,
    gain_of,
    precisions,
    rank_by_folds,
)
from xylem_store import I64, Draft, TrainerInfo, model_of

CANDIDATES = 30
"""The number of labels of a row that are ranked."""

BEAM_WIDTH = 10

PARTS = 5
"""The rows are divided into so many parts, of which one is held out at a time."""

RANKED_ROWS = 10_000
"""Parts are held out until they have so many rows, or all parts are.

A ranker of 20,000 rows takes twice as long; its P@1, P@3 and P@5 on held-out rows of debtags-src
differ by at most 0.1 (ADR 25).
"""


def rerank(
    draft: Draft,
    dataset: Dataset,
    train_part: Callable[[Dataset], Draft],
    seed: int,
    on_progress: OnProgress,
) -> tuple[Draft, dict[str, Any]]:
    """Return a trained model with a ranker of its candidates, or the draft if that gains nothing.

    The second part is what held-out rows gained, which a version's report keeps.

    draft       trained on all rows of the data set
    train_part  trains on some of them in the same way

    Raises BadParameter for a model whose candidates cannot be ranked, and for fewer than
    BOOSTED_ROWS rows. Deterministic. Cost: up to PARTS more trainings, and RANKED_ROWS rows
    answered; three rankers are fitted, two of them to half of these rows.
    """
    check_rerank(draft.link, draft.trainer.name)
    if dataset.n_rows < BOOSTED_ROWS:
        raise BadParameter(f"rerank: expected at least {BOOSTED_ROWS} rows, found {dataset.n_rows}")
    parts = divide(featurizer_of(model_of(draft)).transform_dataset(dataset), seed)
    n_held_parts = min(PARTS, -(-RANKED_ROWS // len(parts[0])))
    part_candidates = []
    for done, held_out in enumerate(parts[:n_held_parts]):
        on_progress("rerank", done, n_held_parts + 1)
        training_rows = np.setdiff1d(np.arange(dataset.n_rows), held_out)
        training = dataset.take(training_rows)
        trial = model_of(_combined(train_part(training), training, seed))
        predictor = make_predictor(trial)
        assert isinstance(predictor, CombinedPredictor)
        labelled = labelled_dataset(dataset.take(held_out), featurizer_of(trial))
        part_candidates.append(candidates_of(predictor, labelled, on_progress))
    on_progress("rerank", n_held_parts, n_held_parts + 1)
    ptr = offsets(np.concatenate([np.diff(part.ptr) for part in part_candidates]))
    labels, features, are_true = (
        np.concatenate(arrays) for arrays in list(zip(*part_candidates, strict=True))[1:]
    )
    joined = Candidates(ptr, labels, features, are_true)
    member = precisions(joined, -joined.features[:, 1].astype(np.float64))
    ranked = precisions(joined, rank_by_folds("boosted", joined, seed))
    report = gain_of(member, ranked, len(joined.ptr) - 1)
    if report["kept"]:
        ranker = fit_ranker("boosted", joined, np.arange(len(joined.ptr) - 1), seed)
        draft = _combined(draft, dataset, seed, ranker)
    on_progress("rerank", n_held_parts + 1, n_held_parts + 1)
    return draft, report


def divide(rows: SparseRows, seed: int) -> list[I64]:
    """Return PARTS parts of the rows, ascending; similar rows are in the same part.

    The seed deals the groups of similar rows to the parts.
    """
    group = group_alike(rows, min(GROUP_ROWS, -(-rows.n_rows // (2 * PARTS))))
    part = np.random.default_rng(seed).permutation(int(group.max()) + 1)[group] % PARTS
    return [np.flatnonzero(part == number) for number in range(PARTS)]


def _combined(draft: Draft, dataset: Dataset, seed: int, ranker: Any = None) -> Draft:
    """Return a combined version of one model, with near rows of the data it was trained on."""
    member = model_of(draft)
    near = near_of(member, dataset, dataset.labels, seed)
    candidates = min(CANDIDATES, draft.labels.n_names)
    parts = replace(combined_parts([member], None, candidates, BEAM_WIDTH), near=near)
    combined = parts.draft(no_ranker(parts) if ranker is None else ranker, draft.seed, {})
    parameters: dict[str, Any] = {**combined.trainer.parameters, "members": [draft.trainer.name]}
    return replace(combined, trainer=TrainerInfo(combined.trainer.name, parameters))
