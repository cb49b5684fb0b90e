"""Steps on trees of softmax nodes equal the slow gradient; sums of probabilities are 1."""

import copy

import numpy as np
import pytest

from service.base.rows import LabelRows, SparseRows
from service.trainers.softmax.known import measure_nodes
from service.trainers.softmax.tree import (
    LabelStatistics,
    LearningState,
    Network,
    SoftmaxTree,
    Steps,
    add_representations,
    train_rows,
)
from tests.oracles.softmax_trees import Net, Path, log_p, numeric_gradient, represent, softmax

DIM, PADDED, N_WORDS, WINDOW = 5, 16, 4, 3

TREE = SoftmaxTree(
    child=np.array([[1, -2, 2], [-3, -1, -4], [-5, -6, -7]], np.int32),
    parent=np.array([-1, 0, 0], np.int32),
    branch=np.array([-1, 0, 2], np.int32),
    level=np.array([0, 1, 1], np.int32),
    leaf_node=np.array([0, 1, 1, 2, 2, 2, -1], np.int32),
    leaf_branch=np.array([1, 0, 2, 0, 1, 2, -1], np.int32),
)
"""Six labels with a leaf, one without; node 1 has no child in the middle."""


def path_of(label: int) -> Path:
    path: Path = []
    node, branch = int(TREE.leaf_node[label]), int(TREE.leaf_branch[label])
    while node >= 0:
        path.append((node, branch, np.flatnonzero(TREE.child[node] != -1).tolist()))
        node, branch = int(TREE.parent[node]), int(TREE.branch[node])
    return path


def network_of(kind: str, seed: int) -> tuple[Net, Network]:
    """Return random parameters, as the oracle and as the kernel take them."""
    rng = np.random.default_rng(seed)
    shape = {"bag": (1, 0), "diagonal": (WINDOW, 1), "full": (WINDOW, DIM)}[kind]
    transition = rng.normal(size=(*shape, DIM))
    net = Net(
        rng.normal(size=(3, 3, DIM)),
        rng.normal(size=(3, 3)),
        rng.normal(size=(N_WORDS, DIM)),
        {"bag": None, "diagonal": transition[:, 0] if shape[1] else None, "full": transition}[kind],
    )
    room = PADDED if kind == "full" else shape[1]
    turned = np.zeros((shape[0], room, PADDED), np.float32)
    turned[:, : shape[1], :DIM] = transition
    padded = np.zeros((3, 3, PADDED), np.float32)
    padded[:, :, :DIM] = net.weights
    embedding = np.zeros((N_WORDS, PADDED), np.float32)
    embedding[:, :DIM] = net.embedding
    return net, Network(padded, net.bias.astype(np.float32), embedding, turned)


NOTHING = Network(
    np.zeros((0, 3, PADDED), np.float32),
    np.zeros((0, 3), np.float32),
    np.zeros((0, PADDED), np.float32),
    np.zeros((0, 0, PADDED), np.float32),
)


def statistics_of(*, means: bool, sums: bool) -> LabelStatistics:
    return LabelStatistics(
        np.full((7 if sums else 0, 2, 3), 1 / 3, np.float32),
        np.ones((7 if sums else 0, 2), np.float32),
        np.zeros((7 if means else 0, PADDED), np.float32),
        np.zeros(7 if means else 0, np.int64),
    )


def learn(
    rows: SparseRows,
    labels: LabelRows,
    network: Network,
    found: LabelStatistics,
    steps: Steps,
    squares: Network = NOTHING,
) -> float:
    """Take a step on each row in order; return the loss."""
    order, state = np.arange(rows.n_rows, dtype=np.int32), np.ones(1, np.uint64)
    never = np.zeros(1, np.uint8)
    learning = LearningState(TREE, network, squares, found)
    return train_rows(rows, labels, order, learning, steps, state, never)


def data_of(kind: str, n_rows: int, seed: int) -> tuple[list[dict[int, float]], SparseRows, LabelRows]:
    rng = np.random.default_rng(seed)
    n_features = N_WORDS * (1 if kind == "bag" else WINDOW)
    rows = []
    for _ in range(n_rows):
        words = rng.choice(N_WORDS, 3, replace=False)  # as in a window: a word a position
        chosen = np.sort(words + N_WORDS * np.arange(3) * (n_features > N_WORDS))
        rows.append({int(f): float(np.float32(v)) for f, v in zip(chosen, rng.normal(size=3), strict=True)})
    indices = np.array([f for row in rows for f in row], np.int32)
    values = np.array([v for row in rows for v in row.values()], np.float32)
    labels = rng.integers(0, 6, n_rows).astype(np.int32)
    return (
        rows,
        SparseRows(np.arange(n_rows + 1) * 3, indices, values, n_features),
        LabelRows(np.arange(n_rows + 1), labels, 7),
    )


