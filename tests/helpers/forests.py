"""Random forests with rows to answer, as hypothesis draws them, and
the searches that are made in them.
"""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.oracles.routing import random_decision_forest, routed_scores, whole_rows
from tests.oracles.trees import label_probabilities, random_forest, random_rows, row_dicts
from xylem.engine.kernels.search.call import Search
from xylem_store.ensemble import LINK_CODES, Tree, TreeEnsemble

MAKERS = {
    "label-tree": (random_forest, random_rows),
    "decision-tree": (random_decision_forest, whole_rows),
}
NO_NUMBERS = np.empty(0, np.float32)
PLAIN = Search(0, 10, 1, False, np.empty(0, np.uint8), weight=NO_NUMBERS, log_threshold=NO_NUMBERS)


class Forest(NamedTuple):
    """Random trees of a kind, their ensemble, and rows."""

    kind: str
    seed: int
    n_labels: int
    n_features: int
    weights: str
    trees: list[Tree]
    ensemble: TreeEnsemble
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]

    def expected(self, link: str, n_trees: int | None = None) -> list[np.ndarray]:
        """Every label's score, of each row, by the oracle; of the first trees alone."""
        oracle = label_probabilities if self.kind == "label-tree" else routed_scores
        return [
            oracle(self.trees[:n_trees], link, row, self.n_labels) for row in row_dicts(self.rows)
        ]


def forest_of(
    kind: Any,
    seed: int,
    n_trees: int,
    n_labels: int,
    n_features: int,
    arity: int,
    weights: Any = "float32",
    n_rows: int = 4,
) -> Forest:
    """Return the forest of a seed, the same each time."""
    make_forest, make_rows = MAKERS[kind]
    shape = {"n_trees": n_trees, "n_labels": n_labels, "n_features": n_features, "arity": arity}
    trees, ensemble = make_forest(seed, **shape, weights=weights)
    rows = make_rows(seed, n_rows, n_features)
    return Forest(kind, seed, n_labels, n_features, weights, trees, ensemble, rows)


def draw_forests(
    kinds: Any,
    trees_max: Any,
    labels_max: Any,
    n_features: int,
    arity: int,
    weights: Any = ("float32",),
    n_rows: int = 4,
) -> Any:
    """Forests of up to so many trees and labels, and of these kinds, features,
    arities and weights.
    """
    return st.builds(
        forest_of,
        st.sampled_from(kinds),
        seed=st.integers(0, 2**31),
        n_trees=st.integers(1, trees_max),
        n_labels=st.integers(1, labels_max),
        n_features=st.sampled_from(n_features),
        arity=st.sampled_from(arity),
        weights=st.sampled_from(weights),
        n_rows=st.just(n_rows),
    )


def search_of(link: str, top_r: int, **fields: Any) -> Search:
    """Return a search for so many labels; `fields` that are not those of a plain one."""
    return PLAIN._replace(link=LINK_CODES[link], top_r=top_r, **fields)
