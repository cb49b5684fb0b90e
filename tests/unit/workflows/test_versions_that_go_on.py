"""Versions that go on: `xylem extend` and `train --from`, the state
of a learner, and what is refused.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Command
from tests.helpers.datasets_helpers import refused, write_lines
from tests.helpers.foreign_models import save_pecos

from xylem.base.db.names import FILE_NAME
from xylem.base.db.of_store import ready_database
from xylem.base.errors import BadInput
from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.extras.importers.registry import import_model
from xylem.thresholds.methods.ofo import Start, no_counts
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.trainers import TrainingSet
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.vocabulary.featurizers import featurizer_of
from xylem.workflows.calibrate import calibrate_and_publish
from xylem.workflows.extend import carry_thresholds, extend_and_publish
from xylem.workflows.going_on import join_rows
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.training_work import TrainReport
from xylem_store.errors import Corrupt
from xylem_store.manifest import STATE
from xylem_store.names import all_names
from xylem_store.origin import json_array, read_json_array, read_origin
from xylem_store.store import Store
from xylem_store.version import Model, draft_of

WORDS = [f"word{i}" for i in range(12)]
LEARNERS = {
    "plt": ("solver=sgd", "epochs=3", "arity=4", "leaf_size=4", "trees=2"),
    "huffman-tree": ("epochs=3", "dim=5", "arity=3", "optimiser=adagrad"),
    "learned-tree": ("epochs=3", "dim=5", "arity=3", "statistics=paths", "learning=0.7"),
    "lomtree": ("passes=3", "leaves=8", "swap_resistance=1", "memory_mb=1"),
}


def rows_of(n: int, *more: str) -> list[dict[str, Any]]:
    """Rows whose first word tells the label; each has these labels besides."""
    return [
        {"text": f"{WORDS[i % 12]} {WORDS[i * 5 % 7]} text", "labels": [f"l{i % 12}", *more]}
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with versions of several trainers, of learners after pass 1 of 3, and data.

    Not to be changed but by new versions.
    """
    home = tmp_path_factory.mktemp("going_on")
    old = write_lines(home / "old.jsonl", rows_of(300))
    write_lines(home / "new.jsonl", [{"text": f"fresh {WORDS[0]}", "labels": ["l0", "monday"]}] * 5)
    write_lines(home / "other.jsonl", [{"features": {"a": 1.0}, "labels": ["monday"]}])
    write_lines(home / "many.jsonl", [{"text": "word1", "labels": [f"n{i}" for i in range(2000)]}])
    rows = write_lines(home / "rows.jsonl", rows_of(100))
    write_lines(home / "others.jsonl", rows_of(90, "fresh"))
    store = Store(home / "store")
    small = ("leaf_size=4",)
    for name, request in {
        "tree": TrainRequest(trainer="label-tree", data=old, parameters=small),
        "kept": TrainRequest(trainer="label-tree", data=old, parameters=small, keep_rows=True),
        "lom": TrainRequest(trainer="lomtree", data=old),
        "sgd": TrainRequest(trainer="plt", data=old, parameters=("solver=sgd", "epochs=1")),
        "leaf": TrainRequest(trainer="fastxml", data=old, parameters=("trees=1",)),
        "batch": TrainRequest(trainer="plt", data=rows, parameters=small),
    }.items():
        train_and_publish(store, name, request)
    for name, parameters in LEARNERS.items():
        request = TrainRequest(
            trainer=name, data=rows, parameters=parameters, keep_state=True, until=1
        )
        train_and_publish(store, name, request)
    combine_and_publish(store, "both", CombineRequest([("tree", 1)], old))
    save_pecos(home / "pecos")
    import_model(store, "pecos", home / "pecos")
    return home


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home / "store")


def extend(
    store: Store, model: str, data: Path, version: int | str = "latest", *rows: Path
) -> TrainReport:
    return extend_and_publish(
        store, model, TrainRequest(trainer="", data=data, base=f"{model}@{version}", rows=rows)
    )


