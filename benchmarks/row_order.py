"""P@1 of trainers that learn from one row after the other: rows sorted by topic, and the same rows shuffled.

python -m benchmarks row-order

Generated rows: a topic and a label of it each, N_ROWS of them sorted by topic. A row has words of its topic
and of its label, and NOISE common words by Zipf's law.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import xylem
from benchmarks.runs import Settings, note, show

N_ROWS, TEST_ROWS = 76_000, 4000
TOPICS, TOPIC_LABELS, FEATURES = 40, 12, 3000
TOPIC_WORDS, LABEL_WORDS, NOISE = 200, 40, 8
"""Words of a topic and of a label, and words of a row that are neither's."""

TRAINERS: dict[str, dict[str, Any]] = {
    "plt solver=sgd": {"trainer": "plt", "solver": "sgd"},
    "huffman-tree": {"trainer": "huffman-tree"},
    "learned-tree": {"trainer": "learned-tree"},
    "lomtree": {"trainer": "lomtree"},
    "lomtree order=given": {"trainer": "lomtree", "order": "given"},
    "plt (batch)": {"trainer": "plt"},
}


def generated(n_rows: int, seed: int) -> tuple[Any, Any]:
    """Return rows at length 1 and their labels, the topic and one of its labels, sorted by topic."""
    random, words = np.random.default_rng(seed), np.random.default_rng(99)
    of_topic = words.integers(0, FEATURES, (TOPICS, TOPIC_WORDS))
    of_label = words.integers(0, FEATURES, (TOPICS * TOPIC_LABELS, LABEL_WORDS))
    common = words.permutation(FEATURES)
    topic = np.sort(random.integers(0, TOPICS, n_rows))
    label = topic * TOPIC_LABELS + np.minimum(random.geometric(0.25, n_rows) - 1, TOPIC_LABELS - 1)
    ranks = np.exp(random.random((n_rows, NOISE)) * np.log(FEATURES)).astype(np.int64) - 1
    found = [
        of_topic[topic[:, None], random.integers(0, TOPIC_WORDS, (n_rows, 3))],
        of_label[label[:, None], random.integers(0, LABEL_WORDS, (n_rows, 2))],
        common[ranks],
    ]
    rows = _matrix(np.hstack(found), FEATURES)
    rows = sp.diags_array(1 / np.sqrt(np.asarray(rows.sum(axis=1)).reshape(-1))) @ rows
    return rows.tocsr(), _matrix(np.stack([topic, TOPICS + label], axis=1), TOPICS * (1 + TOPIC_LABELS))


def _matrix(columns: NDArray[np.int64], width: int) -> Any:
    """Return a matrix with 1 at these columns of each row."""
    n_rows, each = columns.shape
    ptr = np.arange(n_rows + 1) * each
    matrix = sp.csr_array(
        (np.ones(columns.size, np.float32), columns.reshape(-1), ptr), shape=(n_rows, width)
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def run(settings: Settings) -> None:
    """Print the table."""
    x, y = generated(N_ROWS, 1)
    order = np.random.default_rng(0).permutation(N_ROWS)
    test = generated(TEST_ROWS, 2)
    lines = []
    for name, parameters in TRAINERS.items():
        note(name)
        models = [xylem.train(*rows, seed=1, **parameters) for rows in ((x, y), (x[order], y[order]))]
        lines.append((name, *(f"{model.evaluate(*test)['P@1']:.2f}" for model in models)))
    title = f"{N_ROWS} generated rows, {TOPICS * (1 + TOPIC_LABELS)} labels: P@1, percent"
    show(settings, title, ("trainer", "sorted by topic", "shuffled"), lines)
