"""Training, evaluating and estimating on small files, and the warm-up that runs all."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import answer
from tests.helpers.datasets_helpers import refused, write_lines
from tests.helpers.measured import evaluate, tuned_to

from xylem.base.errors import BadData, BadInput, BadParameter
from xylem.engine import all_labels
from xylem.server.warm import kernels as warm
from xylem.trainers import TRAINERS, parse_parameters
from xylem.workflows import evaluate as measuring
from xylem.workflows.estimate import estimate_size
from xylem.workflows.request import TrainRequest, from_json, parse
from xylem.workflows.train import train_and_publish
from xylem.workflows.weights import WEIGHED
from xylem_store.ensemble import Weights
from xylem_store.manifest import WEIGHTS
from xylem_store.origin import read_origin, read_report
from xylem_store.store import Store

COLOURS = ("red", "green", "blue", "white")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose first word is their label; a fifth label is on two rows beside another."""
    rows = [
        {
            "text": f"{COLOURS[i % 4]} thing{i % 7}",
            "labels": [COLOURS[i % 4], *(["rare"] if i < 2 else [])],
        }
        for i in range(80)
    ]
    return write_lines(tmp_path_factory.mktemp("rows") / "rows.jsonl", rows)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_version_says_where_it_came_from(file: Path, store: Any) -> None:
    phases = {}
    parameters = ("leaf_size=2", "features.norm=l1")
    request = TrainRequest(
        trainer="label-tree", data=file, valid=file, parameters=parameters, seed=3
    )
    report = train_and_publish(
        store, "colours", request, lambda phase, done, total: phases.update({phase: (done, total)})
    )
    manifest, model = store.manifest("colours", report.version), store.open("colours")
    assert manifest.metrics == report.metrics
    assert report.metrics["P@1"] == 100
    assert "us_per_row" not in report.metrics
    assert (manifest.trainer.parameters["leaf_size"], manifest.features["norm"]) == (2, "l1")
    assert (manifest.seed, manifest.data.rows, manifest.data.source) == (3, 80, "rows.jsonl")
    assert report.model_bytes == manifest.model_bytes
    assert sorted(model.arrays["labels/counts"].tolist()) == [2, 20, 20, 20, 20]
    assert {"read", "features", "classifiers", "publish"} <= phases.keys()
    assert all(done == total for done, total in phases.values())
    assert "validation" in read_report(model.arrays)
    assert train_and_publish(store, "plain", TrainRequest(trainer="ovr", data=file)).metrics == {}
    assert "validation" not in read_report(store.open("plain").arrays)


def test_a_validation_file_that_cannot_be_used_is_refused_first(
    file: Path, store: Any, tmp_path: Path
) -> None:
    phases = []

    def tell(phase: str, *_: int) -> None:
        phases.append(phase)

    for name, content, words in (
        ("none.jsonl", None, "none.jsonl: expected a readable file"),
        ("valid.xls", "red", "expected a name that ends in"),
        (
            "valid.jsonl",
            '{"text": "red", "labels": ["red"]}\n{"text": "red"}\n',
            "valid.jsonl:2: expected",
        ),
        ("valid.txt", "1 2 9\n0 1:1\n", "valid.txt: expected text"),
        ("valid.svm", "0 1:1\n", "valid.svm: expected text"),
        ("valid.jsonl", '{"features": {"red": 1}, "labels": ["red"]}\n', "expected text"),
    ):
        if content is not None:
            (tmp_path / name).write_text(content)
        with refused(BadInput, words):
            train_and_publish(
                store, "m", TrainRequest(trainer="ovr", data=file, valid=tmp_path / name), tell
            )
    assert phases and "classifiers" not in phases
    stream = TrainRequest(
        trainer="plt",
        data=file,
        valid=tmp_path / "none.txt",
        parameters=("solver=sgd",),
        stream=True,
    )
    phases.clear()
    with pytest.raises(BadData, match=r"none\.txt"):
        train_and_publish(store, "m", stream, tell)
    assert not phases and store.models() == []