def test_weights_are_refused_where_they_cannot_be(home: Path, store: Store) -> None:
    doubtful = {"text": "fresh", "labels": {"l0": 0.5, "monday": 1}}
    new = write_lines(home / "doubtful.jsonl", [doubtful])
    known = write_lines(home / "known.jsonl", [{**doubtful, "labels": {"l0": 0.5}}])
    plain = {"trainer": "label-tree", "data": new}
    requests = {
        "extend": {"trainer": "", "data": new, "base": "kept"},
        "from": {"trainer": "label-tree", "data": known, "base": "tree"},
        "keep_rows": {**plain, "keep_rows": True},
        "rerank": {**plain, "rerank": True},
    }
    for operation, fields in requests.items():
        train = extend_and_publish if operation == "extend" else train_and_publish
        with pytest.raises(BadInput, match=f"{operation}: expected rows without weights"):
            train(store, str(fields.get("base", "new")), TrainRequest(**fields))
    request = CombineRequest([("tree", 1)], write_lines(home / "c.jsonl", [doubtful] * 40))
    with pytest.raises(BadInput, match="combine: expected rows without weights"):
        combine_and_publish(store, "c", request)


def labels_for(model: Model, texts: list[str], top_r: int) -> np.ndarray:
    """The best labels of each text."""
    rows = featurizer_of(model).transform_texts(texts)
    return (
        make_predictor(model).predict(rows, PredictOptions(top_r=top_r)).labels.reshape(-1, top_r)
    )


def test_a_new_label_is_answered_and_the_next_one_too(home: Path, store: Any) -> None:
    calibrate_and_publish(store, "kept", "latest", write_lines(home / "valid.jsonl", rows_of(150)))
    first = extend(store, "kept", home / "new.jsonl")
    more = [{"text": "newer word3", "labels": ["tuesday", "a first one"]}] * 3
    second = extend(store, "kept", write_lines(home / "more.jsonl", more))
    assert (first.grown["labels_added"], second.grown["labels_added"]) == (1, 2)
    model, old = store.open("kept"), store.open("kept", 2)
    assert model.manifest.n_labels == 15
    assert all_names(model.labels)[-3:] == ["monday", "a first one", "tuesday"]
    fresh, newer = labels_for(model, [f"fresh {WORDS[0]}", "newer word3"], 2).tolist()
    assert 12 in fresh and {13, 14} & set(newer)
    assert model.arrays["labels/counts"][-3:].tolist() == [5, 3, 3]
    for array in ("calibration/x", "calibration/y"):
        assert model.arrays[array].tolist() == old.arrays[array].tolist()
    origin = read_origin(model.arrays)
    assert origin["parent"]["version"] == first.version and "calibration" in origin


def test_thresholds_of_calibrated_scores_are_for_those_only(home: Path, store: Any) -> None:
    valid = write_lines(home / "valid.jsonl", rows_of(150))
    calibrate_and_publish(store, "tree", 1, valid)
    base = store.open("tree").manifest.version
    tuned = Tuned("ofo", "zero", Start(1.0, 2.0), np.full(12, 0.25, np.float32), no_counts(12))
    with ready_database(store.root) as database:
        kept_in = ThresholdDatabase(database)
        kept_in.save("tree", base, tuned)
        going_on = TrainRequest(trainer="label-tree", data=home / "old.jsonl", base=f"tree@{base}")
        plain = train_and_publish(store, "tree", going_on)
        assert not carry_thresholds(store, "tree", plain.version, kept_in)
        again = train_and_publish(
            store, "tree", going_on.model_copy(update={"valid": valid, "calibrate": True})
        )
        assert carry_thresholds(store, "tree", again.version, kept_in)


def test_the_rows_may_come_from_files(home: Path, store: Any, tmp_path: Path) -> None:
    report = extend(store, "tree", home / "new.jsonl", 1, home / "old.jsonl")
    assert store.manifest("tree", report.version).data.rows == 305 and not report.warnings
    other = write_lines(tmp_path / "elsewhere.jsonl", rows_of(30))
    report = extend(store, "tree", home / "new.jsonl", 1, other)
    assert report.warnings == ["elsewhere.jsonl: not what tree@1 was trained on"]


