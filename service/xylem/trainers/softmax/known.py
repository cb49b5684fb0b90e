"""The statistics of a label at a node (the probabilities of the node's children for the label's
rows), and the quality of nodes that follows from them: objective J, balance and purity.

Source: Jernite, Choromanska and Sontag 2017, "Simultaneous Learning of Trees and Representations
for Extreme Classification and Density Estimation", equation 6, definitions 1 and 2, lemmas 2 and 3.
"""

import numpy as np

from xylem.trainers.softmax.tree import LearningState, SoftmaxTree
from xylem_store import F32, F64, I32, inlined, kernel


@inlined
def branch_at(label: int, node: int, tree: SoftmaxTree) -> int:
    """Return the child of a node on the path of a label; -1 if the path does not pass the node."""
    if node < 0:
        return -1
    ancestor = tree.leaf_node[label]
    branch = tree.leaf_branch[label]
    while ancestor >= 0 and ancestor != node:
        branch = tree.branch[ancestor]
        ancestor = tree.parent[ancestor]
    return int(branch) if ancestor == node else -1


@inlined
def probabilities_of(label: int, node: int, branch: int, state: LearningState, p_out: F32) -> int:
    """Write p_{j|i} of a label at a node; return the number of rows from which it is computed.

    It is 0 if there are no statistics of the label at the node.

    branch  child of the node on the label's path; -1: the path does not pass the node
    p_out   float32[M]
    """
    statistics = state.statistics
    level = state.tree.level[node]
    if len(statistics.means) == 0:
        if branch < 0 or statistics.counts[label, level] <= 1:
            return 0
        for j in range(len(p_out)):
            p_out[j] = statistics.sums[label, level, j] / statistics.counts[label, level]
        return int(statistics.counts[label, level])
    if statistics.n_rows[label] == 0:
        return 0
    # softmax(W_n mean + b_n) of the label's mean representation, 0 where there is no child
    child = state.tree.child
    network = state.network
    means = statistics.means
    greatest = np.float32(-np.inf)
    for j in range(len(p_out)):
        total = network.bias[node, j]
        for f in range(means.shape[1]):
            total += network.weights[node, j, f] * means[label, f]
        p_out[j] = total
        if child[node, j] != -1:
            greatest = max(greatest, total)
    total = np.float32(0.0)
    for j in range(len(p_out)):
        p_out[j] = np.exp(p_out[j] - greatest) if child[node, j] != -1 else np.float32(0.0)
        total += p_out[j]
    for j in range(len(p_out)):
        p_out[j] /= total
    return int(statistics.n_rows[label])


# Columns of `measure_nodes`.
MASS, OBJECTIVE, GREATEST, PURITY = range(4)


@kernel
def measure_nodes(labels: I32, share: F64, state: LearningState) -> F64:
    """Return float64[N, 4]: the mass, J, J* and alpha of each node.

    labels  int32[n]: the labels with a leaf
    share   float64[K]: share of the training rows of each label

    The mass of a node is the sum of the shares of the labels below it that have statistics; q_i is
    label i's share of it. All four are 0 if no label has any. For a node with M children (empty
    places are not counted), J = (2 / M) sum_i q_i sum_j |p_j - p_{j|i}|, J* = (4 / M) (1 - 1 / M),
    alpha = (1 / M) sum_i q_i sum_j min(p_{j|i}, 1 - p_{j|i}), where 0 is pure. Cost: twice O(M D)
    for each node on each label's path.
    """
    tree = state.tree
    n_nodes, n_children = tree.child.shape
    measures = np.zeros((n_nodes, 4))
    mean = np.zeros((n_nodes, n_children))
    p = np.zeros(n_children, np.float32)
    for pass_number in range(2):
        for label in labels:
            node = tree.leaf_node[label]
            branch = tree.leaf_branch[label]
            while node >= 0:
                if probabilities_of(label, node, branch, state, p) > 0:
                    if pass_number == 0:
                        measures[node, MASS] += share[label]
                    for j in range(n_children):
                        if pass_number == 0:
                            mean[node, j] += share[label] * p[j]
                        elif tree.child[node, j] != -1:
                            gap = abs(mean[node, j] / measures[node, MASS] - p[j])
                            measures[node, OBJECTIVE] += share[label] * gap
                            measures[node, PURITY] += share[label] * min(
                                p[j], np.float32(1.0) - p[j]
                            )
                branch = tree.branch[node]
                node = tree.parent[node]
    for node in range(n_nodes):
        if measures[node, MASS] > 0:
            m = np.count_nonzero(tree.child[node] != -1)
            measures[node, OBJECTIVE] *= 2.0 / (m * measures[node, MASS])
            measures[node, PURITY] /= m * measures[node, MASS]
            measures[node, GREATEST] = 4.0 / m * (1.0 - 1.0 / m)
    return measures
