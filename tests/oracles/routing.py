"""Slow and obvious: random decision trees with small whole numbers,
and rows sent down them one by one.

Whole numbers have no rounding, so margins of 0 and equal margins are frequent and the same
everywhere.
"""

from functools import partial

import numpy as np

from tests.oracles.trees import node_margins, random_chunk, random_forest, random_rows
from xylem_store.ensemble import Chunk, Tree


def random_decision_tree(
    rng: np.random.Generator, n_labels: int, n_features: int, arity: int
) -> Tree:
    """Return an unbalanced tree of at most some thirty nodes; some of its leaves are empty."""
    n_inner = int(rng.integers(0, 9))
    child_ptr, chunks, histograms, n_nodes, node = [1], [], [], 1, 0
    while node < n_nodes:
        is_inner = n_inner > 0 and (n_nodes == node + 1 or rng.random() < 0.6)
        n_children = int(rng.integers(1, arity + 1)) if is_inner else 0
        chunk = random_chunk(rng, n_features, n_children) if is_inner else None
        chunks.append(chunk and _in_whole_numbers(rng, chunk))
        histograms.append(None if is_inner else _histogram(rng, n_labels))
        n_inner -= is_inner
        n_nodes += n_children
        child_ptr.append(n_nodes)
        node += 1
    return Tree(np.array(child_ptr, np.int32), np.full(n_nodes, -1, np.int32), chunks, histograms)


def _in_whole_numbers(rng: np.random.Generator, chunk: Chunk) -> Chunk:
    weight = rng.integers(-3, 4, len(chunk.weight)).astype(np.float32)
    return chunk._replace(
        weight=weight, bias=rng.integers(-2, 3, len(chunk.bias)).astype(np.float32)
    )


def _histogram(rng: np.random.Generator, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.flatnonzero(rng.random(n_labels) < rng.choice([0.0, 0.2, 0.6])).astype(np.int32)
    return labels, rng.integers(0, 9, len(labels)).astype(np.float32) / 8


random_decision_forest = partial(random_forest, make_tree=random_decision_tree)
whole_rows = partial(random_rows, whole=True)


def leaves_reached(tree: Tree, link: str, row: dict[int, float]) -> list[int]:
    """Return the leaves of the tree that the row reaches, empty ones too."""
    margins = node_margins(tree, row)
    todo, leaves = [0], []
    while todo:
        node = todo.pop()
        children = list(range(tree.child_ptr[node], tree.child_ptr[node + 1]))
        if not children:
            leaves.append(node)
            continue
        chosen = [child for child in children if margins[child] > 0] if link == "multiway" else []
        todo += chosen or [children[int(np.argmax(margins[children]))]]
    return sorted(leaves)


def routed_scores(trees: list[Tree], link: str, row: dict[int, float], n_labels: int) -> np.ndarray:
    """Return every label's score, float64[n_labels]."""
    total = np.zeros(n_labels)
    for tree in trees:
        reached = [tree.histograms[leaf] for leaf in leaves_reached(tree, link, row)]
        full = [histogram for histogram in reached if len(histogram[0])]
        for labels, values in full:
            total[labels] += values / len(full)
    return total / len(trees)


def reranked_scores(
    scores: np.ndarray, arrays: dict[str, np.ndarray], row: dict[int, float]
) -> np.ndarray:
    """Return the scores re-ranked by the re-ranking arrays of a version."""
    alpha, gamma = arrays["tail/parameters"].tolist()
    length = np.sqrt(sum(value * value for value in row.values()))
    x = {feature: value / length for feature, value in row.items()} if length else {}
    found = np.zeros(len(scores))
    for label in np.flatnonzero(scores).tolist():
        own = slice(*arrays["tail/ptr"][label : label + 2])
        pairs = zip(
            arrays["tail/features"][own].tolist(), arrays["tail/values"][own].tolist(), strict=True
        )
        product = sum(value * x.get(feature, 0.0) for feature, value in pairs)
        distance = max(0.0, (length > 0) - 2 * product + float(arrays["tail/norm2"][label]))
        found[label] = scores[label] ** alpha * np.exp(-gamma / 2 * distance) ** (1 - alpha)
    return found