def test_what_cannot_be_extended_is_refused_in_a_sentence(
    home: Path, store: Any, command: Command
) -> None:
    for model, data, rows, message in (
        (
            "tree@1",
            "new.jsonl",
            None,
            "expected --rows, those that tree@1 was trained on, or a version",
        ),
        ("tree@1", "new.jsonl", "gone.jsonl", "gone.jsonl: expected a readable file"),
        ("kept@1", "old.jsonl", None, "labels that kept@1 does not have, found 12, which it has"),
        (
            "kept@1",
            "many.jsonl",
            None,
            "at most 1000 new labels at once for 12 of kept@1, found 2000",
        ),
        (
            "kept@1",
            "other.jsonl",
            None,
            "other.jsonl: expected text or ids and values, which this model",
        ),
        (
            "lom@1",
            "new.jsonl",
            "old.jsonl",
            "one of lomtree, whose labels come with the rows of its stream",
        ),
        ("sgd@1", "new.jsonl", "old.jsonl", "solver: expected batch, found sgd"),
        (
            "leaf@1",
            "new.jsonl",
            "old.jsonl",
            "ovr, plt, huffman-tree, learned-tree, found one of fastxml",
        ),
        (
            "pecos@1",
            "new.jsonl",
            "old.jsonl",
            "huffman-tree, learned-tree, found one of import-pecos",
        ),
        (
            "both@1",
            "new.jsonl",
            None,
            "extend: expected a member that can learn new labels, found none: member tree@1 stays",
        ),
    ):
        more = [] if rows is None else ["--rows", home / rows]
        before = store.versions(model[:-2])
        status, _, told = command("extend", model, "--data", home / data, *more, store=store.root)
        assert status != 0 and message in told and told.count("\n") == 1
        assert store.versions(model[:-2]) == before


def test_a_new_row_that_is_an_old_one_gives_it_its_labels() -> None:
    ids, values = np.array([0, 2, 1], np.int32), np.array([0.5, 0.5, 1.0], np.float32)
    rows = SparseRows(np.array([0, 2, 3, 3]), ids, values, 3)
    old = TrainingSet(rows, LabelRows(np.array([0, 1, 2, 3]), np.array([0, 1, 0], np.int32), 4))
    labels = LabelRows(np.array([0, 2, 3, 4, 5]), np.array([0, 3, 2, 2, 3], np.int32), 4)
    found = join_rows(old, TrainingSet(rows.take(np.array([1, 2, 0, 0])), labels))
    assert found.rows.indptr.tolist() == [0, 2, 3, 3, 3]
    joined = np.split(found.labels.indices, found.labels.indptr[1:-1])
    assert [row.tolist() for row in joined] == [[0, 2, 3], [0, 1, 3], [0], [2]]


@pytest.mark.parametrize("name", ["kept", "tree"])
def test_a_training_goes_on_from_a_version(
    home: Path, store: Any, command: Command, name: str
) -> None:
    write_lines(home / "next.jsonl", rows_of(400))
    options = ["--data", home / "next.jsonl", "--model", name, "--from", f"{name}@1"]
    status, _, told = command("train", "label-tree", *options, store=store.root)
    assert (status, told) == (0, "")
    made, old = store.open(name), store.open(name, 1)
    assert np.array_equal(made.ensemble.node_label, old.ensemble.node_label)
    assert (made.ensemble.node_bias != old.ensemble.node_bias).any()
    assert made.manifest.data.rows == 400 and made.manifest.features == old.manifest.features
    assert len(made.arrays.get("rows/indptr", [])) == (401 if name == "kept" else 0)
    for more, message in (
        (["-p", "cost=1"], f"from: expected parameters and weights of {name}@1 to stay"),
        (["--data", home / "new.jsonl"], "found 1 others, as 'monday': add them by xylem extend"),
        (["--from", "sgd@1"], "from: expected a version of label-tree, found sgd@1, one of plt"),
        (["--stream"], "from: expected rows in memory, or a trainer that makes passes"),
    ):
        status, _, told = command("train", "label-tree", *options, *more, store=store.root)
        assert status == 2 and message in told
    assert store.versions(name)[-1] == made.manifest.version


