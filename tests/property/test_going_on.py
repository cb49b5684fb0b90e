"""A training that stops and goes on is the one that never stopped, to
the bit: weights, reports and state.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import write_lines

from xylem.datasets import stream
from xylem.trainers import windows
from xylem.trainers.lomtree import trainer as lomtree
from xylem.trainers.plt import descent
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.build import store_weights
from xylem_store.origin import read_report
from xylem_store.store import Store

PLT = ("solver=sgd", "epochs=4", "arity=4", "leaf_size=4", "prune=0")
SOFTMAX = ("epochs=4", "dim=5", "arity=3")
PATHS = ("updates=6", "learning=1", "statistics=paths", "settle=no")
LEARNERS = {
    "plt": ("plt", *PLT, "trees=2"),
    "plt, huffman": ("plt", *PLT, "tree=huffman", "l2=0.01"),
    "plt, short of memory": ("plt", *PLT[:2], "memory_mib=1", "trees=10", "tree=random", "arity=2"),
    "huffman-tree": ("huffman-tree", *SOFTMAX),
    "huffman-tree, adagrad": ("huffman-tree", *SOFTMAX, "optimiser=adagrad"),
    "huffman-tree, clustered": ("huffman-tree", *SOFTMAX, "tree=clustered"),
    "learned-tree": ("learned-tree", *SOFTMAX, "updates=5", "learning=0.8"),
    "learned-tree, once": ("learned-tree", *SOFTMAX),
    "learned-tree, paths": ("learned-tree", *SOFTMAX, *PATHS),
    "learned-tree, adagrad": ("learned-tree", *SOFTMAX, "optimiser=adagrad", "learning=0.6"),
    "lomtree": ("lomtree", "passes=4"),
    "lomtree, given": ("lomtree", "passes=4", "order=given"),
    "lomtree, swaps": ("lomtree", "passes=4", "leaves=6", "swap_resistance=1"),
    "lomtree, short of memory": (
        "lomtree",
        "passes=4",
        "memory_mb=1",
        "leaves=30",
        "swap_resistance=1",
    ),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks in small files, and more windows than one."""
    monkeypatch.setattr(stream, "BLOCK_BYTES", 700)
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", 800)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def rows_of(seed: int) -> list[dict[str, Any]]:
    """Rows with words that their labels favour; a few rows have no label, or no word."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in range(140):
        labels = rng.choice(14, rng.integers(0 if row % 20 == 7 else 1, 4), replace=False)
        words = [f"w{(3 * label + rng.integers(4)) % 30}" for label in labels for _ in range(2)]
        text = " ".join([*words, f"w{rng.integers(30)}"]) if row % 31 != 11 else ""
        rows.append({"text": text, "labels": [f"l{97 - label}" for label in labels]})
    return rows


def check_same(store: Store) -> set[str]:
    """`whole` and `cut` are the same, state and report too, but for
    where they came from; their arrays.
    """
    one, other = store.open("whole"), store.open("cut")
    first, second = (
        {
            name: (array.dtype, array.tobytes())
            for name, array in model.arrays.items()
            if "origin" not in name
        }
        for model in (one, other)
    )
    differs = [name for name in {*first, *second} if first.get(name) != second.get(name)]
    assert differs == []
    a, b = one.manifest, other.manifest
    assert (a.trainer, a.seed, a.features, a.metrics) == (b.trainer, b.seed, b.features, b.metrics)
    return set(first)


@pytest.mark.parametrize("is_stream", [False, True], ids=["memory", "stream"])
@pytest.mark.parametrize(("seed", "cuts"), [(2, (2,)), (3, (1, 2, 3))])
@pytest.mark.parametrize("learner", LEARNERS)
def test_passes_that_are_left_give_what_was_never_stopped(
    learner: str,
    seed: int,
    cuts: tuple[int, ...],
    is_stream: bool,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "short" in learner:  # fewer slots of tables
        monkeypatch.setattr(lomtree, "_WEIGHT_SLOT_BYTES", 1500)
        monkeypatch.setattr(lomtree, "_CLASS_SLOT_BYTES", 3000)
        monkeypatch.setattr(descent, "_SLOT_BYTES", 2000)
    trainer, *parameters = LEARNERS[learner]
    data = write_lines(store.root.with_name("rows.jsonl"), rows_of(seed))
    if is_stream:
        parameters += ["features.kind=hashing", "features.n_features=1024"]
    is_open = trainer in ("plt", "lomtree") or learner == "huffman-tree, adagrad"
    plain = TrainRequest(
        trainer=trainer, data=data, parameters=tuple(parameters), seed=seed, stream=is_stream
    )
    train_and_publish(store, "whole", plain.model_copy(update={"keep_state": is_open}))
    told = read_report(store.open("whole").arrays)["training"]
    if "short" in learner:
        left_out = ["passed_over"] if trainer == "plt" else ["weights_left_out", "labels_left_out"]
        assert all(told[name] for name in left_out)
    if "swaps" in learner:
        assert told["swaps"]
    report = train_and_publish(
        store, "cut", plain.model_copy(update={"keep_state": True, "until": cuts[0], "threads": 2})
    )
    assert f"stopped after pass {cuts[0]} of 4: continue with train --from" in (
        report.warnings or []
    )
    for until in (*cuts[1:], 0):
        on = TrainRequest(
            trainer=trainer, data=data, stream=is_stream, base="cut@latest", until=until
        )
        train_and_publish(store, "cut", on)
    assert ("state/json" in check_same(store)) == is_open


@pytest.mark.parametrize("is_stream", [False, True], ids=["memory", "stream"])
@pytest.mark.parametrize("trainer", ["huffman-tree", "learned-tree"])
def test_so_it_is_with_the_next_words_of_texts(trainer: str, is_stream: bool, store: Any) -> None:
    words = np.random.default_rng(3).integers(0, 12, (60, 8)).tolist()
    texts = [{"text": " ".join(f"w{word}" for word in line)} for line in words]
    data = write_lines(store.root.with_name("texts.jsonl"), texts)
    parameters = ("task=text", "epochs=3", "dim=4", "arity=3", "window=2")
    whole = TrainRequest(
        trainer=trainer, data=data, parameters=parameters, seed=4, stream=is_stream
    )
    keep = trainer == "huffman-tree"  # whose rate stays, so that more passes may come
    train_and_publish(store, "whole", whole.model_copy(update={"keep_state": keep}))
    train_and_publish(
        store,
        "cut",
        whole.model_copy(update={"keep_state": True, "until": 2, "weights": "bfloat16"}),
    )
    # what was trained in memory goes on with a stream, and the other way
    on = TrainRequest(trainer=trainer, data=data, base="cut@1", stream=not is_stream)
    train_and_publish(store, "cut", on)
    cut, found = store.open("cut"), store.open("whole")
    assert cut.manifest.weights == "bfloat16" and found.manifest.weights == "float32"
    rounded = store_weights(found.ensemble, "bfloat16")
    assert [array.tobytes() for array in cut.ensemble] == [array.tobytes() for array in rounded]


@pytest.mark.parametrize("is_stream", [False, True], ids=["memory", "stream"])
@pytest.mark.parametrize("suffix", [".svm", ".jsonl"])
@pytest.mark.parametrize("learner", ["plt", "huffman-tree", "lomtree"])
def test_so_it_is_with_ids_and_with_names(
    learner: str, suffix: str, is_stream: bool, store: Any
) -> None:
    trainer, *parameters = LEARNERS[learner]
    data, rng = store.root.with_name(f"rows{suffix}"), np.random.default_rng(8)
    lines = []
    for _ in range(90):
        labels = list(map(str, rng.choice(10, rng.integers(1, 3), replace=False)))
        values = {
            f: round(0.1 + 3 * rng.random(), 3) for f in rng.choice(40, 6, replace=False).tolist()
        }
        named = {"features": {f"f{f}": value for f, value in values.items()}, "labels": labels}
        pairs = [f"{f}:{value}" for f, value in values.items()]
        lines.append(
            json.dumps(named) if suffix == ".jsonl" else " ".join([",".join(labels), *pairs])
        )
    data.write_text("\n".join(lines) + "\n")
    whole = TrainRequest(
        trainer=trainer, data=data, parameters=tuple(parameters), seed=2, stream=is_stream
    )
    is_open = trainer != "huffman-tree"
    train_and_publish(store, "whole", whole.model_copy(update={"keep_state": is_open}))
    train_and_publish(store, "cut", whole.model_copy(update={"keep_state": True, "until": 2}))
    train_and_publish(
        store, "cut", TrainRequest(trainer=trainer, data=data, stream=is_stream, base="cut@1")
    )
    check_same(store)
