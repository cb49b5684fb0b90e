"""Log-scores of nodes, for the exact and threshold traversals, which score each chunk at most once
a row; and the probabilities of requested labels.

`node_score[n]` is valid while `node_stamp[n]` equals the row's stamp. A label's probability is the
mean over the trees of exp(log-score of its leaf), 0 in a tree without a leaf of it.

Links turn margins into logarithms of probabilities: Lin, Liu and Lin 2024 section 2 (squared
hinge), PECOS (cubed hinge), Jasinska et al. 2016 section 5 (logistic). Scores are summed as
logarithms, so the hinges need no exponential at all.
"""

from typing import NamedTuple

import numpy as np

from xylem.engine.kernels.search.calibrated import calibrated
from xylem.engine.kernels.search.call import ONE_F32, ZERO_F32, Call
from xylem.engine.kernels.search.scoring import ALONE, CallParts, call_scorer, parts_of
from xylem_store import (
    F32,
    F32_1,
    I32,
    I32_1,
    I64,
    I64_1,
    LANES,
    LINK_CODES,
    Calibration,
    TreeEnsemble,
    handle,
    nonallocating_inlined as inlined,
    nonallocating_kernel as kernel,
    struct_at,
    vadd,
    vbroadcast,
    vexp,
    vload,
    vlog,
    vmax,
    vmin,
    vmul,
    vstore,
    vsub,
    zeros,
)

HINGE3, LOGISTIC, SOFTMAX = (LINK_CODES[link] for link in ("hinge3", "logistic", "softmax"))

# exp of this is about the least normal float32, and negligible beside 1
_EXPONENT_MIN = np.float32(-87.0)


_LEAST = np.float32(-1e4)  # the least logarithm of a softmax, so that sums over a path stay finite


@inlined
def _log_softmax(n_children: int, margins: F32) -> None:
    """Turn the margins of all children of a node into the logarithms of their softmax, at most 0.

    Infinite margins count as very large numbers. If one margin is NaN, all results are NaN.
    """
    bound = np.float32(np.finfo(np.float32).max / 4)
    greatest = -bound
    for j in range(n_children):
        if np.isnan(margins[j]):
            margins[:n_children] = np.float32(np.nan)
            return
        margins[j] = min(max(margins[j], -bound), bound)
        greatest = max(greatest, margins[j])
    total = 0.0  # in double precision: a node of a flat tree may have 65,536 children
    for j in range(n_children):
        margins[j] = max(margins[j] - greatest, _LEAST)
        total += np.exp(margins[j])
    log_total = np.float32(np.log(total))
    for j in range(n_children):
        margins[j] = min(margins[j] - log_total, ZERO_F32)


@inlined
def log_links(link: int, n_children: int, margins: F32) -> None:
    """Turn each margin m into log p, in [-inf, 0], in place; NaN stays NaN.

    link     one of xylem_store.ensemble.LINK_CODES: hinge2: -max(0, 1 - m)^2; hinge3: -max(0, 1 -
             m)^3; logistic: -log(1 + exp(-m)), with an error of 1e-6 absolute or 1e-4 relative;
             softmax: m - log of the sum of exp(m) over the node's children, at least -1e4
    margins  float32[..], whole vectors of LANES, of which the first n_children elements count
    """
    if link == SOFTMAX:
        _log_softmax(n_children, margins)
        return
    zero = vbroadcast(ZERO_F32)
    ones = vbroadcast(ONE_F32)
    for tile in range(0, n_children, LANES):
        margin = vload(margins, tile)
        if link == LOGISTIC:
            decay = vexp(vmax(vmin(margin, vsub(zero, margin)), vbroadcast(_EXPONENT_MIN)))
            log_p = vsub(vmin(zero, margin), vlog(vadd(ones, decay)))
        else:
            shortfall = vmax(zero, vsub(ones, margin))
            log_p = vsub(zero, vmul(shortfall, shortfall))
            if link == HINGE3:
                log_p = vmul(log_p, shortfall)
        vstore(margins, tile, log_p)


@handle
class QueueWorkspace(NamedTuple):
    """The buffers of searches with a queue; none of them carries data from one row to the next.

    Their size grows with the number of nodes.

    R is top_r, N nodes, I inner nodes, T trees, K labels.

    entry_row         [1]       the row
    stamp             [1]       counts rows, so that stamps need no clearing
    entry_score/node  [I + T]   the queue; with thresholds a list of nodes, which are scored
    node_score/stamp  [N]       log-scores of nodes, valid where the stamp equals the row's
    best_score/label  [R]       the heap of labels: the answer
    leaf_seen         [K or 0]  several trees: a leaf of each label found so far, in that order
    label_stamp       [K or 0]  the row for which a label was last found
    """

    entry_row: I32_1
    stamp: I64_1
    entry_score: F32_1
    entry_node: I32_1
    node_score: F32_1
    node_stamp: I64_1
    best_score: F32_1
    best_label: I32_1
    leaf_seen: I32_1
    label_stamp: I64_1