def test_a_version_is_no_latest_before_it_has_its_thresholds(
    home: Path, command: Command, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    train_and_publish(
        store, "m", TrainRequest(trainer="label-tree", data=home / "old.jsonl", keep_rows=True)
    )
    commands = (
        ("extend", "m", "--data", home / "new.jsonl"),
        ("train", "label-tree", "--data", home / "old.jsonl", "--model", "m", "--from", "m@1"),
    )
    database = store.root / FILE_NAME
    database.write_bytes(b"no database" * 500)
    for line in commands:
        status, _, told = command(*line)
        assert status == 1 and "database" in told
        assert store.alias("m", "latest").version == 1
    database.unlink()
    for line in commands:
        assert command(*line)[0] == 0
        assert store.alias("m", "latest").version == store.versions("m")[-1]


def test_what_cannot_go_on_is_refused_in_a_sentence(
    home: Path, store: Any, command: Command
) -> None:
    for trainer, options, message in (
        ("lomtree", ["--from", "lom@1"], "found lom@1 without one: train it with --keep-state"),
        (
            "lomtree",
            ["--from", "plt@1"],
            "from: expected a version of lomtree, found plt@1, one of plt",
        ),
        (
            "plt",
            ["--from", "plt@1", "-p", "rate=1"],
            "parameters and weights of plt@1 to stay, but",
        ),
        (
            "plt",
            ["--from", "plt@1", "-p", "features.lowercase=false"],
            "but for epochs, found others",
        ),
        (
            "plt",
            ["--from", "plt@1", "--weights", "int8"],
            "parameters and weights of plt@1 to stay",
        ),
        ("plt", ["--from", "plt@1", "--until", "1"], "until: expected a pass after 1"),
        (
            "plt",
            ["--from", "plt@1", "--until", "4"],
            "until: expected a pass of 1 to 3, found 4",
        ),
        (
            "plt",
            ["--from", "plt@1", "-p", "epochs=1"],
            "found plt@1, which has made all 1: plan more by -p",
        ),
        (
            "plt",
            ["--from", "plt@1", "--data", "others"],
            "expected the rows of plt@1, over which its passes",
        ),
        ("plt", ["--from", "plt@1", "--stream", "--data", "others"], "expected the rows of plt@1"),
        (
            "plt",
            ["--from", "plt@1", "--rerank"],
            "from: expected a version without a ranker, found rerank",
        ),
        ("learned-tree", ["--from", "learned-tree", "-p", "epochs=9"], "epochs: expected 3 as"),
        (
            "plt",
            ["--keep-state"],
            "keep_state: expected one of lomtree, huffman-tree, learned-tree, or plt",
        ),
        ("plt", ["--until", "1", "-p", "solver=sgd"], "until: expected keep_state, so that"),
        ("huffman-tree", ["--keep-state"], "keep_state: expected until below the 15 passes"),
        ("label-tree", ["--keep-state"], "or plt with solver=sgd, found label-tree"),
        ("plt", ["--from", "batch", "--stream"], "from: expected rows in memory"),
        ("lomtree", ["--stream", "--keep-rows"], "keep_rows: expected rows in memory"),
    ):
        data = home / "others.jsonl" if "others" in options else home / "rows.jsonl"
        given = [data if option == "others" else option for option in ("--data", data, *options)]
        status, _, told = command("train", trainer, *given, "--model", "no", store=store.root)
        assert status == 2 and message in told and told.count("\n") == 1
    assert store.versions("no") == ()


def publish_state(store: Store, base: str, name: str, **arrays: Any) -> None:
    """Publish a version with other arrays of its state, of the right digests."""
    draft = draft_of(store.open(base, 1))
    changed = {f"{STATE}/{key}": array for key, array in arrays.items()}
    store.publish(name, replace(draft, extra={**draft.extra, **changed}))


def test_a_state_of_another_release_or_trainer_is_refused(home: Path, store: Any) -> None:
    facts = read_json_array(store.open("plt", 1).arrays, f"{STATE}/json")
    for field, value, message in (
        ("format", 2, "of another release"),
        ("trainer", "lomtree", "a state of plt"),
        ("passes", -1, "state.json.npy: expected passes"),
        ("facts", 7, "state.json.npy: expected passes"),
    ):
        publish_state(
            store, "plt", "other", json=json_array(f"{STATE}/json", {**facts, field: value})
        )
        with refused((BadInput, Corrupt), message):
            train_and_publish(
                store,
                "no",
                TrainRequest(trainer="plt", data=home / "rows.jsonl", base="other@latest"),
            )


def hostile(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array with a number that nobody would write at one place."""
    changed = array.copy()
    if changed.dtype.kind in "iu":
        bounds = np.iinfo(changed.dtype)
        values = np.array([bounds.min, bounds.max, 0, 1, 7], changed.dtype)
    else:
        values = np.array([0, -1, 1e30, np.inf, np.nan], changed.dtype)
    changed.reshape(-1)[rng.integers(array.size)] = values[rng.integers(5)]
    return changed


@pytest.mark.parametrize("learner", LEARNERS)
def test_numbers_that_nobody_wrote_never_crash_a_training(
    home: Path, store: Any, learner: str
) -> None:
    arrays = {
        name.removeprefix(f"{STATE}/"): array
        for name, array in store.open(learner, 1).arrays.items()
        if name.startswith(f"{STATE}/") and array.size and not name.endswith("json")
    }
    rng, n_refused = np.random.default_rng(5), 0
    for name, array in arrays.items():
        for changed in (np.ascontiguousarray(array[:-1]), hostile(array, rng)):
            publish_state(store, learner, "hostile", **{name: changed})
            request = TrainRequest(trainer=learner, data=home / "rows.jsonl", base="hostile@latest")
            try:
                train_and_publish(store, "hostile", request)
            except (Corrupt, BadInput) as error:
                n_refused += 1
                assert "expected" in str(error)
    assert n_refused >= len(arrays)


def test_a_damaged_state_is_seen_by_those_who_read_it_alone(home: Path, store: Any) -> None:
    publish_state(store, "plt", "damaged")
    path = store.root / "models/damaged/versions/1/arrays/state.weights.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    store = Store(home / "store")  # which has not verified it before
    assert labels_for(store.open("damaged"), ["word3 word1"], 1)[0, 0] >= 0
    with pytest.raises(Corrupt, match=r"damaged@1: state\.weights\.npy: expected sha256"):
        train_and_publish(
            store,
            "no",
            TrainRequest(trainer="plt", data=home / "rows.jsonl", base="damaged@latest"),
        )
    with pytest.raises(Corrupt, match=r"state\.weights\.npy"):
        store.verify("damaged", 1)


def test_a_version_continued_twice_is_one_trained_for_all_passes(home: Path, store: Any) -> None:
    data, version = home / "rows.jsonl", 1
    for base, epochs in (("plt", 5), ("longer", 6)):
        request = TrainRequest(
            trainer="plt", data=data, base=f"{base}@{version}", parameters=(f"epochs={epochs}",)
        )
        version = train_and_publish(store, "longer", request).version
    parameters = tuple(each.replace("epochs=3", "epochs=6") for each in LEARNERS["plt"])
    train_and_publish(
        store, "unbroken", TrainRequest(trainer="plt", data=data, parameters=parameters)
    )
    found, unbroken = store.open("longer", version), store.open("unbroken")
    assert found.manifest.trainer == unbroken.manifest.trainer
    for one, other in zip(found.ensemble, unbroken.ensemble, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("lead", [0, 2])
def test_a_training_goes_on_with_the_first_words_of_its_version(
    home: Path, store: Any, lead: int
) -> None:
    """A manifest without `lead` stands for 0, whatever a new training has."""
    parameters = (*LEARNERS["plt"], f"features.lead={lead}")
    first = TrainRequest(
        trainer="plt", data=home / "rows.jsonl", parameters=parameters, keep_state=True, until=1
    )
    name = f"lead{lead}"
    train_and_publish(store, name, first)
    request = TrainRequest(trainer="plt", data=home / "rows.jsonl", base=f"{name}@1")
    made = store.open(name, train_and_publish(store, name, request).version)
    unbroken = first.model_copy(update={"keep_state": False, "until": 0})
    expected = store.open(name, train_and_publish(store, name, unbroken).version)
    assert made.manifest.features == expected.manifest.features
    assert made.manifest.features.get("lead", 0) == lead
    for one, other in zip(made.ensemble, expected.ensemble, strict=True):
        assert one.tobytes() == other.tobytes()
