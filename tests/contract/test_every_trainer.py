"""What every trainer of the registry promises.

It trains, publishes, verifies, serves and explains, alike for a seed on any number of threads, and
has an answer to every data set, be it a clear error.
"""

import itertools
import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.conftest import serving, settings_of
from tests.helpers.measured import evaluate
from tests.helpers.trainings import bits_of, data_of, estimate_by, predictor_of, trained_by
from tests.oracles.problems import to_labels, to_rows

from xylem.base.errors import BadInput
from xylem.engine.predictor import PredictOptions
from xylem.trainers import Trained, parse_parameters, train
from xylem.trainers.held_blocks import STAGE as BLOCKS
from xylem.trainers.registry import TRAINERS
from xylem.trainers.size import EMBEDDING_BYTES
from xylem.trainers.windows import STAGE
from xylem.workflows.calibrate import calibrate_and_publish
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.build import store_weights
from xylem_store.extras import EMBEDDING
from xylem_store.origin import ORIGIN, REPORT, read_report
from xylem_store.store import Store
from xylem_store.version import draft_of

N_FEATURES, N_LABELS = 40, 6
NDJSON = {"content-type": "application/x-ndjson"}
FEW = {"trees": 3, "epochs": 3, "passes": 2}
"""Parameters that make a training short, for trainers that have them."""

every_trainer = pytest.mark.parametrize("name", list(TRAINERS))


def items_of(name: str, **changes: Any) -> list[str]:
    """Short parameters of a trainer, and changes of those that it has."""
    known = TRAINERS[name].parameters.model_fields
    return [f"{key}={value}" for key, value in {**FEW, **changes}.items() if key in known]


