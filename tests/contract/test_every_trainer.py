"""What every trainer of the registry promises.

It trains, publishes, verifies, serves and explains, alike for a seed on any number of threads, and has an
answer to every data set, be it a clear error.
"""

import dataclasses
import itertools
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from model_store.origin import ORIGIN, REPORT, read_report
from model_store.store import Store
from model_store.version import draft_of
from service.base.errors import BadInput
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.trainers import Trained, TrainingSet, estimate, parse_parameters, train
from service.trainers.held_blocks import STAGE as BLOCKS
from service.trainers.registry import TRAINERS
from service.trainers.source import Tools
from service.trainers.windows import STAGE
from service.workflows.calibrate import calibrate_and_publish
from service.workflows.choose_features import trial_model
from service.workflows.train import TrainRequest, train_and_publish
from tests.conftest import serving, settings_of
from tests.measured import evaluate
from tests.oracles.problems import to_labels, to_rows

N_FEATURES = 40
N_LABELS = 6
NDJSON = {"content-type": "application/x-ndjson"}
FEW = {"trees": 3, "epochs": 3, "passes": 2}
"""Parameters that make a training short, for trainers that have them."""

every_trainer = pytest.mark.parametrize("name", list(TRAINERS))


def items_of(name: str, **changes: Any) -> list[str]:
    """Short parameters of a trainer, and changes of those that it has."""
    known = TRAINERS[name].parameters.model_fields
    return [f"{key}={value}" for key, value in {**FEW, **changes}.items() if key in known]


def learnable(n_rows: int = 120, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose label says which six features they have most of; (float64[n, D], labels bool[n, K])."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, N_LABELS, n_rows)
    x = (rng.random((n_rows, N_FEATURES)) < 0.1) * rng.random((n_rows, N_FEATURES))
    for row, own in enumerate(label):
        x[row, 6 * own : 6 * own + 6] += rng.random(6) < 0.8
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9), np.eye(N_LABELS, dtype=bool)[label]


def trained_on(name: str, x: Any, y: Any, seed: int = 1, threads: int = 1, **changes: Any) -> Trained:
    parameters = parse_parameters(name, items_of(name, **changes))
    return train(name, parameters, to_rows(np.asarray(x)), to_labels(np.asarray(y)), seed, threads)


