"""The objective J of LdSM: the running sums of a node, the best directions of a row, and the J of
a finished split.

A *direction set* is a set of children as an integer, bit m for child m. The running means of the
paper are stored as sums, which are the same numbers without divisions: `totals`[m] = C_v P_m and
`sums`[k, m] = l_v[k] P_m^k.
"""

from typing import Any, NamedTuple

import numpy as np

from xylem.engine import place
from xylem.trainers.kernels.problem import Integer, NodeLabels
from xylem_store import F64, I32, U16, inlined, kernel, nonallocating_inlined


class Tally(NamedTuple):
    """The running sums of a node with M children, over all epochs.

    n_seen  float64[1]     C_v: number of labels seen, with repeats
    totals  float64[M]     C_v P_m
    sums    float64[k * M]  l_v[k] P_m^k, label by label
    n_sent  float64[2^M]   number of children in each direction set
    shares  float64[M]     h of each child for the row that is counted
    terms   float64[M (M + 1) / 2 + 2^(M - 1) + 2^M]  workspace: the term that each child alone adds
            to J; the term of two children if both get the row; what a child adds to each set of
            those before it; J of each direction set, without the multi-way penalty. They are one
            array: then the compiler knows that no two of them overlap
    """

    n_seen: F64
    totals: F64
    sums: F64
    n_sent: F64
    shares: F64
    terms: F64


