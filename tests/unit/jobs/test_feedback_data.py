"""Jobs whose data is feedback, beside files: joined as they are, the newest rows held out."""
# ruff: noqa: F811 - place is a fixture of another file

import json
import random

import pytest

from service.base.errors import BadData, BadFields
from service.base.settings import Limits
from service.jobs.kinds import check_request
from service.thresholds.live.threshold_counters import event_keys
from service.thresholds.store.feedback_rows import add_rows
from tests.jobs_helpers import N_LABELS, TRAINING
from tests.small_models import small_draft
from tests.unit.jobs.test_runs import Place, place, rule, trained  # noqa: F401

FEEDBACK = {"feedback": {"model": "m", "days": 30}}
LOOP = {"data": ["train.jsonl", FEEDBACK], "valid": {"feedback": 0.25}}


def keep_rows(place: Place, n: int, first: int = 0) -> list[bytes]:
    """Have rows of feedback of another vocabulary than the files', so that it shows who learnt them."""
    rng = random.Random(first)
    lines = []
    for i in range(first, first + n):
        label = rng.randrange(N_LABELS)
        row = {"event_id": str(i), "text": f"new{label} word{rng.randrange(30)}", "labels": [f"label{label}"]}
        lines.append(json.dumps(row).encode())
    keys = event_keys("m", [str(i) for i in range(first, first + n)])
    with place.desk.database.write() as connection:
        add_rows(connection, "m", list(zip(keys, lines, strict=True)))
    return lines


def test_a_training_on_files_and_feedback_is_measured_on_the_newest_feedback(place):
    lines = keep_rows(place, 201)
    job_id = place.submit("training", {**TRAINING, **LOOP, "promotion": rule("latest", ("P@1", 5.0))})
    keep_rows(place, 20, first=900)  # which come later than the job, and are not for it
    directory = place.store.root / "jobs" / job_id / "work" / "joined"
    joined = []

    def at(phase: str) -> None:
        if phase == "publish":
            names = ("train+feedback.jsonl", "held-out.jsonl")
            joined.extend((directory / name).read_bytes() for name in names)

    job = place.run(job_id, at)
    train = (place.data / "train.jsonl").read_bytes()
    assert joined == [train + b"\n".join(lines[:150]) + b"\n", b"\n".join(lines[150:]) + b"\n"]
    assert (job.result["rows"], job.result["labels"]) == (350, N_LABELS)
    assert place.store.manifest("m", 2).data.source == "train+feedback.jsonl"
    assert job.promotion.promoted, job.promotion
    worse = {"data": ["valid.jsonl", FEEDBACK], "valid": {"feedback": 0.9}}
    verdict = place.train(**worse, promotion=rule("latest", ("P@1", 5.0))).promotion
    assert (verdict.promoted, verdict.baseline, "not enough" in verdict.reasons[0]) == (False, 2, True)
    assert place.store.resolve("m") == 2


def test_tables_and_files_are_joined_line_by_line(place):
    (place.data / "more.csv").write_text("text,labels\nfirst1 word2,label1;label2\n")
    job = place.train(data=["train.jsonl", "more.csv", "valid.jsonl"], valid=None, split=0.2)
    assert 200 < job.result["rows"] < 281


@pytest.mark.parametrize(("n", "valid", "least"), [(0, None, "1 row"), (1, {"feedback": 0.5}, "2 rows")])
def test_a_job_for_feedback_that_is_not_there_says_so(place, n, valid, least):
    keep_rows(place, n)
    with pytest.raises(BadData, match=f"expected at least {least} of feedback to m, found {n or 'none'}"):
        place.train(**{**LOOP, "valid": valid})


@pytest.mark.parametrize(
    ("changes", "path", "found"),
    [
        ({"data": [FEEDBACK, "nowhere.jsonl"]}, "data[1]", "expected a file below the data directory"),
        ({"data": [{"feedback": {"model": "No/Model"}}]}, "data[0].feedback.model", "model name: expected"),
        ({"data": [{"feedback": {"model": "m", "day": 3}}]}, "data[0].feedback.day", "did you mean days"),
        ({"data": [7]}, "data[0]", "expected a string"),
        ({"data": 7}, "data", "expected a string"),
        ({"data": []}, "data", "at least 1 item"),
        ({"data": ["train.jsonl"]}, "valid", "expected feedback in data"),
        ({"data": ["rows.svm", FEEDBACK]}, "data[0]", "which can be joined, found 'rows.svm'"),
        ({"valid": {"feedback": 2}}, "valid.feedback", "0.9"),
        ({"seed": -1, "data": [FEEDBACK, "nowhere.jsonl"]}, "data[1]", "expected a file below"),
    ],
)
def test_what_is_wrong_with_data_is_told_at_its_place(place, changes, path, found):
    (place.data / "rows.svm").write_text("1 1:1\n")
    with pytest.raises(BadFields) as caught:
        check_request("training", {**TRAINING, **LOOP, **changes}, place.desk.jobs.data, Limits())
    told = {fault.path: str(fault) for fault in caught.value.faults}
    assert found in told.get(path, ""), told
    assert len(told) == 1 + ("seed" in changes)


def test_an_extension_learns_from_files_and_feedback_and_holds_the_newest_out(place):
    place.train(model="kept", keep_rows=True)
    keep_rows(place, 40)
    (place.data / "new.jsonl").write_text('{"text": "word0 word1", "labels": ["brand new"]}\n' * 5)
    body = {"model": "kept", "data": ["new.jsonl", FEEDBACK], "valid": {"feedback": 0.25}}
    assert place.do("extend", body).result["labels"] == N_LABELS + 1
    model = place.store.open("kept", 2)
    assert model.arrays["labels/counts"].sum() == 200 + 5 + 30 and model.manifest.metrics


def test_feedback_of_sparse_rows_is_refused_as_data(place):
    place.store.publish("sparse", small_draft(1))
    with pytest.raises(BadFields, match="found sparse, a model of sparse rows"):
        place.train(data=[{"feedback": {"model": "sparse"}}])
