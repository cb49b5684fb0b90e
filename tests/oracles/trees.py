"""Slow and obvious: random forests, and the probability of every label by walking every path."""

import itertools
from collections.abc import Callable

import numpy as np

from tests.oracles.softmax_trees import softmax
from xylem_store.build import build_ensemble
from xylem_store.ensemble import Chunk, Tree, TreeEnsemble

LINKS = {
    "hinge2": lambda m: np.exp(-(np.maximum(0.0, 1.0 - m) ** 2)),
    "hinge3": lambda m: np.exp(-(np.maximum(0.0, 1.0 - m) ** 3)),
    "logistic": lambda m: 1.0 / (1.0 + np.exp(-m)),
}


def random_chunk(
    rng: np.random.Generator, n_features: int, n_children: int, scale: float = 1.0
) -> Chunk:
    """Return a chunk with rows of every density, from almost empty to full."""
    n_rows = int(rng.integers(0, n_features + 1))
    features = np.sort(rng.choice(n_features, n_rows, replace=False)).astype(np.int32)
    kept = rng.random((n_rows, n_children)) < rng.random((n_rows, 1))
    if n_rows:
        kept[np.arange(n_rows), rng.integers(0, n_children, n_rows)] = True
    rows, child = np.nonzero(kept)
    return Chunk(
        features=features,
        row_ptr=np.searchsorted(rows, np.arange(n_rows + 1)).astype(np.int64),
        child=child.astype(np.int32),
        weight=(scale * rng.standard_normal(len(child))).astype(np.float32),
        bias=(scale * rng.standard_normal(n_children)).astype(np.float32),
    )


def random_tree(rng: np.random.Generator, n_labels: int, n_features: int, arity: int) -> Tree:
    """Return an unbalanced label tree over a random subset of the labels."""
    n_kept = int(rng.integers(1, n_labels + 1))
    labels = rng.permutation(n_labels)[:n_kept]
    groups: list[np.ndarray] = [labels]
    child_ptr, node_label, chunks = [1], [], []
    position = 0
    while position < len(groups):
        group = groups[position]
        is_leaf = len(group) == 1 and position > 0
        if not is_leaf:
            n_children = int(min(len(group), rng.integers(1 if len(group) == 1 else 2, arity + 1)))
            parts = np.array_split(group, n_children)
            if n_children > 1 and len(group) > n_children:
                cuts = np.sort(rng.choice(np.arange(1, len(group)), n_children - 1, replace=False))
                parts = np.split(group, cuts)
            groups.extend(parts)
        node_label.append(int(group[0]) if is_leaf else -1)
        chunks.append(None if is_leaf else random_chunk(rng, n_features, n_children))
        child_ptr.append(len(groups))
        position += 1
    return Tree(np.array(child_ptr, np.int32), np.array(node_label, np.int32), chunks)


def random_forest(
    seed: int,
    *,
    n_trees: int,
    n_labels: int,
    n_features: int,
    arity: int,
    weights: str = "float32",
    make_tree: Callable[[np.random.Generator, int, int, int], Tree] = random_tree,
) -> tuple[list[Tree], TreeEnsemble]:
    """Return trees and their ensemble, its arrays read-only as when mapped."""
    rng = np.random.default_rng(seed)
    trees = [make_tree(rng, n_labels, n_features, arity) for _ in range(n_trees)]
    ensemble = build_ensemble(trees, n_labels, n_features, weights)
    for array in ensemble:
        array.setflags(write=False)
    return trees, ensemble