def test_a_bad_parameter_is_refused_before_the_file_is_read(store: Any, tmp_path: Path) -> None:
    for parameter in ("leaf_size=0", "nothing=1", "features.nothing=1", "features.norm=l9", "x"):
        request = TrainRequest(
            trainer="label-tree", data=tmp_path / "none.jsonl", parameters=(parameter,)
        )
        with refused(BadParameter, "", parameter):
            train_and_publish(store, "m", request)
    assert not store.root.exists()


def test_an_estimate_takes_the_parameters_of_a_training(
    file: Path,
) -> Any:
    def estimated(*parameters: str, **options: Any) -> dict[str, Any]:
        return estimate_size(
            TrainRequest(trainer="label-tree", data=file, parameters=parameters, **options)
        )

    flat = estimated()
    assert (flat["alpha_per_depth"], flat["ratio_to_ovr"]) == (
        [],
        1.5,
    )  # 12 bytes a weight, 8 when flat
    deep = ("features.kind=hashing", "features.n_features=1024", "leaf_size=2")
    whole, streamed = estimated(*deep), estimated(*deep, "memory_mib=2", stream=True)
    assert len(whole["alpha_per_depth"]) == 1
    needs = streamed.pop("blocks")  # and steps
    assert streamed == whole
    assert needs["worker_bytes"] > 3 * (2 << 20) + 76 * 1024 and 0 < needs["held_bytes"] < 1 << 20


def test_warming_up_trains_and_serves_every_kind_of_model(tmp_path: Path) -> None:
    jobs = warm.jobs(tmp_path)
    assert {job.trainer for job in jobs} == TRAINERS.keys()
    assert {job.weights for job in jobs} == set(WEIGHTS)
    kinds = [
        value for job in jobs for value in job.parameters if value.startswith("features.kind=")
    ]
    expected = {"raw", "named", "tfidf", "chars", "words+chars", "hashing"}
    assert {kind.split("=")[1] for kind in kinds} == expected
    for job in jobs:
        parse_parameters(
            job.trainer, [p for p in job.parameters if not p.startswith(("features.", "vectors."))]
        )
    warm.warm(jobs[-1])


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@pytest.mark.parametrize("has_valid", [False, True])
def test_what_fewer_bits_cost_is_written_down(
    weights: Weights, has_valid: bool, file: Path, store: Any
) -> None:
    request = TrainRequest(
        trainer="label-tree", data=file, valid=file if has_valid else None, weights=weights
    )
    train_and_publish(store, "colours", request)
    train_and_publish(store, "colours", TrainRequest(trainer="label-tree", data=file, valid=file))
    stored, exact = (store.manifest("colours", version) for version in (1, 2))
    assert (stored.weights, exact.weights) == (weights, "float32")
    where = "" if has_valid else " on training rows"
    rounded = evaluate(store.open("colours", 1), file)
    for key in WEIGHED:
        assert stored.metrics[f"{key}{where}"] == rounded[key]
        assert stored.metrics[f"{key}{where} in float32"] == exact.metrics[key]
    assert len(stored.metrics) == (len(exact.metrics) if has_valid else 4) + 4


@pytest.mark.parametrize(
    ("trainer", "note"), [("fastxml", None), ("pfastrexml", measuring.RERANKED)]
)
def test_a_reranking_version_has_no_f_measures_before_tuning(
    trainer: str, note: Any, file: Path, store: Any
) -> None:
    request = TrainRequest(trainer=trainer, data=file, valid=file, parameters=("trees=2",))
    assert train_and_publish(store, trainer, request).note == note
    model = store.open(trainer)
    kept = model.manifest.metrics.keys()
    assert {*measuring.F_MEASURES} & kept == (set() if note else {*measuring.F_MEASURES})
    assert {"P@1", "R@5"} <= kept
    assert evaluate(model, file).get("note") == note
    thresholds = np.full(model.manifest.n_labels, 0.01, np.float32)
    assert "note" not in evaluate(model, file, tuned=tuned_to(thresholds))


