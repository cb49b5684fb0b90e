"""What is known of a label at a node: the probabilities of the node's children for the label's rows."""

import numpy as np

from model_store.compiled.decorators import inlined
from model_store.compiled.handles import F32
from service.trainers.softmax.tree import LabelStatistics, Network, SoftmaxTree


@inlined
def branch_at(label: int, node: int, tree: SoftmaxTree) -> int:
    """Return the child of a node on the label's path until now; -1 where the path does not pass it."""
    if node < 0:
        return -1
    at, branch = tree.leaf_node[label], tree.leaf_branch[label]
    while at >= 0 and at != node:
        branch = tree.branch[at]
        at = tree.parent[at]
    return int(branch) if at == node else -1


@inlined
def probabilities_of(
    label: int,
    node: int,
    own: int,
    tree: SoftmaxTree,
    network: Network,
    statistics: LabelStatistics,
    p_out: F32,
) -> int:
    """Write p_{j|i} of a label at a node, float32[M]; return of how many rows it is, 0 where nobody knows it.

    own  the child of the node on the label's path, -1 where it does not pass
    """
    if len(statistics.means) > 0:
        if statistics.seen[label] > 0:
            _softmax_of(node, label, tree, network, statistics.means, p_out)
        return int(statistics.seen[label])
    level = tree.level[node]
    if own < 0 or statistics.counts[label, level] <= 1:
        return 0
    for j in range(len(p_out)):
        p_out[j] = statistics.sums[label, level, j] / statistics.counts[label, level]
    return int(statistics.counts[label, level])


@inlined
def _softmax_of(node: int, label: int, tree: SoftmaxTree, network: Network, means: F32, p_out: F32) -> None:
    """Write softmax(W_n mean + b_n) of a label's mean representation, 0 where there is no child."""
    greatest = np.float32(-np.inf)
    for j in range(len(p_out)):
        total = network.bias[node, j]
        for f in range(means.shape[1]):
            total += network.weights[node, j, f] * means[label, f]
        p_out[j] = total
        if tree.child[node, j] != -1:
            greatest = max(greatest, total)
    total = np.float32(0.0)
    for j in range(len(p_out)):
        p_out[j] = np.exp(p_out[j] - greatest) if tree.child[node, j] != -1 else np.float32(0.0)
        total += p_out[j]
    for j in range(len(p_out)):
        p_out[j] /= total
