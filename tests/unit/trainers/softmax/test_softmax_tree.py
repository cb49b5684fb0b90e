"""Steps on trees of softmax nodes equal the slow gradient; sums of probabilities are 1."""

import copy

import numpy as np
import pytest
from tests.oracles.problems import to_rows
from tests.oracles.softmax_trees import Net, Path, log_p, numeric_gradient, represent, softmax
from tests.oracles.trees import row_dicts

from xylem.base.rows import LabelRows, SparseRows
from xylem.trainers.softmax import tree
from xylem.trainers.softmax.known import measure_nodes
from xylem.trainers.softmax.tree import LabelStatistics, LearningState, Network, SoftmaxTree, Steps

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


def pad(part: np.ndarray, *axes: int) -> np.ndarray:
    """Parameters with zeros at the end of these axes."""
    room = [(0, PADDED - DIM) if axis in axes else (0, 0) for axis in range(part.ndim)]
    return np.pad(part, room).astype(np.float32)


def padded(net: Net) -> Network:
    """The parameters as the kernel takes them."""
    turned = np.zeros((1, 0, DIM)) if net.transition is None else net.transition
    turned = turned[:, None] if turned.ndim == 2 else turned
    axes = (1, 2) if turned.shape[1] == DIM else (2,)
    return Network(pad(net.weights, 2), pad(net.bias), pad(net.embedding, 1), pad(turned, *axes))


def network_of(kind: str, seed: int) -> tuple[Net, Network]:
    """Return random parameters, as the oracle and as the kernel take them."""
    rng = np.random.default_rng(seed)
    turns = {"diagonal": (WINDOW, DIM), "full": (WINDOW, DIM, DIM)}
    transition = rng.normal(size=turns[kind]) if kind in turns else None
    shapes = (3, 3, DIM), (3, 3), (N_WORDS, DIM)
    net = Net(*(rng.normal(size=shape) for shape in shapes), transition)
    return net, padded(net)


NOTHING = Network(*(part[:0] for part in network_of("bag", 0)[1]))