def random_rows(
    seed: int, n_rows: int, n_features: int, *, whole: bool = False
) -> list[tuple[str, list[str]]]:
    """Return (indptr, indices, values) of rows from empty to full; `whole`: of whole numbers."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, n_features + 1, n_rows)
    indices = [np.sort(rng.choice(n_features, size, replace=False)) for size in sizes]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = rng.integers(-2, 3, indptr[-1]) if whole else rng.standard_normal(indptr[-1])
    return indptr, np.concatenate([*indices, []]).astype(np.int32), values.astype(np.float32)


def row_dicts(rows: tuple[np.ndarray, ...]) -> list[dict[int, float]]:
    """Return {feature: value} of each row."""
    indptr, indices, values = rows
    return [
        dict(zip(indices[a:b].tolist(), values[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(indptr)
    ]


def node_margins(tree: Tree, row: dict[int, float]) -> np.ndarray:
    """Return the margin of every node but the root, float64."""
    margins = np.zeros(len(tree.child_ptr) - 1)
    for node, chunk in enumerate(tree.chunks):
        if chunk is None:
            continue
        first = tree.child_ptr[node]
        margins[first : tree.child_ptr[node + 1]] = chunk.bias
        for i, feature in enumerate(chunk.features.tolist()):
            for j in range(chunk.row_ptr[i], chunk.row_ptr[i + 1]):
                margins[first + chunk.child[j]] += row.get(feature, 0.0) * float(chunk.weight[j])
    return margins


def node_probabilities(tree: Tree, link: str, row: dict[int, float]) -> np.ndarray:
    """Return the probability of every node but the root given its parent, float64."""
    margins = node_margins(tree, row)
    if link in LINKS:
        return LINKS[link](margins)
    for first, last in itertools.pairwise(tree.child_ptr.tolist()):
        if last > first:
            margins[first:last] = softmax(margins[first:last])
    return margins


def label_probabilities(
    trees: list[Tree], link: str, row: dict[int, float], n_labels: int
) -> np.ndarray:
    """Return the mean over the trees of every label's product along its path, float64[n_labels]."""
    total = np.zeros(n_labels)
    for tree in trees:
        probability = node_probabilities(tree, link, row)
        probability[0] = 1.0
        for node in range(len(tree.chunks)):
            for child in range(tree.child_ptr[node], tree.child_ptr[node + 1]):
                probability[child] *= probability[node]
        for node, label in enumerate(tree.node_label.tolist()):
            if label >= 0:
                total[label] += probability[node]
    return total / len(trees)


def beam_probabilities(
    trees: list[Tree], link: str, row: dict[int, float], n_labels: int, beam_width: int
) -> tuple[np.ndarray, bool]:
    """Return label_probabilities as a beam sees them: 0 for leaves that no beam reached.

    And whether float32 can tell the nodes that were kept from those that were not.
    """
    total, is_clear = np.zeros(n_labels), True
    for tree in trees:
        found, found_clearly = beam_passing(tree, link, row, beam_width, np.zeros(n_labels))
        total += found
        is_clear &= found_clearly
    return total / len(trees), is_clear


def beam_passing(
    tree: Tree, link: str, row: dict[int, float], beam_width: int, thresholds: np.ndarray
) -> tuple[np.ndarray, bool]:
    """Return what a beam with thresholds finds in one tree:
    probabilities, 0 for what it does not reach.

    Nodes below the least threshold under them are not kept, and unused width goes to the next
    level.
    """
    probability = node_probabilities(tree, link, row)
    probability[0] = 1.0
    found, is_clear = np.zeros(len(thresholds)), True
    least = [thresholds[label] if label >= 0 else np.inf for label in tree.node_label.tolist()]
    for node in range(len(least) - 1, -1, -1):
        children = least[tree.child_ptr[node] : tree.child_ptr[node + 1]]
        least[node] = min([least[node], *children])
    beam, width = [0], beam_width
    while beam:
        inner = []
        for node in beam:
            for child in range(tree.child_ptr[node], tree.child_ptr[node + 1]):
                probability[child] *= probability[node]
                is_clear &= (
                    abs(probability[child] - least[child]) > 1e-4 * least[child]
                    or least[child] == 0
                )
                if probability[child] < least[child]:
                    continue
                if tree.node_label[child] >= 0:
                    found[tree.node_label[child]] = probability[child]
                else:
                    inner.append(child)
        ranked = sorted(inner, key=lambda n: (-probability[n], n))
        beam, rest = ranked[:width], ranked[width:]
        is_clear &= not rest or probability[beam[-1]] > (1 + 1e-4) * probability[rest[0]]
        if thresholds.any():
            width += beam_width - len(beam)
    return found, bool(is_clear)