def test_the_command_says_why_there_are_no_f_measures(file: Path, command: Any) -> None:
    given = ("train", "pfastrexml", "--data", file, "--model", "m", "-p", "trees=2")
    assert "note" not in answer(command(*given, "--json"))
    assert answer(command(*given, "--valid", file, "--json"))["note"] == measuring.RERANKED
    for line in ((*given, "--valid", file), ("evaluate", "m", "--data", file)):
        assert "re-ranked scores" in command(*line)[1]


def test_an_evaluation_is_the_same_in_parts(
    file: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = train_and_publish(
        store, "m", TrainRequest(trainer="label-tree", data=file, valid=file)
    ).metrics
    model = store.open("m")
    report = evaluate(model, file)
    others = {
        "rows",
        "empty_label_convention",
        "us_per_row",
        "threshold",
        "bands",
        "branches",
        "calibration_error",
    }
    others |= {"unknown_labels", "unknown_label_names", "data", "findings"}
    assert report.keys() - metrics.keys() == others
    assert all(report[name] == value and 0 <= value <= 100 for name, value in metrics.items())
    assert (report["threshold"], report["rows"]) == (measuring.THRESHOLD_UNTUNED, 80)
    assert isinstance(report["us_per_row"], float) and report["us_per_row"] > 0
    monkeypatch.setattr(all_labels, "PLACES_MAX", 3 * model.manifest.n_labels)
    parts = evaluate(model, file, threads=2)
    assert {**report, "us_per_row": 0} == {**parts, "us_per_row": 0}


def test_both_ways_give_the_same() -> None:
    items = ["trees=3", "features.ngram_max=2", "cost=2", "features.use_idf=false"]
    values = {"trees": 3, "features.ngram_max": 2, "cost": 2, "features.use_idf": False}
    chosen = parse("label-tree", items)
    assert chosen == from_json("label-tree", values)
    assert chosen.features == {"ngram_max": 2, "use_idf": False}
    requests = (
        TrainRequest(trainer="label-tree", data=Path(), parameters=given)
        for given in (items, values)
    )
    assert all(request.chosen() == chosen for request in requests)


def test_faults_of_trainer_and_features_are_reported_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {"tree": 3, "leaf_size": 0, "features.ngram_max": 99, "cost": "2", "features.": 1}
    with pytest.raises(BadParameter) as caught:
        from_json("label-tree", values)
    names = [fault.name for fault in caught.value.faults]
    assert names == ["cost", "leaf_size", "tree", "features.ngram_max", "features."]
    assert all(f"{name}: {message}" in str(caught.value) for name, message in caught.value.faults)
    assert "did you mean trees?" in str(caught.value)
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(BadParameter, match=r"features\.stem needs snowballstemmer"):
        from_json("label-tree", {"features.stem": "fi"})


def test_only_a_command_line_names_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stops.txt"
    file.write_text("the\n")
    assert parse("label-tree", [f"features.stop_words={file}"]).features == {
        "stop_words": str(file)
    }
    words = r"features\.stop_words: expected the code of a language, found a file"
    with pytest.raises(BadParameter, match=words):
        from_json("label-tree", {"features.stop_words": str(file)})
    with pytest.raises(
        BadData, match=r"none\.txt: expected a file of stop words, found: No such file"
    ):
        parse("label-tree", ["features.stop_words=none.txt"])


def test_the_origin_says_what_a_version_was_trained_with(store: Any, tmp_path: Path) -> None:
    pytest.importorskip("snowballstemmer")
    words = ["reading"] * 9 + ["writing"] * 9
    rows = [{"text": f"the {word} {i % 9}", "labels": [word]} for i, word in enumerate(words)]
    data, stops = write_lines(tmp_path / "rows.jsonl", rows), tmp_path / "stops.txt"
    stops.write_text("the\n")
    parameters = ("features.stem=en", f"features.stop_words={stops}")
    train_and_publish(store, "m", TrainRequest(trainer="ovr", data=data, parameters=parameters))
    model = store.open("m")
    assert model.manifest.features["stop_words"] == "stops.txt"
    assert list(read_origin(model.arrays)["libraries"]) == ["snowballstemmer"]
    assert model.labels.n_names == 2 and model.manifest.n_features == 2
