"""`xylem train ... --rerank`: re-rank a model's candidates by its scores and near training rows.

The ranker is fitted to candidates by folds. The published version is a combined version of one
member, which is trained on all rows. It is kept only if the held-out rows gain by it.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from xylem.base import BadParameter, Dataset, OnProgress, one_step
from xylem.vocabulary.combined import CombinedParts, combined_parts
from xylem.vocabulary.folds import PartTrainer, candidates_by_folds
from xylem.vocabulary.near_rows import check_rerank, near_of
from xylem.vocabulary.ranker import (
    BOOSTED_ROWS,
    fit_ranker,
    gain_of,
    precisions,
    rank_by_folds,
)
from xylem_store import Draft, Model, TrainerInfo, model_of

# The number of labels of a row that are ranked.
CANDIDATES = 30

BEAM_WIDTH = 10


def rerank(
    draft: Draft,
    dataset: Dataset,
    train_part: PartTrainer,
    seed: int,
    on_progress: OnProgress,
) -> tuple[Draft, dict[str, Any]]:
    """Return a trained model with a ranker of its candidates, or the draft if that gains nothing.

    The second part is what held-out rows gained, which a version's report keeps.

    draft       trained on all rows of the data set
    train_part  trains on some of them in the same way

    Raises BadParameter for a model whose candidates cannot be ranked, and for fewer than
    BOOSTED_ROWS rows. Deterministic. Cost: that of `candidates_by_folds`; three rankers are fitted,
    two of them to half of the rows.
    """
    check_rerank(draft.link, draft.trainer.name)
    if dataset.n_rows < BOOSTED_ROWS:
        raise BadParameter(f"rerank: expected at least {BOOSTED_ROWS} rows, found {dataset.n_rows}")
    folded = candidates_by_folds(
        dataset,
        [model_of(draft)],
        [train_part],
        lambda members, training: _parts(members[0], training, seed),
        draft.labels,
        seed=seed,
        on_progress=on_progress,
    )
    joined = folded.candidates
    with one_step(on_progress, "rerank"):
        member = precisions(joined, -joined.features[:, 1].astype(np.float64))
        report = gain_of(
            member, precisions(joined, rank_by_folds("boosted", joined, seed)), len(joined.ptr) - 1
        )
        if report["kept"]:
            combined = _parts(model_of(draft), dataset, seed).draft(
                fit_ranker("boosted", joined, np.arange(len(joined.ptr) - 1), seed), draft.seed, {}
            )
            parameters: dict[str, Any] = {
                **combined.trainer.parameters,
                "members": [draft.trainer.name],
            }
            draft = replace(combined, trainer=TrainerInfo(combined.trainer.name, parameters))
    return draft, report


def _parts(member: Model, dataset: Dataset, seed: int) -> CombinedParts:
    """Return the parts of a combination of one model, with near rows of its training rows."""
    near = near_of(member, dataset, dataset.labels, seed)
    return replace(
        combined_parts([member], None, min(CANDIDATES, member.labels.n_names), BEAM_WIDTH),
        near=near,
    )