def statistics_of(*, means: bool, sums: bool) -> LabelStatistics:
    n_summed, n_seen = 7 if sums else 0, 7 if means else 0
    return LabelStatistics(
        np.full((n_summed, 2, 3), 1 / 3, np.float32),
        np.ones((n_summed, 2), np.float32),
        np.zeros((n_seen, PADDED), np.float32),
        np.zeros(n_seen, np.int64),
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
    order, never = np.arange(rows.n_rows, dtype=np.int32), np.zeros(1, np.uint8)
    learning = LearningState(TREE, network, squares, found)
    return tree.train_rows(rows, labels, order, learning, steps, np.ones(1, np.uint64), never)


def data_of(
    kind: str, n_rows: int, seed: int
) -> tuple[list[dict[int, float]], SparseRows, LabelRows]:
    """Rows of three words, each as a dict too, and a label of each."""
    rng = np.random.default_rng(seed)
    n_places = 1 if kind == "bag" else WINDOW
    words = np.array([rng.choice(N_WORDS, 3, replace=False) for _ in range(n_rows)])
    places = N_WORDS * np.arange(3) * (n_places > 1)  # as in a window: a word a place
    indices = np.sort(words + places, axis=1)
    values = rng.normal(size=indices.shape).astype(np.float32)
    ptr, labels = np.arange(n_rows + 1), rng.integers(0, 6, n_rows).astype(np.int32)
    rows = SparseRows(ptr * 3, indices.ravel().astype(np.int32), values.ravel(), N_WORDS * n_places)
    return row_dicts(rows[:3]), rows, LabelRows(ptr, labels, 7)


@pytest.mark.parametrize("kind", ["bag", "diagonal", "full"])
@pytest.mark.parametrize("is_mean", [False, True])
@pytest.mark.parametrize("by_probability", [False, True])
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_steps_follow_the_gradient(
    kind: str, is_mean: bool, by_probability: bool, is_adaptive: bool
) -> None:
    """Against finite differences: of log p, or of each node's p with the others held
    (algorithm 1).
    """
    net, network = network_of(kind, 3)
    if by_probability:
        network.embedding[:] *= np.float32(0.3)
        net.embedding[:] *= 0.3
    rows, sparse, labels = data_of(kind, 3, seed=4)
    squares = Network(*(np.zeros_like(part) for part in network)) if is_adaptive else NOTHING
    used = [part for part in net if part is not None]
    slow, rate, expected_loss = [np.zeros_like(part) for part in used], 0.05, 0.0
    steps = Steps(rate, rate, is_mean, by_probability, embeds=True)
    loss = learn(sparse, labels, network, statistics_of(means=True, sums=True), steps, squares)
    for row, label in zip(rows, labels.indices.tolist(), strict=True):
        path = path_of(label)
        expected_loss -= log_p(net, row, path, is_mean)
        total = [np.zeros_like(part) for part in used]
        for step in path:
            gradient = numeric_gradient(copy.deepcopy(net), row, [step], is_mean)
            p = np.exp(log_p(net, row, [step], is_mean)) if by_probability else 1.0
            for out, part in zip(
                total, [part for part in gradient if part is not None], strict=True
            ):
                out += p * part
        for part, change, sums in zip(used, total, slow, strict=True):
            # a path's node takes one step for all its children; an embedding one a feature
            sums += change**2
            part += rate * change / (np.sqrt(sums + 1e-12) if is_adaptive else 1.0)
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    for fast, part in zip(network, padded(net), strict=True):
        np.testing.assert_allclose(fast, part, atol=2e-4)


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
            p = softmax(net.weights[node][children] @ r + net.bias[node][children])
            counts[label, TREE.level[node]] += 1
            sums[label, TREE.level[node], children] += p
    np.testing.assert_allclose(found.sums, sums, atol=1e-4)
    np.testing.assert_array_equal(found.counts, counts)


@pytest.mark.parametrize("kind", ["bag", "diagonal", "full"])
def test_representations_are_added_to_each_label_of_their_row(kind: str) -> None:
    net, network = network_of(kind, 5)
    rows, sparse, labels = data_of(kind, 12, seed=6)
    two = LabelRows(
        labels.indptr * 2, np.stack([labels.indices, np.full(12, 6, np.int32)], 1).ravel(), 7
    )
    found, expected = np.zeros((7, PADDED)), np.zeros((7, DIM))
    tree.add_representations(sparse, two, network, kind == "bag", found)
    for row, label in zip(rows, labels.indices.tolist(), strict=True):
        expected[[label, 6]] += represent(net, row, kind == "bag")
    np.testing.assert_allclose(found[:, :DIM], expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["means", "sums"])
def test_nodes_are_worth_what_the_paper_says(kind: str) -> None:
    _, network = network_of("bag", 7)
    rng = np.random.default_rng(8)
    found = statistics_of(means=kind == "means", sums=kind == "sums")
    found.means[:, :DIM] = rng.normal(size=(len(found.means), DIM))
    found.n_rows[:] = 3
    if kind == "sums":
        found.counts[:6] = 5
        found.sums[:] = 5 * rng.dirichlet(np.ones(3), (7, 2))
    share = np.array([1, 2, 3, 4, 5, 6, 0]) / 21
    labels = np.arange(6, dtype=np.int32)
    of_node = measure_nodes(labels, share, LearningState(TREE, network, NOTHING, found))
    for node in range(len(TREE.child)):
        children = np.flatnonzero(TREE.child[node] != -1)
        here = [label for label in range(6) if node in [at for at, _, _ in path_of(label)]]
        if kind == "means":
            weights, bias = network.weights[node, children, :DIM], network.bias[node, children]
            p = np.array([softmax(weights @ found.means[label, :DIM] + bias) for label in here])
        else:
            p = found.sums[here, TREE.level[node]][:, children] / 5
        q, m = share[here] / share[here].sum(), len(children)
        j = 2 / m * float((q[:, None] * np.abs(q @ p - p)).sum())
        alpha = float((q[:, None] * np.minimum(p, 1 - p)).sum()) / m
        np.testing.assert_allclose(
            of_node[node], [share[here].sum(), j, 4 / m * (1 - 1 / m), alpha], rtol=1e-4
        )
        assert 0 < j < 4 / m * (1 - 1 / m)


def test_a_row_without_features_moves_biases_only() -> None:
    _, network = network_of("bag", 11)
    before = copy.deepcopy(network)
    empty = to_rows(np.zeros((1, N_WORDS)))
    label = LabelRows(np.array([0, 1]), np.array([4], np.int32), 7)
    steps = Steps(0.1, 0.1, is_mean=True, by_probability=False, embeds=True)
    learn(empty, label, network, statistics_of(means=True, sums=False), steps)
    np.testing.assert_array_equal(network.weights, before.weights)
    np.testing.assert_array_equal(network.embedding, before.embedding)
    assert (network.bias[[0, 2]] != before.bias[[0, 2]]).all()