def learnable(n_rows: int = 120, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose label says which six features they have most of;
    (float64[n, D], labels bool[n, K]).
    """
    rng = np.random.default_rng(seed)
    label = rng.integers(0, N_LABELS, n_rows)
    x = (rng.random((n_rows, N_FEATURES)) < 0.1) * rng.random((n_rows, N_FEATURES))
    for row, own in enumerate(label):
        x[row, 6 * own : 6 * own + 6] += rng.random(6) < 0.8
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9), np.eye(
        N_LABELS, dtype=bool
    )[label]


def trained_on(
    name: str, x: Any, y: Any, seed: int = 1, threads: int = 1, **changes: Any
) -> Trained:
    return trained_by(name, data_of(x, y), *items_of(name, **changes), seed=seed, threads=threads)


def write_file(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    lines = [f"{len(x)} {x.shape[1]} {y.shape[1]}"]
    for row, labels in zip(x, y, strict=True):
        pairs = " ".join(f"{f}:{row[f]:.6f}" for f in np.flatnonzero(row))
        lines.append(f"{','.join(map(str, np.flatnonzero(labels)))} {pairs}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with rows to train on, to tune on and to measure with. Not to be changed."""
    root = tmp_path_factory.mktemp("rows")
    for name, n_rows, seed in (
        ("train", 120, 3),
        ("valid", 40, 4),
        ("test", 40, 5),
        ("held_out", 200, 8),
    ):
        write_file(root / f"{name}.txt", *learnable(n_rows, seed))
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Store:
    """A model of every trainer, by the trainer's name. Not to be changed."""
    store = Store(tmp_path_factory.mktemp("trained") / "store")
    data, valid = files / "train.txt", files / "valid.txt"
    poor = []
    for name in TRAINERS:
        request = TrainRequest(
            trainer=name, data=data, valid=valid, parameters=items_of(name), seed=2, threads=2
        )
        report = train_and_publish(store, name, request)
        if (report.version, report.trainer) != (1, name) or report.metrics["P@1"] <= 50:
            poor.append(report)
    assert poor == []
    return store


@pytest.fixture
def own(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@every_trainer
def test_what_it_publishes_is_verified_and_evaluated(store: Store, name: str, files: Path) -> None:
    store.verify(name, 1)
    model = store.open(name)
    assert model.manifest.trainer.name == name
    kept = {f"{key}={value}" for key, value in model.manifest.trainer.parameters.items()}
    assert set(items_of(name)) <= kept
    assert evaluate(model, files / "test.txt")["P@1"] > 50
    assert model.manifest.metrics.keys() >= {"P@1", "nDCG@5", "PSP@3"}


@every_trainer
def test_it_is_calibrated_or_refused(store: Store, own: Store, name: str, files: Path) -> None:
    source = store.open(name)
    own.publish(name, draft_of(source))
    if source.manifest.link == "softmax":
        with pytest.raises(BadInput, match=f"found one of {name}: its probabilities sum to 1"):
            calibrate_and_publish(own, name, "latest", files / "held_out.txt")
        return
    calibrate_and_publish(own, name, "latest", files / "held_out.txt")
    own.verify(name, 2)
    before, after = (
        {key: value for key, value in evaluate(model, files / "test.txt").items() if "@" in key}
        for model in (source, own.open(name))
    )
    assert before == after


def instances_of(x: np.ndarray) -> list[dict[str, Any]]:
    """Rows as a request has them."""
    return [
        {"indices": np.flatnonzero(row).tolist(), "values": row[row != 0].tolist()} for row in x
    ]


async def ask(client: httpx.AsyncClient, name: str, **body: Any) -> list[list[dict[str, Any]]]:
    """The labels of each instance, as a model answers."""
    response = await client.post(f"/v1/models/{name}/predict", json={"top_r": N_LABELS, **body})
    assert response.status_code == 200, response.text
    return [each["labels"] for each in response.json()["predictions"]]


async def test_they_are_served_with_thresholds_and_explanations(store: Store) -> None:
    x, y = learnable(8, seed=6)
    instances = instances_of(x)
    lines = "".join(json.dumps(instance) + "\n" for instance in instances)
    faults = []
    async with serving(settings_of(store.root)) as (_, client):
        for name in TRAINERS:
            full = await ask(client, name, instances=instances)
            scores = [[label["score"] for label in labels] for labels in full]
            right = [
                truth[labels[0]["id"]] for truth, labels in zip(y, full, strict=True) if labels
            ]
            two = await ask(client, name, instances=instances, top_r=2)
            passing = await ask(client, name, instances=instances, threshold=0.3)
            path = f"/v1/models/{name}/batch?top_r={N_LABELS}"
            batch = await client.post(path, content=lines, headers=NDJSON)
            explained = await ask(client, name, instances=instances, explain=True)
            reasons = [label.pop("explanation") for label in itertools.chain(*explained)]
            checks = {
                "the best first": scores == [sorted(row, reverse=True) for row in scores],
                "probabilities": all(0 <= score <= 1 for row in scores for score in row),
                "learnt labels": sum(right) >= 5,
                "top_r": two == [labels[:2] for labels in full],
                "threshold": passing
                == [[one for one in labels if one["score"] >= 0.3] for labels in full],
                "batch": [json.loads(line)["labels"] for line in batch.text.splitlines()] == full,
                "reasons": all(why.get("trees") or why.get("leaves") for why in reasons),
                "explained labels": explained == full,
            }
            faults += [f"{name}: {check}" for check, holds in checks.items() if not holds]
    assert faults == []


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@every_trainer
def test_fewer_bits_cost_little(
    name: str, weights: Any, store: Store, own: Store, files: Path
) -> None:
    request = TrainRequest(
        trainer=name,
        data=files / "train.txt",
        valid=None,
        parameters=items_of(name),
        weights=weights,
        seed=2,
    )
    train_and_publish(own, name, request)
    own.verify(name, 1)
    model, whole = own.open(name), store.open(name)
    assert model.manifest.weights == weights
    assert model.manifest.model_bytes < whole.manifest.model_bytes
    before, after = (evaluate(each, files / "test.txt")["P@1"] for each in (whole, model))
    assert after > before - 10


async def test_allowed_and_denied_labels_and_feedback_hold_for_it(
    tmp_path: Path, store: Store
) -> None:
    shutil.copytree(store.root, tmp_path / "store")  # feedback leaves a database beside the store
    instances = instances_of(learnable(1, seed=6)[0])
    faults = []
    async with serving(settings_of(tmp_path / "store")) as (_, client):
        for name in TRAINERS:
            (every,) = await ask(client, name, instances=instances, exact=True)
            some = [label["label"] for label in every[:2]]
            allowed = await ask(client, name, instances=instances, exact=True, allow_labels=some)
            denied = await ask(client, name, instances=instances, exact=True, deny_labels=some)
            if (allowed, denied) != ([every[:2]], [every[2:]]):
                faults.append(f"{name}: {every}, allowed {allowed}, denied {denied}")
            events = [
                {"event_id": f"e{i}", "instance": instances[0], "labels": some[:1]}
                for i in range(3)
            ]
            told = await client.post(f"/v1/models/{name}/feedback", json={"events": events})
            if [each["result"] for each in told.json()["results"]] != ["applied"] * 3:
                faults.append(f"{name}: {told.text}")
    assert not faults, "\n".join(faults)


def stream_of(name: str, data: Path) -> TrainRequest:
    items = [*items_of(name), *(["solver=sgd"] if name == "plt" else [])]
    return TrainRequest(trainer=name, data=data, valid=None, parameters=items, stream=True)


@every_trainer
def test_a_stream_is_learnt_from_or_refused_with_those_that_can(
    name: str, own: Store, files: Path
) -> None:
    request = stream_of(name, files / "train.txt")
    if TRAINERS[name].reads == "rows":
        with pytest.raises(BadInput, match=rf"expected one that can stream, .*plt.*; found {name}"):
            train_and_publish(own, name, request)
        assert own.models() == []
        return
    assert train_and_publish(own, name, request).version == 1
    if TRAINERS[name].reads == "once":  # the leaves of a stream are not counted anew
        assert evaluate(own.open(name), files / "train.txt")["P@1"] > 50
        return
    train_and_publish(own, name, request.model_copy(update={"stream": False, "threads": 2}))
    streamed, whole = own.open(name, 1), own.open(name, 2)
    told = ({**read_report(model.arrays), "forest": 0} for model in (streamed, whole))
    assert next(told) == next(told), "but for where training rows in memory go in a forest"
    different = [
        array
        for array in sorted(whole.arrays.keys() - {ORIGIN, REPORT})
        if streamed.arrays[array].tobytes() != whole.arrays[array].tobytes()
    ]
    assert different == []


@pytest.mark.parametrize("name", [name for name, spec in TRAINERS.items() if spec.reads != "rows"])
def test_a_stream_that_cannot_be_learnt_from_is_refused(
    name: str, own: Store, tmp_path: Path
) -> None:
    pipe, empty, unlabelled = tmp_path / "pipe.svm", tmp_path / "empty.svm", tmp_path / "none.svm"
    os.mkfifo(pipe)
    holder = os.open(pipe, os.O_RDWR)  # somebody writes: opening it does not wait
    empty.write_text("")
    unlabelled.write_text(" 0:1\n 1:1\n")
    faults = {
        pipe: "pipe.svm: expected files to read, found: a pipe, a socket or a device",
        empty: "expected at least one row, found none",
        unlabelled: "expected rows with labels, found none in 2 rows",
        Path("-"): "stream: expected a file, found standard input",
    }
    for path, message in faults.items():
        with pytest.raises(BadInput, match=message):
            train_and_publish(own, name, stream_of(name, path))
    os.close(holder)

    changing = write_file(tmp_path / "train.txt", *learnable())

    def change(phase: str, done: int, _: int) -> None:
        if phase in (STAGE, BLOCKS) and done == 0:
            changing.write_text(changing.read_text().replace(":0.", ":1.", 1))

    with pytest.raises(BadInput, match="it has changed"):
        train_and_publish(own, name, stream_of(name, changing), change)
    assert own.models() == []


# Trainers that draw no random numbers: their model is the same for every seed.
SEEDLESS: frozenset[str] = frozenset()

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in TRAINERS),
    ("label-tree", {"leaf_size": 2, "arity": 2}),
    ("label-tree", {"clustering": "kmeans", "leaf_size": 2, "arity": 2}),
    ("label-tree", {"loss": "logistic"}),
    ("plt", {"tree": "random", "arity": 2}),
    ("plt", {"tree": "huffman", "arity": 2}),
    ("plt", {"solver": "sgd", "tree": "random", "arity": 2}),
    ("plt", {"solver": "sgd", "leaf_size": 2, "arity": 2}),
    ("plt", {"solver": "sgd", "tree": "huffman", "arity": 2}),
    ("ldsm", {"optimiser": "nag", "rerank": "yes"}),
]


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
def test_a_seed_gives_the_same_bits_on_any_number_of_threads(
    name: str, changes: dict[str, Any]
) -> None:
    x, y = learnable(80)
    first = trained_on(name, x, y, seed=7, **changes)
    for threads in (1, 2, 3):
        again = trained_on(name, x, y, seed=7, threads=threads, **changes)
        assert bits_of(again) == bits_of(first)
        assert again.report == first.report
    assert name in SEEDLESS or bits_of(trained_on(name, x, y, seed=8, **changes)) != bits_of(first)
    assert first.kind == ("label-tree" if first.ensemble.label_leaf.size else "decision-tree")


