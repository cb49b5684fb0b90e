"""The state of a learner: what is refused in a sentence, what hostile numbers do, and what never reads it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.errors import Corrupt
from model_store.manifest import STATE
from model_store.origin import json_array, read_json_array
from model_store.store import Store
from model_store.version import draft_of
from service.base.errors import BadInput
from service.inference.predictor import PredictOptions
from service.inference.predictors import make_predictor
from service.vocabulary.featurizers import featurizer_of
from service.workflows.train import TrainRequest, train_and_publish
from tests.conftest import Command
from tests.datasets_helpers import write_lines

WORDS = [f"word{i}" for i in range(12)]
LEARNERS: dict[str, tuple[str, ...]] = {
    "plt": ("solver=sgd", "epochs=3", "arity=4", "leaf_size=4", "trees=2"),
    "huffman-tree": ("epochs=3", "dim=5", "arity=3", "optimiser=adagrad"),
    "learned-tree": ("epochs=3", "dim=5", "arity=3", "statistics=paths", "learning=0.7"),
    "lomtree": ("passes=3", "leaves=8", "swap_resistance=1", "memory_mb=1"),
}


ROUNDS = 2
"""How often a number of each array is changed."""


def _write(path: Path, n: int, *more: str) -> Path:
    rows: list[dict[str, Any]] = [
        {"text": f"{WORDS[i % 12]} {WORDS[i * 5 % 7]}", "labels": [f"l{i % 12}", *more]} for i in range(n)
    ]
    return write_lines(path, rows)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a version of each learner after pass 1 of 3. Not to be changed but by new versions."""
    home = tmp_path_factory.mktemp("kept_state")
    data, store = _write(home / "rows.jsonl", 100), Store(home / "store")
    _write(home / "others.jsonl", 90, "fresh")
    for name, parameters in LEARNERS.items():
        request = TrainRequest(name, data, parameters=parameters, keep_state=True, until=1)
        train_and_publish(store, name, request)
    train_and_publish(store, "without", TrainRequest("lomtree", data, parameters=LEARNERS["lomtree"]))
    train_and_publish(store, "tree", TrainRequest("label-tree", data, keep_rows=True))
    batch = TrainRequest("plt", data, parameters=("leaf_size=4",))
    train_and_publish(store, "batch", batch)
    return home


def _publish(store: Store, base: str, name: str, **arrays: Any) -> None:
    """Publish a version with other arrays of its state, of the right digests."""
    draft = draft_of(store.open(base, 1))
    changed = {f"{STATE}/{key}": array for key, array in arrays.items()}
    store.publish(name, replace(draft, extra={**draft.extra, **changed}))


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        ("lomtree", ["--from", "without"], "found without@1 without: train it with --keep-state"),
        ("lomtree", ["--from", "plt@1"], "from: expected a version of lomtree, found plt@1, one of plt"),
        ("plt", ["--from", "plt@1", "-p", "rate=1"], "parameters and weights of plt@1 to stay, but"),
        (
            "plt",
            ["--from", "plt@1", "-p", "features.lowercase=false"],
            "to stay, but for epochs, found others",
        ),
        ("plt", ["--from", "plt@1", "--weights", "int8"], "parameters and weights of plt@1 to stay"),
        ("plt", ["--from", "plt@1", "--until", "1"], "until: expected a pass after 1"),
        ("plt", ["--from", "plt@1", "--until", "4"], "until: expected a file, and a pass of 1 to 3, found 4"),
        ("plt", ["--from", "plt@1", "-p", "epochs=1"], "found plt@1, which has made all 1: plan more by -p"),
        ("plt", ["--from", "plt@1", "--data", "others"], "expected the rows of plt@1, over which its passes"),
        ("plt", ["--from", "plt@1", "--stream", "--data", "others"], "expected the rows of plt@1"),
        ("plt", ["--from", "plt@1", "--rerank"], "from: expected rows in memory and nothing fitted besides"),
        ("learned-tree", ["--from", "learned-tree", "-p", "epochs=9"], "epochs: expected 3 as"),
        ("plt", ["--keep-state"], "keep_state: expected one of lomtree, huffman-tree, learned-tree, or plt"),
        ("plt", ["--until", "1", "-p", "solver=sgd"], "until: expected --keep-state"),
        ("huffman-tree", ["--keep-state"], "keep_state: expected --until below the 15 passes"),
        ("label-tree", ["--keep-state"], "or plt with solver=sgd, found label-tree"),
        ("plt", ["--from", "batch", "--stream"], "from: expected rows in memory"),
    ],
)
def test_what_cannot_go_on_is_refused_in_a_sentence(
    home: Path, command: Command, trainer: str, options: list[str], message: str
) -> None:
    data = ["--data", home / "rows.jsonl"]
    if "--data" in options:
        at = options.index("--data")
        options, data = options[:at], ["--data", home / f"{options[at + 1]}.jsonl"]
    status, _, told = command("train", trainer, *data, "--model", "no", *options, store=home / "store")
    assert status == 2 and message in told and told.count("\n") == 1
    assert Store(home / "store").versions("no") == ()


