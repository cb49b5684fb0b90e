"""The probabilities of labels that a caller names: each along its path, without a search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model_store.calibration import Calibration
from model_store.compiled.decorators import nonallocating_kernel as kernel
from model_store.compiled.handles import struct_at
from model_store.ensemble import TreeEnsemble
from service.kernels.search.calibrated import calibrated
from service.kernels.search.call import Call
from service.kernels.search.query import Search
from service.kernels.search.queue_workspace import QueueWorkspace
from service.kernels.search.scores import label_probability, start_row
from service.kernels.search.scoring import Scorer
from service.kernels.search.workspace import Workspace


@kernel
def score_rows(
    call_at: NDArray[np.int64],
    label_ptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    score_out: NDArray[np.float32],
    log_out: NDArray[np.float32],
) -> None:
    """Write the scores of the labels named for each row of a Call, whose `own` is a QueueWorkspace.

    label_ptr          int64[rows + 1]: row i of the call's has labels[label_ptr[i] : label_ptr[i + 1]]
    score_out, log_out  float32[labels]: the probability, the mean over the trees, with the bits of an exact
                       search, calibrated as its scores are, and its logarithm; 0 and -inf where no tree has
                       a leaf for the label

    Cost: the chunks on the labels' paths, each once a row.
    """
    call = struct_at(Call, call_at)
    ensemble, scorer = struct_at(TreeEnsemble, call.ensemble), Scorer(call.scorer, call_at)
    link = struct_at(Search, call.search).link
    work, queue = struct_at(Workspace, call.work), struct_at(QueueWorkspace, call.own)
    knots = struct_at(Calibration, call.calibration)
    for row in range(call.first, call.last):
        start_row(ensemble, row, queue)
        for i in range(label_ptr[row], label_ptr[row + 1]):
            score_out[i] = label_probability(ensemble, link, labels[i], scorer, queue, work)
            if len(knots.x) > 0:
                score_out[i] = calibrated(knots.x, knots.y, score_out[i])
            log_out[i] = np.log(score_out[i])
            if len(knots.x) == 0 and len(ensemble.label_leaf) == 1 and ensemble.label_leaf[0, labels[i]] >= 0:
                log_out[i] = queue.node_score[ensemble.label_leaf[0, labels[i]]]
