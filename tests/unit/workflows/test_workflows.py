"""train_and_publish, evaluate and estimate_size on small files, and the warm-up that runs them all."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from model_store.ensemble import Weights
from model_store.manifest import WEIGHTS
from model_store.origin import read_origin, read_report
from model_store.store import Store
from service.base.errors import BadData, BadInput, BadParameter
from service.inference import predictor as inference_parts
from service.trainers import TRAINERS, parse_parameters
from service.warm import kernels as warm
from service.workflows import evaluate as measuring
from service.workflows.estimate import estimate_size
from service.workflows.request import from_json, parse
from service.workflows.train import TrainRequest, train_and_publish
from service.workflows.weights import WEIGHED
from tests.conftest import Run
from tests.datasets_helpers import write_lines
from tests.measured import evaluate

COLOURS = ("red", "green", "blue", "white")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose first word is their label; a fifth label is on two rows beside another."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = [
        {"text": f"{COLOURS[i % 4]} thing{i % 7}", "labels": [COLOURS[i % 4], *(["rare"] if i < 2 else [])]}
        for i in range(80)
    ]
    return write_lines(path, rows)


def test_a_version_says_where_it_came_from(file: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    phases: dict[str, tuple[int, int]] = {}
    request = TrainRequest(
        trainer="label-tree", data=file, valid=file, parameters=("leaf_size=2", "features.norm=l1"), seed=3
    )
    report = train_and_publish(
        store, "colours", request, lambda phase, done, total: phases.update({phase: (done, total)})
    )
    manifest = store.manifest("colours", report.version)
    assert manifest.metrics == report.metrics
    assert report.metrics["P@1"] == 100
    assert "us_per_row" not in report.metrics
    assert (manifest.trainer.parameters["leaf_size"], manifest.features["norm"]) == (2, "l1")
    assert (manifest.seed, manifest.data.rows, manifest.data.source) == (3, 80, "rows.jsonl")
    assert report.model_bytes == manifest.model_bytes
    model = store.open("colours")
    counts = dict(zip(("blue", "green", "rare", "red", "white"), [20, 20, 2, 20, 20], strict=True))
    assert sorted(model.arrays["labels/counts"].tolist()) == sorted(counts.values())
    assert {"read", "features", "classifiers", "publish"} <= phases.keys()
    assert all(done == total for done, total in phases.values())


def test_without_a_validation_file_there_are_no_metrics(file: Path, tmp_path: Path) -> None:
    report = train_and_publish(Store(tmp_path), "colours", TrainRequest("ovr", file))
    assert report.metrics == {}
    assert "validation" not in read_report(Store(tmp_path).open("colours").arrays)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.jsonl", None, "none.jsonl: expected a readable file"),
        ("valid.xls", "red", "expected a name that ends in"),
        ("valid.jsonl", '{"text": "red", "labels": ["red"]}\n{"text": "red"}\n', "valid.jsonl:2: expected"),
        ("valid.txt", "1 2 9\n0 1:1\n", "at most 5 labels"),
        ("valid.svm", "0 1:1\n", "valid.svm: expected text"),
        ("valid.jsonl", '{"features": {"red": 1}, "labels": ["red"]}\n', "expected text"),
    ],
    ids=["none", "suffix", "line", "labels", "ids", "kind"],
)
def test_a_validation_file_that_cannot_be_used_is_refused_before_the_training(
    name: str, content: str | None, words: str, file: Path, tmp_path: Path
) -> None:
    valid = tmp_path / name
    if content is not None:
        valid.write_text(content)
    phases: list[str] = []
    store, request = Store(tmp_path / "store"), TrainRequest("ovr", file, valid=valid)
    with pytest.raises(BadInput) as refused:
        train_and_publish(store, "colours", request, lambda phase, *_: phases.append(phase))
    assert words in str(refused.value)
    assert "classifiers" not in phases
    assert store.models() == []


def test_a_validation_file_that_cannot_be_read_is_refused_before_a_stream(file: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    request = TrainRequest("plt", file, valid=tmp_path / "none.txt", parameters=("solver=sgd",), stream=True)
    with pytest.raises(BadData, match=r"none\.txt"):
        train_and_publish(Store(tmp_path / "store"), "colours", request, lambda phase, *_: seen.append(phase))
    assert not seen


@pytest.mark.parametrize(
    "parameter", ["leaf_size=0", "nothing=1", "features.nothing=1", "features.norm=l9", "x"]
)
def test_a_bad_parameter_is_refused_before_the_file_is_read(parameter: str, tmp_path: Path) -> None:
    request = TrainRequest("label-tree", tmp_path / "none.jsonl", parameters=(parameter,))
    with pytest.raises(BadParameter):
        train_and_publish(Store(tmp_path / "store"), "colours", request)
    assert not (tmp_path / "store").exists()


def test_an_evaluation_in_parts_equals_one_in_whole(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    train_and_publish(store, "colours", TrainRequest("label-tree", file))
    model = store.open("colours")
    whole = evaluate(model, file)
    monkeypatch.setattr(inference_parts, "PLACES_MAX", 3 * model.manifest.n_labels)
    parts = evaluate(model, file, threads=2)
    del whole["us_per_row"], parts["us_per_row"]
    assert whole == parts
    assert (whole["threshold"], whole["rows"]) == (measuring.THRESHOLD_UNTUNED, 80)


def test_an_estimate_takes_the_parameters_of_training(file: Path) -> None:
    flat, deep = (
        estimate_size(TrainRequest("label-tree", file, parameters=p)) for p in ((), ("leaf_size=2",))
    )
    assert (len(flat["alpha_per_depth"]), flat["ratio_to_ovr"]) == (0, 1.5)  # 12 bytes a weight, 8 when flat
    assert len(deep["alpha_per_depth"]) == 1


def test_an_estimate_of_a_stream_says_what_its_blocks_and_steps_take(file: Path) -> None:
    hashed, p = ("features.kind=hashing", "features.n_features=1024"), ("leaf_size=2", "memory_mib=2")
    whole = estimate_size(TrainRequest("label-tree", file, parameters=(*hashed, "leaf_size=2")))
    found = estimate_size(TrainRequest("label-tree", file, parameters=(*hashed, *p), stream=True))
    needs = found.pop("blocks")
    assert found == whole
    assert needs["worker_bytes"] > 3 * (2 << 20) + 76 * 1024 and 0 < needs["held_bytes"] < 1 << 20


def test_warming_up_trains_and_serves_every_kind_of_model(tmp_path: Path) -> None:
    jobs = warm.jobs(tmp_path)
    assert {job.trainer for job in jobs} == TRAINERS.keys()
    assert {job.weights for job in jobs} == set(WEIGHTS)
    kinds = [value for job in jobs for value in job.parameters if value.startswith("features.kind=")]
    expected = {"raw", "named", "tfidf", "chars", "words+chars", "hashing"}
    assert {kind.split("=")[1] for kind in kinds} == expected
    for job in jobs:
        parse_parameters(job.trainer, [p for p in job.parameters if not p.startswith("features.")])
    warm.warm(jobs[-1])


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@pytest.mark.parametrize("has_valid", [False, True])
def test_what_fewer_bits_cost_is_written_down(
    weights: Weights, has_valid: bool, file: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    request = TrainRequest("label-tree", file, valid=file if has_valid else None, weights=weights)
    train_and_publish(store, "colours", request)
    train_and_publish(store, "colours", TrainRequest("label-tree", file, valid=file))
    stored, exact = (store.manifest("colours", version) for version in (1, 2))
    assert (stored.weights, exact.weights) == (weights, "float32")
    where = "" if has_valid else " on training rows"
    rounded = evaluate(store.open("colours", 1), file)
    for key in WEIGHED:
        assert stored.metrics[f"{key}{where}"] == rounded[key]
        assert stored.metrics[f"{key}{where} in float32"] == exact.metrics[key]
    assert len(stored.metrics) == (len(exact.metrics) if has_valid else 4) + 4


def test_a_version_that_reranks_has_no_f_measures_before_it_is_tuned(file: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    expected = {"fastxml": None, "pfastrexml": measuring.RERANKED}
    for trainer, note in expected.items():
        request = TrainRequest(trainer=trainer, data=file, valid=file, parameters=("trees=2",))
        report = train_and_publish(store, trainer, request)
        kept = store.manifest(trainer, 1).metrics.keys()
        assert report.note == note
        assert set(measuring.F_MEASURES) & kept == (set() if note else set(measuring.F_MEASURES))
        assert {"P@1", "R@5"} <= kept
        model = store.open(trainer)
        assert evaluate(model, file).get("note") == note
        thresholds = np.full(model.manifest.n_labels, 0.01, np.float32)
        assert "note" not in evaluate(model, file, thresholds=thresholds)


def test_the_command_says_why_there_are_no_f_measures(file: Path, tmp_path: Path, run_here: Run) -> None:
    given = ("train", "pfastrexml", "--data", file, "--model", "m", "-p", "trees=2")
    without = run_here(*given, "--json", store=tmp_path)
    assert "note" not in json.loads(without.stdout.splitlines()[-1])
    with_valid = run_here(*given, "--valid", file, "--json", store=tmp_path)
    found = json.loads(with_valid.stdout.splitlines()[-1])
    assert (found["note"], "macro_f" in found["metrics"]) == (measuring.RERANKED, False)
    assert "re-ranked scores" in run_here(*given, "--valid", file, store=tmp_path).stdout
    assert "re-ranked scores" in run_here("evaluate", "m", "--data", file, store=tmp_path).stdout


def test_a_manifest_keeps_percentages_and_evaluate_adds_how_fast_it_is(file: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    metrics = train_and_publish(store, "m", TrainRequest("label-tree", file, valid=file)).metrics
    report = evaluate(store.open("m"), file)
    others = {"rows", "empty_label_convention", "us_per_row", "threshold", "bands", "calibration_error"}
    assert report.keys() - metrics.keys() == others | {"unknown_labels", "unknown_label_names"}
    assert all(report[name] == value and 0 <= value <= 100 for name, value in metrics.items())
    assert isinstance(report["us_per_row"], float) and report["us_per_row"] > 0


def test_both_ways_give_the_same() -> None:
    items = ["trees=3", "features.ngram_max=2", "cost=2", "features.use_idf=false"]
    values = {"trees": 3, "features.ngram_max": 2, "cost": 2, "features.use_idf": False}
    chosen = parse("label-tree", items)
    assert chosen == from_json("label-tree", values)
    assert chosen.features == {"ngram_max": 2, "use_idf": False}
    requests = (TrainRequest("label-tree", Path(), parameters=given) for given in (items, values))
    assert all(request.chosen() == chosen for request in requests)


def test_the_faults_of_trainer_and_features_are_told_together() -> None:
    values = {"tree": 3, "leaf_size": 0, "features.ngram_max": 99, "cost": "2", "features.": 1}
    with pytest.raises(BadParameter) as caught:
        from_json("label-tree", values)
    names = [fault.name for fault in caught.value.faults]
    assert names == ["cost", "leaf_size", "tree", "features.ngram_max", "features."]
    assert all(f"{name}: {message}" in str(caught.value) for name, message in caught.value.faults)
    assert "did you mean trees?" in str(caught.value)


def test_only_a_command_line_names_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stops.txt"
    file.write_text("the\n")
    assert parse("label-tree", [f"features.stop_words={file}"]).features == {"stop_words": str(file)}
    words = r"features\.stop_words: expected the code of a language, found a file"
    with pytest.raises(BadParameter, match=words):
        from_json("label-tree", {"features.stop_words": str(file)})
    with pytest.raises(BadData, match=r"none\.txt: expected a file of stop words, found: No such file"):
        parse("label-tree", ["features.stop_words=none.txt"])


def test_a_library_that_is_missing_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(BadParameter, match=r"features\.stem: expected snowballstemmer to be installed"):
        from_json("label-tree", {"features.stem": "fi"})


def test_the_origin_says_what_a_version_was_trained_with(tmp_path: Path) -> None:
    pytest.importorskip("snowballstemmer")
    data, stops = tmp_path / "rows.jsonl", tmp_path / "stops.txt"
    words = [word for word in ("reading", "writing") for _ in range(9)]
    write_lines(data, ({"text": f"the {word} {i % 9}", "labels": [word]} for i, word in enumerate(words)))
    stops.write_text("the\n")
    store = Store(tmp_path / "store")
    parameters = ("features.stem=en", f"features.stop_words={stops}")
    train_and_publish(store, "m", TrainRequest("ovr", data, parameters=parameters))
    model = store.open("m")
    assert model.manifest.schema_version == 6
    assert model.manifest.features["stop_words"] == "stops.txt"
    assert list(read_origin(model.arrays)["libraries"]) == ["snowballstemmer"]
    assert model.labels.n_names == 2 and model.manifest.n_features == 2