def make_queue(ensemble: TreeEnsemble, *, top_r: int) -> QueueWorkspace:
    """Allocate the buffers for answers of up to top_r labels."""
    n_trees = int(ensemble.child_ptr[0])
    n_nodes = len(ensemble.parent)
    n_labels = ensemble.label_leaf.shape[1] if n_trees > 1 else 0
    shapes = {
        "entry_row stamp": 1,
        "entry_score entry_node": len(ensemble.directory) + n_trees,
        "node_score node_stamp": n_nodes,
        "best_score best_label": top_r,
        "leaf_seen label_stamp": n_labels,
    }
    return QueueWorkspace(**zeros(QueueWorkspace, shapes))


@inlined
def start_row(ensemble: TreeEnsemble, row: int, queue: QueueWorkspace) -> None:
    """Begin a row: the scores of the row before become invalid, and the roots' log-score is 0."""
    queue.entry_row[0] = row
    queue.stamp[0] += 1
    for root in range(ensemble.child_ptr[0]):
        queue.node_score[root] = np.float32(0.0)
        queue.node_stamp[root] = queue.stamp[0]


@inlined
def record_children(parts: CallParts[QueueWorkspace], node: int, margins: F32) -> None:
    """Set the log-scores of a node's children from their margins."""
    ensemble = parts.ensemble
    queue = parts.traversal_buffers
    score = queue.node_score[node]
    child = ensemble.child_ptr[node]
    n_children = ensemble.child_ptr[node + 1] - child
    log_links(parts.search.link, n_children, margins)
    for j in range(n_children):
        queue.node_score[child + j] = score + margins[j]
        queue.node_stamp[child + j] = queue.stamp[0]


@inlined
def expand(parts: CallParts[QueueWorkspace], node: int) -> None:
    """Score the children of a node, whose own log-score is valid, unless they have been scored."""
    queue = parts.traversal_buffers
    if queue.node_stamp[parts.ensemble.child_ptr[node]] != queue.stamp[0]:
        call_scorer(parts.scorer, ALONE, node, queue.entry_row[0], 0)
        record_children(parts, node, parts.work.margins[0])


@inlined
def label_probability(parts: CallParts[QueueWorkspace], label: int) -> np.float32:
    """Return a label's probability; chunks on its paths that are not scored yet are scored."""
    ensemble = parts.ensemble
    queue = parts.traversal_buffers
    n_trees = ensemble.label_leaf.shape[0]
    total = np.float32(0.0)
    for tree in range(n_trees):
        leaf = ensemble.label_leaf[tree, label]
        if leaf < 0:
            continue
        while queue.node_stamp[leaf] != queue.stamp[0]:
            node = ensemble.parent[leaf]
            while queue.node_stamp[node] != queue.stamp[0]:
                node = ensemble.parent[node]
            expand(parts, node)
        total += np.exp(queue.node_score[leaf])
    return total / np.float32(n_trees)


@kernel
def score_rows(call_at: I64, label_ptr: I64, labels: I32, score_out: F32, log_out: F32) -> None:
    """Write the scores of the requested labels of each row of a Call.

    The Call's `traversal_buffers` are a QueueWorkspace.

    label_ptr           int64[rows + 1]: row i of the Call has the labels
                        labels[label_ptr[i] : label_ptr[i + 1]]
    score_out, log_out  float32[labels]: the label's probability (the mean over the trees,
                        calibrated, the same bits as an exact search answers), and its logarithm; 0
                        and -inf where no tree has a leaf for the label

    Cost: the chunks on the labels' paths, each once a row.
    """
    call = struct_at(Call, call_at)
    parts = parts_of(call_at, QueueWorkspace)
    ensemble = parts.ensemble
    queue = parts.traversal_buffers
    knots = struct_at(Calibration, call.calibration)
    for row in range(call.first, call.last):
        start_row(ensemble, row, queue)
        for i in range(label_ptr[row], label_ptr[row + 1]):
            score_out[i] = label_probability(parts, labels[i])
            if len(knots.x) > 0:
                score_out[i] = calibrated(knots.x, knots.y, score_out[i])
            log_out[i] = np.log(score_out[i])
            if (
                len(knots.x) == 0
                and len(ensemble.label_leaf) == 1
                and ensemble.label_leaf[0, labels[i]] >= 0
            ):
                log_out[i] = queue.node_score[ensemble.label_leaf[0, labels[i]]]