def write_file(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    lines = [f"{len(x)} {x.shape[1]} {y.shape[1]}"]
    for row, labels in zip(x, y, strict=True):
        pairs = " ".join(f"{f}:{row[f]:.6f}" for f in np.flatnonzero(row))
        lines.append(f"{','.join(map(str, np.flatnonzero(labels)))} {pairs}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A model of every trainer, by the trainer's name."""
    root = tmp_path_factory.mktemp("trained")
    data = write_file(root / "train.txt", *learnable())
    valid = write_file(root / "valid.txt", *learnable(40, seed=4))
    store = Store(root / "store")
    for name in TRAINERS:
        request = TrainRequest(name, data, valid, items_of(name), seed=2, threads=2)
        report = train_and_publish(store, name, request)
        assert (report.version, report.trainer) == (1, name)
        assert report.metrics["P@1"] > 50, name
    return store


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows to evaluate on."""
    return write_file(tmp_path_factory.mktemp("test") / "test.txt", *learnable(40, seed=5))


@every_trainer
def test_what_it_publishes_is_verified_and_evaluated(store: Store, name: str, held_out: Path) -> None:
    store.verify(name, 1)
    model = store.open(name)
    assert model.manifest.trainer.name == name
    told = {f"{key}={value}" for key, value in model.manifest.trainer.parameters.items()}
    assert set(items_of(name)) <= told
    assert evaluate(model, held_out)["P@1"] > 50
    assert model.manifest.metrics.keys() >= {"P@1", "nDCG@5", "PSP@3"}


@every_trainer
def test_it_is_calibrated_or_refused(store: Store, name: str, held_out: Path, tmp_path: Path) -> None:
    valid = write_file(tmp_path / "valid.txt", *learnable(200, seed=8))
    source, own = store.open(name), Store(tmp_path / "store")
    own.prepare()
    own.publish(name, draft_of(source))
    if source.manifest.link == "softmax":
        with pytest.raises(BadInput, match=f"found one of {name}: its probabilities sum to 1"):
            calibrate_and_publish(own, name, "latest", valid)
        return
    calibrate_and_publish(own, name, "latest", valid)
    own.verify(name, 2)
    before, after = (
        {key: value for key, value in evaluate(model, held_out).items() if "@" in key}
        for model in (source, own.open(name))
    )
    assert before == after


async def ask(client: httpx.AsyncClient, name: str, **body: Any) -> list[Any]:
    """The labels of each instance, which a model of this name answers."""
    response = await client.post(f"/v1/models/{name}/predict", json={"top_r": N_LABELS, **body})
    assert response.status_code == 200, response.text
    return [one["labels"] for one in response.json()["predictions"]]


async def test_they_are_served_with_all_options_and_take_feedback(store: Store, tmp_path: Path) -> None:
    shutil.copytree(store.root, tmp_path / "store")  # feedback leaves a database beside the store
    x, y = learnable(8, seed=6)
    instances = [{"indices": np.flatnonzero(row).tolist(), "values": row[row != 0].tolist()} for row in x]
    lines = "".join(json.dumps(instance) + "\n" for instance in instances)
    async with serving(settings_of(tmp_path / "store")) as (_, client):
        for name in TRAINERS:
            full = await ask(client, name, instances=instances)
            right = 0
            for labels, truth in zip(full, y, strict=True):
                scores = [label["score"] for label in labels]
                assert scores == sorted(scores, reverse=True), name
                assert all(0 <= score <= 1 for score in scores), name
                right += bool(labels) and bool(truth[labels[0]["id"]])
            assert right >= 5, name
            two = await ask(client, name, instances=instances, top_r=2)
            assert two == [labels[:2] for labels in full], name
            passing = await ask(client, name, instances=instances, threshold=0.3)
            assert passing == [[one for one in labels if one["score"] >= 0.3] for labels in full], name
            path = f"/v1/models/{name}/batch?top_r={N_LABELS}"
            batch = await client.post(path, content=lines, headers=NDJSON)
            assert [json.loads(line)["labels"] for line in batch.text.splitlines()] == full, name
            explained = await ask(client, name, instances=instances, explain=True)
            for label in itertools.chain.from_iterable(explained):
                why = label.pop("explanation")
                assert why.get("trees") or why.get("leaves"), name
            assert explained == full, name
            one: dict[str, Any] = {"instances": instances[:1], "exact": True}
            [every] = await ask(client, name, **one)
            some = [label["label"] for label in every[:2]]
            assert await ask(client, name, **one, allow_labels=some) == [every[:2]], name
            assert await ask(client, name, **one, deny_labels=some) == [every[2:]], name
            event = {"instance": instances[0], "labels": some[:1]}
            events = [{"event_id": f"e{i}", **event} for i in range(3)]
            told = await client.post(f"/v1/models/{name}/feedback", json={"events": events})
            assert [each["result"] for each in told.json()["results"]] == ["applied"] * 3, told.text


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@every_trainer
def test_few_bits_cost_little(name: str, weights: Any, store: Store, held_out: Path, tmp_path: Path) -> None:
    data, own = write_file(tmp_path / "train.txt", *learnable()), Store(tmp_path / "store")
    train_and_publish(own, name, TrainRequest(name, data, None, items_of(name), weights=weights, seed=2))
    own.verify(name, 1)
    model = own.open(name)
    assert model.manifest.weights == weights
    assert model.manifest.model_bytes < store.open(name).manifest.model_bytes
    assert evaluate(model, held_out)["P@1"] > evaluate(store.open(name), held_out)["P@1"] - 10  # type: ignore[operator]


def streamed_items(name: str) -> list[str]:
    return items_of(name) + ["solver=sgd"] * (name == "plt")


@every_trainer
def test_a_stream_is_learnt_from_or_refused_with_those_that_can(name: str, tmp_path: Path) -> None:
    store, data = Store(tmp_path / "store"), write_file(tmp_path / "train.txt", *learnable())
    request = TrainRequest(name, data, None, streamed_items(name), stream=True)
    if TRAINERS[name].reads == "rows":
        with pytest.raises(BadInput, match=rf"expected one that can stream, .*plt.*; found {name}"):
            train_and_publish(store, name, request)
        assert store.models() == []
        return
    assert train_and_publish(store, name, request).version == 1
    if TRAINERS[name].reads == "once":  # the leaves of a stream are not counted anew
        assert evaluate(store.open(name), data)["P@1"] > 50
        return
    in_memory = dataclasses.replace(request, stream=False, threads=2)
    train_and_publish(store, name, in_memory)
    streamed, whole = store.open(name, 1), store.open(name, 2)
    told = ({**read_report(model.arrays), "forest": 0} for model in (streamed, whole))
    assert next(told) == next(told), "but for where training rows in memory go in a forest"
    for array in whole.arrays.keys() - {ORIGIN, REPORT}:
        assert streamed.arrays[array].tobytes() == whole.arrays[array].tobytes(), array


STREAMING = [name for name, spec in TRAINERS.items() if spec.reads != "rows"]


@pytest.mark.parametrize("name", STREAMING)
def test_a_stream_that_cannot_be_learnt_from_is_refused(name: str, tmp_path: Path) -> None:
    store, items = Store(tmp_path / "store"), streamed_items(name)
    pipe, empty, unlabelled = tmp_path / "pipe.svm", tmp_path / "empty.svm", tmp_path / "none.svm"
    os.mkfifo(pipe)
    holder = os.open(pipe, os.O_RDWR)  # somebody writes: opening it does not wait
    empty.write_text("")
    unlabelled.write_text(" 0:1\n 1:1\n")
    faults = {
        pipe: "pipe.svm: expected a readable file, found: .*File or stream is not seekable",
        empty: "expected at least one row, found none",
        unlabelled: "expected rows with labels, found none in 2 rows",
        Path("-"): "expected a file with --stream and --label-names, found standard input",
    }
    for path, message in faults.items():
        with pytest.raises(BadInput, match=message):
            train_and_publish(store, name, TrainRequest(name, path, None, items, stream=True))
    os.close(holder)

    changing = write_file(tmp_path / "train.txt", *learnable())

    def change(phase: str, done: int, _: int) -> None:
        if phase in (STAGE, BLOCKS) and done == 0:
            changing.write_text(changing.read_text().replace(":0.", ":1.", 1))

    with pytest.raises(BadInput, match="it has changed"):
        train_and_publish(store, name, TrainRequest(name, changing, None, items, stream=True), change)
    assert store.models() == []


def bits_of(trained: Trained) -> dict[str, bytes]:
    arrays = {**trained.ensemble._asdict(), **trained.extra}
    return {name: array.tobytes() for name, array in arrays.items()}


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in TRAINERS),
    ("label-tree", {"leaf_size": 2, "arity": 2}),
    ("label-tree", {"clustering": "kmeans", "leaf_size": 2, "arity": 2}),
    ("label-tree", {"loss": "logistic"}),
    ("plt", {"tree": "random", "arity": 2}),
    ("plt", {"solver": "sgd", "leaf_size": 2, "arity": 2}),
    ("plt", {"solver": "sgd", "tree": "huffman", "arity": 2}),
    ("ldsm", {"optimiser": "nag", "rerank": "yes"}),
]


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
def test_a_seed_gives_the_same_bits_on_any_number_of_threads(name: str, changes: dict[str, Any]) -> None:
    x, y = learnable(80)
    first = trained_on(name, x, y, seed=7, **changes)
    for threads in (1, 2, 3):
        again = trained_on(name, x, y, seed=7, threads=threads, **changes)
        assert bits_of(again) == bits_of(first)
        assert again.report == first.report
    assert bits_of(trained_on(name, x, y, seed=8, **changes)) != bits_of(first)
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


@every_trainer
@pytest.mark.parametrize("case", ODD_DATA)
def test_odd_data_give_a_model_or_a_clear_error(name: str, case: str) -> None:
    x, y = np.asarray(ODD_DATA[case][0], float), np.asarray(ODD_DATA[case][1]) > 0
    try:
        trained = trained_on(name, x, y, arity=4)
    except BadInput as error:
        assert "expected" in str(error)
        assert "found" in str(error)
        return
    predictor = make_predictor(trial_model(trained, y.shape[1], x.shape[1]))
    found = predictor.predict(to_rows(x), PredictOptions(top_r=3))
    assert np.isfinite(found.scores).all()
    assert ((found.scores >= 0) & (found.scores <= 1)).all()
    unseen = np.flatnonzero(~y.any(axis=0))
    for first, last in itertools.pairwise(found.ptr):
        certain = found.labels[first:last][found.scores[first:last] > 0.5]
        assert not np.isin(unseen, certain).any(), "a label that no row carries is never likely"


WITH_MAX_NODES = [name for name, spec in TRAINERS.items() if "max_nodes" in spec.parameters.model_fields]


@pytest.mark.parametrize("name", WITH_MAX_NODES)
def test_a_tree_of_fewer_nodes_than_children_is_a_leaf(name: str) -> None:
    try:
        trained = trained_on(name, *learnable(60), arity=4, max_nodes=2)
    except BadInput as error:
        assert "expected" in str(error)
    else:
        assert len(trained.ensemble.parent) == trained.ensemble.child_ptr[0]


@every_trainer
def test_what_cannot_be_trained_on_is_refused(name: str) -> None:
    parameters = parse_parameters(name, items_of(name))
    rows, nothing = to_rows(np.eye(4)), to_labels(np.zeros((4, 3), bool))
    for labels in (nothing, to_labels(np.ones((3, 2), bool))):
        with pytest.raises(BadInput, match=r"expected.*found"):
            train(name, parameters, rows, labels)
    with pytest.raises(BadInput, match=r"expected.*found"):
        parse_parameters(name, ["no_such_parameter=1"])
    for field, bad in itertools.product(TRAINERS[name].parameters.model_fields, ("nan", "-1e30")):
        with pytest.raises(BadInput, match=f"{field}: expected"):
            parse_parameters(name, [f"{field}={bad}"])


@every_trainer
def test_its_estimate_is_a_bound(name: str) -> None:
    x, y = learnable(80)
    parameters = parse_parameters(name, items_of(name))
    found = estimate(name, parameters, TrainingSet(to_rows(x), to_labels(y)), Tools(1))
    bounds = {"nonzeros_bound", "bytes_bound", "ratio_to_ovr"}
    assert found.keys() == {*bounds, "stored_bytes", "alpha_per_depth"}
    trained = trained_on(name, x, y)
    assert found["nonzeros_bound"] >= trained.n_nonzeros
    if name == "huffman-tree":  # all but the 16 weights after the last row
        embedded = sum(trained.extra[f"embedding/{part}"].nbytes for part in "ur")
        assert found["stored_bytes"]["float32"] == trained.ensemble.dense[:-16].nbytes + embedded


@every_trainer
def test_an_interrupt_ends_it(name: str) -> None:
    x, y = learnable(80)
    parameters = parse_parameters(name, items_of(name))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(name, parameters, to_rows(x), to_labels(y), 1, 2, interrupt)
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("train")]
    assert not left  # threads of other tests come and go
