"""Small models to publish, with random trees that depend on the seed only."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from xylem_store.arrays import group_of
from xylem_store.build import build_ensemble, to_bfloat16
from xylem_store.ensemble import Chunk, Tree, Weights
from xylem_store.extras import Calibration
from xylem_store.manifest import CALIBRATION, DataInfo, TrainerInfo
from xylem_store.names import build_names
from xylem_store.version import Draft


def random_chunk(rng: np.random.Generator, n_features: int, n_children: int, share: float) -> Chunk:
    """Return a chunk with sparse rows, and a few rows with a weight for each child."""
    used = rng.random((n_features, n_children)) < share
    used[rng.random(n_features) < 0.2] = True
    features = np.flatnonzero(used.any(axis=1))
    rows, children = np.nonzero(used[features])
    return Chunk(
        features=features.astype(np.int32),
        row_ptr=np.concatenate([[0], np.cumsum(used[features].sum(axis=1))]).astype(np.int64),
        child=children.astype(np.int32),
        weight=rng.standard_normal(len(rows)).astype(np.float32),
        bias=rng.standard_normal(n_children).astype(np.float32),
    )


def random_tree(
    rng: np.random.Generator,
    n_labels: int,
    n_features: int,
    arity: int,
    share: float,
    is_label_tree: bool,
) -> Tree:
    """Return a complete tree of `n_labels` leaves, numbered breadth-first."""
    levels = [n_labels]
    while levels[-1] > 1 or len(levels) == 1:
        levels.append(-(-levels[-1] // arity))
    levels.reverse()
    counts: list[int] = []
    for above, below in itertools.pairwise(levels):
        counts += np.bincount(np.arange(below) * above // below, minlength=above).tolist()
    counts += [0] * n_labels
    child_ptr = (1 + np.concatenate([[0], np.cumsum(counts)])).astype(np.int32)
    node_label = np.full(len(counts), -1, np.int32)
    chunks = [random_chunk(rng, n_features, c, share) if c else None for c in counts]
    if is_label_tree:
        node_label[-n_labels:] = rng.permutation(n_labels)
        return Tree(child_ptr, node_label, chunks)
    histograms = [None if c else _histogram(rng, n_labels) for c in counts]
    return Tree(child_ptr, node_label, chunks, histograms)


def _histogram(rng: np.random.Generator, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.flatnonzero(rng.random(n_labels) < 0.3).astype(np.int32)
    return labels, rng.random(len(labels)).astype(np.float32)


def random_rerank(
    seed: int, n_labels: int, n_features: int, gamma: float = 30.0
) -> dict[str, np.ndarray]:
    """Return the arrays of re-ranking with random mean rows; some labels have no features."""
    rng = np.random.default_rng(seed)
    used = rng.random((n_labels, n_features)) < rng.choice([0.0, 0.2, 0.5], (n_labels, 1))
    mean = np.where(used, rng.random(used.shape) / np.sqrt(n_features), 0).astype(np.float32)
    return {
        "tail/ptr": np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int64),
        "tail/features": np.nonzero(used)[1].astype(np.int32),
        "tail/values": mean[used],
        "tail/norm2": (mean * mean).sum(axis=1),
        "tail/parameters": np.array([0.8, gamma], np.float32),
    }


def random_calibration(seed: int, n_knots: int = 6) -> Calibration:
    """Return a strictly increasing calibration whose last probability is below 1."""
    rng = np.random.default_rng(seed)
    x, y = (np.cumsum(np.append(0.0, rng.uniform(0.1, 1.0, n_knots - 1))) for _ in range(2))
    return Calibration((x / x[-1]).astype(np.float32), (0.9 * y / y[-1]).astype(np.float32))


def calibrated_draft(seed: int = 0, n_knots: int = 6, **changes: Any) -> Draft:
    """Return the draft of `small_draft` with a random calibration of scores."""
    draft = small_draft(seed, **changes)
    return replace(
        draft, extra={**draft.extra, **group_of(CALIBRATION, random_calibration(seed, n_knots))}
    )


def small_draft(
    seed: int = 0,
    *,
    kind: str = "label-tree",
    weights: Weights = "float32",
    n_trees: int = 2,
    n_labels: int = 11,
    n_features: int = 70,
    arity: int = 3,
    share: float = 0.05,
    **changes: Any,
) -> Draft:
    """Return a draft that can be published; `changes` replace its fields."""
    rng = np.random.default_rng(seed)
    is_label_tree = kind == "label-tree"
    trees = [
        random_tree(rng, n_labels, n_features, arity, share, is_label_tree) for _ in range(n_trees)
    ]
    fields: dict[str, Any] = {
        "kind": kind,
        "link": "hinge2" if is_label_tree else "multiway",
        "weights": weights,
        "n_features": n_features,
        "trainer": TrainerInfo(
            "label-tree", {"leaf_size": 100, "epsilon": 0.1, "weights": weights}
        ),
        "seed": seed,
        "data": DataInfo("train.txt", 100, "0" * 64),
        "metrics": {"P@1": 86.5},
        "features": {"kind": "raw", "norm": "none"},
        "ensemble": build_ensemble(trees, n_labels, n_features, weights),
        "labels": build_names(f"label::{i}" for i in range(n_labels)),
        "extra": {"labels/counts": np.arange(n_labels, dtype=np.int64)},
    }
    return Draft(**{**fields, **changes})


def softmax_draft(
    seed: int = 0,
    *,
    dim: int = 20,
    n_words: int = 30,
    n_places: int = 1,
    n_turned: int = 0,
    n_labels: int = 11,
    arity: int = 3,
    weights: Weights = "float32",
    is_half: bool = False,
    **changes: Any,
) -> Draft:
    """Return the draft of a random tree with softmax nodes and random embeddings.

    is_half  whether embeddings are bfloat16
    """
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, n_labels, dim, arity, 1.0, is_label_tree=True)
    u = rng.standard_normal((n_words, dim)).astype(np.float32)
    extra = {
        "labels/counts": np.arange(n_labels, dtype=np.int64),
        "embedding/u": to_bfloat16(u) if is_half else u,
        "embedding/r": rng.standard_normal((n_places, n_turned, dim)).astype(np.float32),
        "embedding/mean": np.array([int(n_places == 1)], np.int32),
    }
    fields: dict[str, Any] = {
        "link": "softmax",
        "features": {"kind": "raw", "norm": "none"},
        "n_features": n_places * n_words,
        "weights": weights,
        "ensemble": build_ensemble([tree], n_labels, dim, weights),
        "trainer": TrainerInfo("huffman-tree", {"dim": dim}),
        "extra": extra,
        "n_labels": n_labels,
    }
    return small_draft(seed, **{**fields, **changes})