@inlined
def empty_tally(n_labels: int, n_children: int) -> Any:
    """Return the tally of a node that has seen no row."""
    n_sent = np.zeros(1 << n_children)
    for directions in range(1, 1 << n_children):
        n_sent[directions] = n_sent[directions >> 1] + (directions & 1)
    return Tally(
        n_seen=np.zeros(1),
        totals=np.zeros(n_children),
        sums=np.zeros(n_labels * n_children),
        n_sent=n_sent,
        shares=np.zeros(n_children),
        terms=np.zeros(n_children * (n_children + 1) // 2 + (3 << (n_children - 1))),
    )


@nonallocating_inlined
def _add_gaps(
    tally: Tally, n_children: int, sums: F64, first: Integer, bounds: tuple[float, float]
) -> None:
    """Add weight * sum over j < l of |gap_jl + size (s_j - s_l)| to J, as terms of a polynomial.

    s_m is 1 if child m gets the row, else 0; gap_jl is the difference of the sums of children j and
    l, which begin at sums[first]. With odd = max(-size, min(gap, size)) and even = max(0, size -
    |gap|), a term is |gap| + odd (s_j - s_l) + even (s_j + s_l - 2 s_j s_l); |gap| is left out, as
    it is the same for every direction set.

    bounds  size, weight
    """
    size, weight = bounds
    terms = tally.terms
    pair = n_children
    for l in range(1, n_children):  # noqa: E741 (the paper's index)
        sum_l = sums[place(first + l)]
        linear_l = 0.0
        for j in range(l):
            gap = sums[place(first + j)] - sum_l
            odd = weight * max(-size, min(gap, size))
            even = weight * max(0.0, size - abs(gap))
            terms[place(j)] += even + odd
            linear_l += even - odd
            terms[place(pair)] -= 2.0 * even
            pair += 1
        terms[place(l)] += linear_l


@nonallocating_inlined
def _tabulate(tally: Tally, n_children: int, labels: NodeLabels, i: Integer, lambda1: float) -> Any:
    """Write C_v J of every direction set of row i; return the position of the first in the terms.

    The values lack the multi-way penalty, and a constant that is common to all sets. J is computed
    as a polynomial in s, which needs one pass over the labels of the row instead of one for each
    set. Its values are computed by doubling: a set whose last child is l is a set of children below
    l, and l.
    """
    terms = tally.terms
    added = n_children * (n_children + 1) // 2
    values = added + (1 << (n_children - 1))
    for k in range(added):
        terms[place(k)] = 0.0
    size = np.float64(labels.ptr[i + 1] - labels.ptr[i])
    _add_gaps(tally, n_children, tally.totals, 0, (size, 1.0))
    for e in range(labels.ptr[i], labels.ptr[i + 1]):
        first = labels.ranks[place(e)] * n_children
        _add_gaps(tally, n_children, tally.sums, first, (1.0, -lambda1))
    terms[place(values)] = 0.0
    pair = n_children
    for l in range(n_children):  # noqa: E741
        terms[place(added)] = terms[place(l)]
        for j in range(l):
            pair_term = terms[place(pair)]
            pair += 1
            for lower in range(1 << j):
                terms[place(added + (1 << j) + lower)] = terms[place(added + lower)] + pair_term
        for lower in range(1 << l):
            terms[place(values + (1 << l) + lower)] = (
                terms[place(values + lower)] + terms[place(added + lower)]
            )
    return values


@nonallocating_inlined
def best_directions(
    tally: Tally,
    n_children: int,
    labels: NodeLabels,
    i: Integer,
    lambdas: tuple[float, float],
) -> Any:
    """Return the direction set of row i with the least J, and count the row's labels as seen.

    Source: LdSM, algorithm 3 (OptimizeObjective), and the two counters of algorithm 4. J is
    multiplied by C_v, which does not move its minimum. As in the paper, the class integrity is
    summed over the row's labels only: other labels add the same to every set. For equal J (as
    rounded) it is the smallest set. A row without labels gets set 1. Cost: M^2 / 2 for each label,
    and 3 for each of 2^M - 1 sets.

    n_children  a constant, where the caller has one: loops are unrolled then
    """
    size = np.float64(labels.ptr[i + 1] - labels.ptr[i])
    tally.n_seen[0] += size
    values = _tabulate(tally, n_children, labels, i, lambdas[0])
    surplus = -tally.n_seen[0]
    for m in range(n_children):
        surplus += tally.totals[place(m)]
    least = np.inf
    best = 1
    for directions in range(1, 1 << n_children):
        value = tally.terms[place(values + directions)] + lambdas[1] * abs(
            surplus + size * tally.n_sent[place(directions)]
        )
        if value < least:
            least = value
            best = directions
    return best


@nonallocating_inlined
def count_shares(tally: Tally, labels: NodeLabels, i: Integer) -> None:
    """Add row i with `tally.shares` to the sums of the children.

    These are the updates of P_m and P_m^k at the end of algorithm 4.
    """
    shares = tally.shares
    n_children = len(shares)
    for m in range(n_children):
        tally.totals[m] += shares[m] * (labels.ptr[i + 1] - labels.ptr[i])
    for e in range(labels.ptr[i], labels.ptr[i + 1]):
        first = labels.ranks[place(e)] * n_children
        for m in range(n_children):
            tally.sums[place(first + m)] += shares[m]


@kernel
def count_labels(labels: NodeLabels, directions: U16, n_children: int) -> I32:
    """Return int32[k, n_children]: the number of rows with each label that go to each child."""
    counts = np.zeros((len(labels.used), n_children), np.int32)
    for i in range(len(directions)):
        for e in range(labels.ptr[i], labels.ptr[i + 1]):
            for m in range(n_children):
                counts[labels.ranks[e], m] += (directions[i] >> m) & 1
    return counts


@kernel
def split_quality(
    labels: NodeLabels, counts: I32, lambda1: float, lambda2: float
) -> tuple[float, float, float]:
    """Return J, the balancedness factor beta and the purity factor alpha of a split.

    Source: LdSM, equation 1 and definitions 1 and 2. P_j^i is the share of label i's rows that go
    to child j, pi_i is label i's share of all labels of the rows, and P_j is the sum of pi_i P_j^i.
    They count whole rows, while the training adds up the values of the regressors. J is in
    [-lambda1 (M - 1), lambda2 (M - 1)] if lambda2 / lambda1 > M - 3 (lemma 2) and, for the upper
    end, lambda1 >= 1; beta is in [0, 1 - 1/M]; alpha is in [0, 1]. There must be at least one
    label.

    counts  int32[k, M]  from `count_labels`
    """
    n_children = counts.shape[1]
    label_rows = np.zeros(len(labels.used))
    for rank in labels.ranks:
        label_rows[rank] += 1
    n_all = np.float64(len(labels.ranks))
    child_share = np.zeros(n_children)
    integrity = 0.0
    alpha = 0.0
    for k in range(len(label_rows)):
        row_sum = 0.0
        for j in range(n_children):
            row_sum += counts[k, j]
        for j in range(n_children):
            child_share[j] += counts[k, j] / n_all
            alpha += min(np.float64(counts[k, j]), row_sum - counts[k, j]) / n_all
            for l in range(j + 1, n_children):  # noqa: E741
                integrity += abs(counts[k, j] - counts[k, l]) / n_all
    balance = 0.0
    beta = 0.0
    for j in range(n_children):
        beta = max(beta, abs(child_share[j] - child_share.mean()))
        for l in range(j + 1, n_children):  # noqa: E741
            balance += abs(child_share[j] - child_share[l])
    j_value = balance - lambda1 * integrity + lambda2 * abs(child_share.sum() - 1.0)
    return j_value, beta, alpha / n_children
