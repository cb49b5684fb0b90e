"""Trainings as jobs, in this process: a version is published once, tuned, extended, and goes on."""

from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import ANYWAY, Place, rule
from tests.helpers.jobs_helpers import N_LABELS, TRAINING, write_data

from xylem.admin.jobs.leases import ClaimLost
from xylem.base.errors import BadData
from xylem_store.names import all_names
from xylem_store.origin import read_origin


def test_a_training_publishes_a_calibrated_version_with_its_job(
    place: Any,
) -> None:
    write_data(place.data / "many.jsonl", 400, seed=3, noise=0.4)
    job = place.train(data="many.jsonl", valid=None, split=0.4, calibrate=True)
    assert (job.state, job.version, job.promotion) == ("succeeded", 2, None)
    assert place.store.resolve("m") == 2
    assert place.store.published("m", job.id) == place.store.manifest("m", 2)
    assert job.result["metrics"]["P@1"] > 50 and 200 < job.result["rows"] < 280
    origin = read_origin(place.store.open("m", 2).arrays)
    assert (origin["job"], origin["calibration"]["rows"] >= 100) == (job.id, True)


@pytest.mark.parametrize("died", [False, True])
def test_a_training_reports_warnings_and_the_features_it_tried(place: Place, died: bool) -> None:
    with (place.data / "train.jsonl").open("a") as file:
        file.write(40 * '{"text": "", "labels": ["label0"]}\n')
    parameters = {"trees": 1, "features.kind": "auto", "features.rows": 100}
    request = {**TRAINING, "parameters": parameters, "thresholds": {"method": "fta"}}
    job_id = place.submit("training", request)
    if died:
        place.die(job_id, "estimates")
    result = place.run(job_id).result
    kind = place.store.manifest("m", 2).features["kind"]
    told = f"40 of 240 training rows have no feature (kind {kind}): nothing is learnt from them"
    assert result["warnings"] == [told]
    first = result["features"]["tried"][0]
    assert first["features"] == "words" and "us_per_row" not in first


def test_thresholds_are_tuned_before_the_version_is_served(place: Place) -> None:
    def at(phase: str) -> None:
        if phase == "estimates":
            assert place.store.resolve("m") == 1

    job = place.train(at, thresholds={"method": "fta"})
    assert "estimates" in place.phases
    assert place.tuned("m", 2).method == "fta"
    assert place.store.resolve("m") == 2 and job.promotion.promoted


@pytest.mark.parametrize(
    "phase", ["read", "report", "publish", "estimates", "measure ofo", "decide"]
)
def test_a_training_that_died_in_any_phase_is_finished(place: Place, phase: str) -> None:
    request = {
        **TRAINING,
        "thresholds": {"method": "ofo"},
        "promotion": rule("latest", ("P@5", -100.0)),
    }
    job_id = place.submit("training", request)

    # the figures of the training are decided on before
    place.die(job_id, phase, after="measure ofo" if phase == "decide" else "")
    job = place.run(job_id)
    assert place.store.versions("m") == (1, 2)
    assert (job.version, job.attempts, place.store.resolve("m")) == (2, 2, 2)
    with place.desk.database.read() as connection:
        epoch = connection.exec_driver_sql("SELECT epoch FROM threshold_versions").scalar_one()
    assert epoch == 1  # tuned once


def test_a_worker_that_lost_its_job_publishes_nothing_besides(place: Place) -> None:
    job_id = place.submit("training", {**TRAINING, "thresholds": {"method": "ofo"}})

    def at(phase: str) -> None:
        if phase == "publish" and place.desk.jobs.get(job_id).attempts == 1:
            place.desk.end_lease(job_id)
            place.run(job_id)  # another worker, from beginning to end

    with pytest.raises(ClaimLost):
        place.run(job_id, at)
    assert place.store.versions("m") == (1, 2)
    assert place.desk.jobs.get(job_id).state == "succeeded"


KEPT = {"model": "kept", "keep_rows": True, "valid": "valid.jsonl", "thresholds": {"method": "sto"}}
"""A training of a version that can be extended, with tuned thresholds."""