@pytest.mark.parametrize("field", ["format", "trainer", "passes", "facts"])
def test_a_state_of_another_release_or_trainer_is_refused(home: Path, field: str) -> None:
    store = Store(home / "store")
    facts = read_json_array(store.open("plt", 1).arrays, f"{STATE}/json")
    wrong = {"format": 2, "trainer": "lomtree", "passes": -1, "facts": 7}
    changed = json_array(f"{STATE}/json", {**facts, field: wrong[field]})
    _publish(store, "plt", f"other-{field}", json=changed)
    request = TrainRequest("plt", home / "rows.jsonl", base=(f"other-{field}", "latest"))
    words = {"format": "of another release", "trainer": "a state of plt", "passes": "", "facts": ""}
    with pytest.raises((BadInput, Corrupt), match=words[field] or "state.json.npy: expected passes"):
        train_and_publish(store, "no", request)


@pytest.mark.parametrize("learner", LEARNERS)
def test_numbers_that_nobody_wrote_are_refused_or_trained_on_but_never_crash(
    home: Path, learner: str
) -> None:
    store, refused = Store(home / "store"), 0
    arrays = {
        name.removeprefix(f"{STATE}/"): array
        for name, array in store.open(learner, 1).arrays.items()
        if name.startswith(f"{STATE}/") and array.size and not name.endswith("json")
    }
    rng = np.random.default_rng(5)
    for round_ in range(ROUNDS):
        for name, array in arrays.items():
            changed = array.copy()
            if changed.dtype.kind in "iu":
                bounds = np.iinfo(changed.dtype)
                values = np.array([bounds.min, bounds.max, 0, 1, 7], changed.dtype)
            else:
                values = np.array([0, -1, 1e30, np.inf, np.nan], changed.dtype)
            changed.reshape(-1)[rng.integers(array.size)] = values[rng.integers(5)]
            if round_ == 0:
                changed = np.ascontiguousarray(array[:-1])
            _publish(store, learner, "hostile", **{name: changed})
            request = TrainRequest(learner, home / "rows.jsonl", base=("hostile", "latest"))
            try:
                train_and_publish(store, "hostile", request)
            except (Corrupt, BadInput) as error:
                refused += 1
                assert "expected" in str(error)
    assert refused >= len(arrays)


def test_a_damaged_state_is_seen_by_those_who_read_it_alone(home: Path) -> None:
    store = Store(home / "store")
    _publish(store, "plt", "damaged")
    path = home / "store/models/damaged/versions/1/arrays/state.weights.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    store = Store(home / "store")  # which has not verified it before
    model = store.open("damaged")
    rows = featurizer_of(model).transform_texts(["word3 word1"])
    assert make_predictor(model).predict(rows, PredictOptions(top_r=1)).labels[0] >= 0
    with pytest.raises(Corrupt, match=r"damaged@1: state\.weights\.npy: expected sha256"):
        train_and_publish(store, "no", TrainRequest("plt", home / "rows.jsonl", base=("damaged", "latest")))
    with pytest.raises(Corrupt, match=r"state\.weights\.npy"):
        store.verify("damaged", 1)


def test_what_a_version_keeps_is_kept_by_those_that_go_on(home: Path) -> None:
    store = Store(home / "store")
    on = TrainRequest("label-tree", _write(home / "next.jsonl", 130), base=("tree", 1))
    version = train_and_publish(store, "tree", on).version
    assert len(store.open("tree", version).arrays["rows/indptr"]) == 131
    longer = TrainRequest("plt", home / "rows.jsonl", base=("plt", 1), parameters=("epochs=5",))
    version = train_and_publish(store, "longer", longer).version
    again = TrainRequest("plt", home / "rows.jsonl", base=("longer", version), parameters=("epochs=6",))
    version = train_and_publish(store, "longer", again).version
    parameters = tuple(each.replace("epochs=3", "epochs=6") for each in LEARNERS["plt"])
    train_and_publish(store, "unbroken", TrainRequest("plt", home / "rows.jsonl", parameters=parameters))
    found, unbroken = store.open("longer", version), store.open("unbroken")
    assert found.manifest.trainer == unbroken.manifest.trainer
    for one, other in zip(found.ensemble, unbroken.ensemble, strict=True):
        assert one.tobytes() == other.tobytes()
