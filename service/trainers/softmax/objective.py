"""What the nodes of a tree are worth by what is known of their labels: objective J, balance and purity.

Source: Jernite, Choromanska and Sontag 2017, "Simultaneous Learning of Trees and Representations for Extreme
Classification and Density Estimation", equation 6, definitions 1 and 2, lemmas 2 and 3.
"""

import numpy as np

from model_store.compiled.decorators import kernel
from model_store.compiled.handles import F64, I32
from service.trainers.softmax.known import probabilities_of
from service.trainers.softmax.tree import LabelStatistics, Network, SoftmaxTree

MASS, OBJECTIVE, GREATEST, PURITY = range(4)
"""Columns of `measure_nodes`."""


@kernel
def measure_nodes(
    labels: I32, share: F64, tree: SoftmaxTree, network: Network, statistics: LabelStatistics
) -> F64:
    """Return float64[N, 4], a node's mass, J, J* and alpha; 0 where no label below it is known.

    labels  int32[n], those with a leaf
    share   float64[K]: of the training rows

    The mass of a node is the sum of the shares of the labels below it that are known, q_i a label's part of
    that. Of a node of M children (those that there are), J = (2 / M) sum_i q_i sum_j |p_j - p_{j|i}|,
    J* = (4 / M) (1 - 1 / M), alpha = (1 / M) sum_i q_i sum_j min(p_{j|i}, 1 - p_{j|i}): 0 is pure.
    Cost: twice O(M D) for each node on each label's path.
    """
    n_nodes, n_children = tree.child.shape
    found = np.zeros((n_nodes, 4))
    mean = np.zeros((n_nodes, n_children))
    p = np.zeros(n_children, np.float32)
    for turn in range(2):
        for label in labels:
            node, own = tree.leaf_node[label], tree.leaf_branch[label]
            while node >= 0:
                if probabilities_of(label, node, own, tree, network, statistics, p) > 0:
                    if turn == 0:
                        found[node, MASS] += share[label]
                    for j in range(n_children):
                        if turn == 0:
                            mean[node, j] += share[label] * p[j]
                        elif tree.child[node, j] != -1:
                            gap = abs(mean[node, j] / found[node, MASS] - p[j])
                            found[node, OBJECTIVE] += share[label] * gap
                            found[node, PURITY] += share[label] * min(p[j], np.float32(1.0) - p[j])
                own = tree.branch[node]
                node = tree.parent[node]
    for node in range(n_nodes):
        if found[node, MASS] > 0:
            m = 0
            for j in range(n_children):
                m += tree.child[node, j] != -1
            found[node, OBJECTIVE] *= 2.0 / (m * found[node, MASS])
            found[node, PURITY] /= m * found[node, MASS]
            found[node, GREATEST] = 4.0 / m * (1.0 - 1.0 / m)
    return found