ODD_DATA: dict[str, tuple[Any, Any]] = {
    "rows without labels": (np.eye(8), np.eye(8)[:, :3]),
    "rows without features": (np.eye(8) * (np.arange(8) % 2), np.eye(2)[[0, 0, 0, 0, 1, 1, 1, 1]]),
    "only rows without features": (np.zeros((6, 5)), np.eye(6)),
    "duplicate rows": (np.ones((9, 4)), np.eye(9)[:, :4] + np.eye(9)[::-1, :4]),
    "a label never seen": (np.eye(9), np.hstack([np.eye(9), np.zeros((9, 3))])),
    "one label only": (np.eye(6), np.ones((6, 1))),
    "one row": (np.ones((1, 3)), np.ones((1, 2))),
    "more children than rows": (np.eye(3), np.eye(3)),
    "every label on every row": (np.eye(7), np.ones((7, 5))),
    "huge values": (np.eye(6) * 1e30, np.eye(6)),
}


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
@pytest.mark.parametrize("case", ODD_DATA)
def test_odd_data_give_a_model_or_a_clear_error(
    name: str, changes: dict[str, Any], case: str
) -> None:
    x, y = np.asarray(ODD_DATA[case][0], float), np.asarray(ODD_DATA[case][1]) > 0
    try:
        trained = trained_on(name, x, y, **{**changes, "arity": 4})
    except BadInput as error:
        assert re.search(r"expected.*found", str(error))
        return
    found = predictor_of(trained, data_of(x, y)).predict(to_rows(x), PredictOptions(top_r=3))
    assert np.isfinite(found.scores).all()
    assert ((found.scores >= 0) & (found.scores <= 1)).all()
    unseen = np.flatnonzero(~y.any(axis=0))
    for first, last in itertools.pairwise(found.ptr):
        certain = found.labels[first:last][found.scores[first:last] > 0.5]
        assert not np.isin(unseen, certain).any(), "a label that no row carries is never likely"