@pytest.mark.parametrize("kind", ["bag", "diagonal", "full"])
@pytest.mark.parametrize("is_mean", [False, True])
@pytest.mark.parametrize("by_probability", [False, True])
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_steps_follow_the_gradient(kind: str, is_mean: bool, by_probability: bool, is_adaptive: bool) -> None:
    """Against finite differences: of log p, or of each node's p with the others held (algorithm 1)."""
    net, network = network_of(kind, 3)
    if by_probability:
        network.embedding[:] *= np.float32(0.3)
        net.embedding[:] *= 0.3
    rows, sparse, labels = data_of(kind, 3, seed=4)
    squares = Network(*(np.zeros_like(part) for part in network)) if is_adaptive else NOTHING
    slow = [None if part is None else np.zeros_like(part) for part in net]
    rate = 0.05
    found = statistics_of(means=True, sums=True)
    steps = Steps(rate, rate, is_mean, by_probability, embeds=True)
    loss = learn(sparse, labels, network, found, steps, squares)
    expected_loss = 0.0
    for row, label in zip(rows, labels.indices.tolist(), strict=True):
        path = path_of(label)
        expected_loss -= log_p(net, row, path, is_mean)
        total = [None if part is None else np.zeros_like(part) for part in net]
        for step in path:
            gradient = numeric_gradient(copy.deepcopy(net), row, [step], is_mean)
            p = np.exp(log_p(net, row, [step], is_mean)) if by_probability else 1.0
            for out, part in zip(total, gradient, strict=True):
                if out is not None:
                    out += p * part
        for part, change, sums in zip(net, total, slow, strict=True):
            if part is not None and change is not None and sums is not None:
                # a path's node takes one step for all its children; an embedding one a feature
                sums += change**2
                part += rate * change / (np.sqrt(sums + 1e-12) if is_adaptive else 1.0)
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    for part, fast in zip(net, network, strict=True):
        if part is None:
            continue
        cut = fast[..., :DIM] if fast.ndim > 1 and fast.shape[-1] == PADDED else fast
        cut = cut[:, : part.shape[1]] if part.ndim == 3 and fast.shape[1] == PADDED else cut
        np.testing.assert_allclose(cut.reshape(part.shape), part, atol=2e-4)
    assert not network.weights[..., DIM:].any()
    assert not network.embedding[:, DIM:].any()


def test_statistics_are_sums_of_softmaxes() -> None:
    net, network = network_of("bag", 5)
    rows, sparse, labels = data_of("bag", 30, seed=6)
    found = statistics_of(means=False, sums=True)
    steps = Steps(0.0, 0.0, is_mean=True, by_probability=False, embeds=True)
    learn(sparse, labels, network, found, steps)
    sums, counts = np.full((7, 2, 3), 1 / 3), np.ones((7, 2))
    for row, label in zip(rows, labels.indices.tolist(), strict=True):
        r = represent(net, row, is_mean=True)
        for node, _, children in path_of(label):
            level = TREE.level[node]
            counts[label, level] += 1
            sums[label, level, children] += softmax(
                net.weights[node][children] @ r + net.bias[node][children]
            )
    np.testing.assert_allclose(found.sums, sums, atol=1e-4)
    np.testing.assert_array_equal(found.counts, counts)


@pytest.mark.parametrize("kind", ["bag", "diagonal", "full"])
def test_representations_are_added_to_each_label_of_their_row(kind: str) -> None:
    net, network = network_of(kind, 5)
    rows, sparse, labels = data_of(kind, 12, seed=6)
    two = LabelRows(labels.indptr * 2, np.stack([labels.indices, np.full(12, 6, np.int32)], 1).ravel(), 7)
    found = np.zeros((7, PADDED))
    add_representations(sparse, two, network, kind == "bag", found)
    expected = np.zeros((7, DIM))
    for row, label in zip(rows, labels.indices.tolist(), strict=True):
        r = represent(net, row, kind == "bag")
        expected[label] += r
        expected[6] += r
    np.testing.assert_allclose(found[:, :DIM], expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["means", "sums"])
def test_nodes_are_worth_what_the_paper_says(kind: str) -> None:
    _, network = network_of("bag", 7)
    rng = np.random.default_rng(8)
    found = statistics_of(means=kind == "means", sums=kind == "sums")
    found.means[:, :DIM] = rng.normal(size=(len(found.means), DIM))
    found.seen[:] = 3
    if kind == "sums":
        found.counts[:6] = 5
        found.sums[:] = 5 * rng.dirichlet(np.ones(3), (7, 2))
    share = np.array([1, 2, 3, 4, 5, 6, 0]) / 21
    labels = np.arange(6, dtype=np.int32)
    of_node = measure_nodes(labels, share, LearningState(TREE, network, NOTHING, found))
    for node in range(len(TREE.child)):
        here, of_label = [], []
        for label in range(6):
            for at, _, children in path_of(label):
                if at == node:
                    if kind == "means":
                        weights, bias = network.weights[node, children, :DIM], network.bias[node, children]
                        p = softmax(weights @ found.means[label, :DIM] + bias)
                    else:
                        p = found.sums[label, TREE.level[node], children] / 5
                    here.append(share[label])
                    of_label.append(p)
        q, p = np.array(here) / sum(here), np.array(of_label)
        m = p.shape[1]
        j = 2 / m * float((q[:, None] * np.abs(q @ p - p)).sum())
        alpha = float((q[:, None] * np.minimum(p, 1 - p)).sum()) / m
        np.testing.assert_allclose(of_node[node], [sum(here), j, 4 / m * (1 - 1 / m), alpha], rtol=1e-4)
        assert 0 < j < 4 / m * (1 - 1 / m)


def test_a_row_without_features_moves_biases_only() -> None:
    _, network = network_of("bag", 11)
    before = copy.deepcopy(network)
    empty = SparseRows(np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), N_WORDS)
    label = LabelRows(np.array([0, 1]), np.array([4], np.int32), 7)
    steps = Steps(0.1, 0.1, is_mean=True, by_probability=False, embeds=True)
    learn(empty, label, network, statistics_of(means=True, sums=False), steps)
    np.testing.assert_array_equal(network.weights, before.weights)
    np.testing.assert_array_equal(network.embedding, before.embedding)
    assert (network.bias[[0, 2]] != before.bias[[0, 2]]).all()
