"""Jobs that combine versions and tune thresholds."""

import pytest
from tests.helpers.job_places import COMBINE, VOCABULARY, Place, rule
from tests.helpers.jobs_helpers import N_LABELS, TRAINING, write_data

from xylem.admin.jobs.kinds import run_job
from xylem.admin.jobs.leases import ClaimLost
from xylem_store.errors import VersionNotFound
from xylem_store.origin import read_origin
from xylem_store.store import Store


@pytest.mark.parametrize("phase", [None, "read", "publish", "decide"])
def test_a_combination_and_a_new_vocabulary_are_published_once(
    place: Place, phase: str | None
) -> None:
    (place.data / "names.csv").write_text(VOCABULARY)
    (place.data / "more.csv").write_text(VOCABULARY + "label9,word7\n")
    write_data(place.data / "other.jsonl", 120, seed=3)
    tuned = {
        "valid": "valid.jsonl",
        "thresholds": {"method": "sto"},
        "promotion": rule("stable", ("P@1", 0)),
    }
    wanted = [
        ("combine", {**COMBINE, **tuned, "data": "other.jsonl"}),
        ("vocabulary", {"model": "both", "vocabulary": "more.csv", **tuned}),
    ]
    for number, (kind, request) in enumerate(wanted, 1):
        job_id = place.submit(kind, request)
        if phase is not None:
            place.die(job_id, phase)
        done = place.run(job_id)
        assert done.version == number and done.promotion.promoted
        assert done.result["combined"]["members"].keys() == {"m@1"}
        assert place.store.versions("both") == tuple(range(1, number + 1))
        assert place.store.label_info("both").head.n_subjects == N_LABELS + number - 1
        assert read_origin(place.store.open("both", number).arrays)["job"] == job_id
        assert place.tuned("both", number) is not None
    moved = place.store.moves("both")[-1]
    assert (moved.alias, moved.who) == ("stable", "a vocabulary job")


def test_names_of_a_published_combination_outlive_its_dead_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.data / "names.csv").write_text(VOCABULARY)
    job_id = place.submit("combine", {**COMBINE, "data": "valid.jsonl"})
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Store, "put_label_info", lambda *_: 1 / 0)
        run_job(place.claimed(job_id))
    assert place.store.versions("both") == (1,) and place.store.label_info("both") is None
    place.desk.end_lease(job_id)
    place.run(job_id)
    assert place.store.versions("both") == (1,) and place.store.label_info("both") is not None


def test_a_version_that_was_deleted_meanwhile_fails_the_job(place: Place) -> None:
    job_id = place.submit("training", TRAINING)
    run_job(place.claimed(job_id))
    place.store.promote("m", 1)
    place.store.delete("m", 2)
    place.desk.end_lease(job_id)
    with pytest.raises(VersionNotFound, match="was deleted"):
        place.run(job_id)


def test_a_tuning_is_kept_with_its_result_or_not_at_all(place: Place) -> None:
    request = {"model": "m", "data": "valid.jsonl"}
    job_id = place.submit("threshold-tuning", {**request, "method": "fta"})
    report = run_job(place.claimed(job_id))  # then its worker dies
    place.desk.end_lease(job_id)
    job = place.run(job_id)
    assert job.result == report and (job.version, report["epoch"], report["method"]) == (
        1,
        1,
        "fta",
    )

    job_id = place.submit("threshold-tuning", {**request, "version": 1})
    context = place.claimed(job_id)
    place.desk.end_lease(job_id)
    place.desk.claim()
    with pytest.raises(ClaimLost):
        run_job(context)
    assert place.tuned("m", 1).method == "fta"