@pytest.mark.parametrize("phase", [None, "classifiers", "publish"])
def test_labels_are_added_once_and_tuned_thresholds_stay(place: Place, phase: str | None) -> None:
    place.train(**KEPT)
    write_lines(
        place.data / "new.jsonl", [{"text": "word0 word1", "labels": ["label0", "brand new"]}]
    )
    job_id = place.submit("extend", {"model": "kept", "data": "new.jsonl"})
    if phase is not None:
        place.die(job_id, phase)
    done = place.run(job_id)
    assert done.version == 2 and place.store.versions("kept") == (1, 2)
    model = place.store.open("kept")
    assert model.manifest.version == 2 and all_names(model.labels)[-1] == "brand new"
    before, after = (place.tuned("kept", version).thresholds.tolist() for version in (1, 2))
    assert after[:-1] == before and len(after) == N_LABELS + 1
    assert len(model.arrays["rows/indptr"]) == 1 + model.manifest.data.rows


def test_a_job_extends_the_members_of_a_combined_version(place: Place) -> None:
    tuned = {"data": "valid.jsonl", "valid": "valid.jsonl", "thresholds": {"method": "sto"}}
    place.train(**KEPT)
    place.do("combine", {"model": "both", "members": ["kept"], **tuned})
    new = [{"text": "word0 word1", "labels": ["label0", "brand new"]}]
    write_lines(place.data / "new.jsonl", new)
    done = place.do("extend", {"model": "both", "data": "new.jsonl"})
    model = place.store.open("both")
    assert model.manifest.version == done.version == 2
    assert all_names(model.labels)[-1] == "brand new"
    before, after = (place.tuned("both", version).thresholds.tolist() for version in (1, 2))
    assert after[:-1] == before and len(after) == N_LABELS + 1
    assert read_origin(model.arrays)["job"] == done.id


def test_a_job_learns_a_label_that_is_listed_without_a_leaf(place: Place) -> None:
    lines = "".join(f"{i % 3} {i % 3}:1 {4 + i % 2}:1\n" for i in range(60))
    (place.data / "rows.txt").write_text(f"60 6 4\n{lines}")
    (place.data / "new.txt").write_text("20 6 4\n" + "3 3:1\n" * 20)
    (place.data / "names.txt").write_text("a\nb\nc\nd\n")
    numbers = {"data": "rows.txt", "valid": None, "label_names": "names.txt"}
    place.train(**numbers, model="numbers", keep_rows=True)
    (place.data / "other.txt").write_text(f"80 6 4\n{lines}" + "3 3:1\n" * 20)
    with pytest.raises(BadData, match="labels that numbers@1 has learnt, found 1 others, as 'd'"):
        place.train(
            **{**numbers, "data": "other.txt"},
            model="numbers",
            parameters={},
            **{"from": "numbers"},
        )
    extended = {
        "model": "numbers",
        "data": "new.txt",
        "label_names": "names.txt",
        "valid": "new.txt",
    }
    assert place.do("extend", extended).result["metrics"]["P@1"] == 100.0


def test_a_learner_goes_on_from_the_state_that_a_job_kept(place: Place) -> None:
    learning = {"trainer": "huffman-tree", "parameters": {"epochs": 2, "dim": 4}, "seed": 3}
    place.train(**learning, model="whole")
    place.train(**learning, model="cut", keep_state=True, until=1)
    place.train(**{**learning, "model": "cut", "parameters": {}, "from": "cut@1"})
    whole, cut = place.store.open("whole"), place.store.open("cut", 2)
    assert whole.manifest.seed == cut.manifest.seed and "state/json" not in cut.arrays
    for one, other in zip(whole.ensemble, cut.ensemble, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_continued_version_is_tuned_or_inherits_thresholds(
    place: Place,
) -> None:
    place.train(**KEPT)
    seen = []

    def at(phase: str) -> None:
        if place.store.versions("kept") == (1, 2):  # it is measured
            seen.append(place.tuned("kept", 2) is not None)

    going_on = {"model": "kept", "parameters": {}, "from": "kept"}  # its rows are kept too
    place.train(at, **going_on, promotion=ANYWAY)
    assert seen and all(seen)
    write_lines(place.data / "new.jsonl", [{"text": "word0 word1", "labels": ["brand new"]}])
    anew = {"valid": "valid.jsonl", "thresholds": {"method": "ofo", "start": [3.0, 7.0]}}
    place.do("extend", {"model": "kept", "data": "new.jsonl", **anew})
    found = place.tuned("kept", 3)
    assert (found.method, found.start[:2]) == ("ofo", (3.0, 7.0))