@every_trainer
def test_rows_that_cannot_be_trained_on_are_refused(name: str) -> None:
    rows = to_rows(np.eye(4))
    for labels in (to_labels(np.zeros((4, 3), bool)), to_labels(np.ones((3, 2), bool))):
        with pytest.raises(BadInput, match=r"expected.*found"):
            trained_by(name, (rows, labels), *items_of(name))


@every_trainer
def test_its_estimate_is_a_bound(name: str) -> None:
    data = data_of(*learnable(80))
    found, trained = (
        estimate_by(name, data, *items_of(name), seed=1),
        trained_on(name, *learnable(80)),
    )
    assert found.keys() == {
        "nonzeros_bound",
        "bytes_bound",
        "ratio_to_ovr",
        "stored_bytes",
        "alpha_per_depth",
    }
    assert found["nonzeros_bound"] >= trained.n_nonzeros


def wide(n_rows: int, n_features: int = 3000, n_labels: int = 70) -> tuple[Any, Any]:
    """Return sparse rows of many features, and their labels: most chunks have sparse rows."""
    draw = np.random.default_rng(5)
    label = draw.integers(0, n_labels, n_rows)
    x = (draw.random((n_rows, n_features)) < 0.004).astype(np.float32)
    x[np.arange(n_rows), label * 7] = 3
    return x, np.eye(n_labels, dtype=np.bool_)[label]


SHAPES = (
    *((name, ()) for name in TRAINERS),
    *(("huffman-tree", (f"tree={tree}",)) for tree in ("random", "kmeans", "clustered", "flat")),
    *(("huffman-tree", (f"arity={arity}",)) for arity in (3, 17)),
    *(("learned-tree", (f"arity={arity}",)) for arity in (2, 3, 5, 17)),
    ("learned-tree", ("arity=9", "start=kmeans", "slack=0")),
    *((name, ("rerank=yes", "trees=2")) for name in ("ldsm", "pfastrexml")),
    *(("plt", ("tree=huffman", f"arity={arity}")) for arity in (2, 9)),
)


@pytest.mark.parametrize(("name", "items"), SHAPES)
@pytest.mark.parametrize("rows", [learnable, wide])
def test_what_is_stored_is_at_most_what_was_estimated(
    name: str, items: tuple[str, ...], rows: Any
) -> None:
    """Trees with all that belongs to them, embeddings and mean rows, in each type of weights."""
    data = data_of(*rows(300))
    chosen = (*items_of(name, **dict(item.split("=") for item in items)),)
    stored_bytes = estimate_by(name, data, *chosen, seed=1)["stored_bytes"]
    trained = trained_by(name, data, *chosen, seed=1)
    embedded = sum(array.size for key, array in trained.extra.items() if key.startswith(EMBEDDING))
    others = sum(
        array.nbytes for key, array in trained.extra.items() if not key.startswith(EMBEDDING)
    )
    for weights, n_bytes in EMBEDDING_BYTES.items():
        ensemble = store_weights(trained.ensemble, weights)
        stored = sum(array.nbytes for array in ensemble) + embedded * n_bytes + others
        assert stored <= stored_bytes[weights], (weights, stored, stored_bytes)
        if name == "huffman-tree" and items == ():  # its shape is known: nothing is added
            assert stored > stored_bytes[weights] - 100


@every_trainer
def test_an_interrupt_ends_it(name: str) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            name, parse_parameters(name, items_of(name)), *data_of(*learnable(80)), 1, 2, interrupt
        )
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("train")]
    assert not left  # threads of other tests come and go
