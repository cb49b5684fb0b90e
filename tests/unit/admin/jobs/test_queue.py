"""The queue on SQLite and PostgreSQL: submissions, lists, the history, and who follows a job."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.helpers.job_figures import figures
from tests.helpers.jobs_helpers import TRAINING, Desk

from xylem.admin.jobs.errors import IdempotencyConflict, JobNotFound
from xylem.admin.jobs.job import Job, JobProgress
from xylem.admin.jobs.kinds import KINDS
from xylem.base import errors


def test_a_job_is_kept_as_it_was_submitted(desk: Desk, others: Any) -> None:
    said = {"a": [1, "ü"], "b": {"c": None}}
    job = desk.jobs.add("batch", "m", said, "key-1")
    assert others[0].jobs.get(job.id) == job
    assert (job.request, job.state, job.kind, job.model) == (said, "queued", "batch", "m")
    assert json.loads(json.dumps(job.as_json()))["created"].endswith("Z")


def test_a_hundred_submissions_at_once_give_the_distinct_jobs(desk: Desk, others: Any) -> None:
    def submit(at: int) -> tuple[int, str]:
        number = at % 40
        return number, others[at % 4].jobs.add(
            "training", "m", {"number": number}, f"key-{number}"
        ).id

    with ThreadPoolExecutor(20) as pool:
        found = set(pool.map(submit, range(100)))
    assert len(found) == 40, "one id for each number"
    assert len({job for _, job in found}) == 40 == len(desk.jobs.list(limit=1000))


def test_a_key_stands_for_one_request(desk: Desk) -> None:
    first = desk.jobs.add("training", "m", {"a": 1, "b": 2}, "k")
    assert desk.jobs.add("training", "m", {"b": 2, "a": 1}, "k") == first
    for kind, request in (("training", {"a": 2}), ("batch", {"a": 1, "b": 2})):
        with pytest.raises(IdempotencyConflict, match=first.id):
            desk.jobs.add(kind, "m", request, "k")
    for key in ("", "ü", "a b", "x" * 256, "a\nb"):
        with pytest.raises(errors.BadRequest):
            desk.jobs.add("training", "m", {}, key)


def test_no_more_jobs_wait_than_may_nor_longer_ones(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = desk.limited(jobs_queued_max=3)
    ids = [few.add(n=n) for n in range(3)]
    with pytest.raises(errors.Overloaded, match="jobs_queued_max"):
        few.add()
    few.claim()
    few.add()  # one runs: there is room
    few.jobs.cancel(ids[1])
    few.add()
    with pytest.raises(errors.Overloaded):
        few.jobs.retry(ids[1])
    monkeypatch.setattr("xylem.admin.jobs.jobs.REQUEST_BYTES_MAX", 50)
    with pytest.raises(errors.LimitExceeded, match="at most 50 bytes"):
        desk.jobs.submit("training", TRAINING)


def test_jobs_are_listed_by_state_model_and_kind(desk: Desk) -> None:
    ids = [
        desk.jobs.add(kind, model, {}).id for kind in ("training", "batch") for model in ("a", "b")
    ]
    desk.jobs.cancel(ids[3])
    assert [job.id for job in desk.jobs.list()] == ids[::-1]
    assert [job.id for job in desk.jobs.list(model="a")] == [ids[2], ids[0]]
    assert [job.id for job in desk.jobs.list(kind="batch", state="queued")] == [ids[2]]
    assert [job.id for job in desk.jobs.list(limit=1)] == [ids[3]]
    for wrong, known in (
        ({"state": "over"}, "queued, running"),
        ({"kind": "train"}, ", ".join(KINDS)),
    ):
        with pytest.raises(errors.BadRequest, match=f"expected one of {known}"):
            desk.jobs.list(**wrong)


def test_a_missing_or_bad_job_is_no_fault_of_the_database(desk: Desk) -> None:
    for call in (
        desk.jobs.get,
        desk.jobs.cancel,
        desk.jobs.retry,
        desk.jobs.log_text,
        desk.jobs.result_file,
    ):
        for name in ("nope", "", "../../etc", "x" * 100_000, "0" * 24, "\0" * 24):
            with pytest.raises(JobNotFound):
                call(name)
    desk.add()
    assert desk.jobs.list(model="m\0") == []
    claim = desk.claim()
    desk.leases.fail(claim, "expected text, found \0 and \ud800", "bad-data")
    job = desk.jobs.get(claim.job.id)
    assert (job.state, job.error) == ("failed", "expected text, found   and ?")


def test_the_history_is_finite_and_totals_outlive_it(desk: Desk) -> None:
    few = desk.limited(jobs_kept_max=3)
    ids = []
    for number in range(6):
        ids.append(few.add(n=number))
        few.finish()
    assert figures(few)["xylem_jobs_ended_total", "training", "succeeded"] == 6
    waiting = few.add(n=7)
    assert [job.id for job in few.jobs.list()] == [waiting, *ids[:2:-1]]
    few.jobs.cancel(waiting)
    assert len(few.jobs.list()) == 3


def test_who_follows_a_job_hears_of_every_state_and_of_its_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.admin.jobs.jobs.FOLLOW_SECONDS", 0.001)
    job_id = desk.add()

    claims = []

    async def follow(after: int = 0) -> list[Job]:
        heard = []
        async for job in desk.jobs.follow(job_id, after):
            heard.append(job)
            if job.state == "queued":
                claims.append(desk.claim())
            elif job.progress is None:
                desk.leases.renew(claims[0], JobProgress("read", 1, 2))
            elif not job.has_ended:
                desk.leases.succeed(claims[0], {})
        return heard

    heard = asyncio.run(follow())
    expected = [("queued", None), ("running", None), ("running", "read"), ("succeeded", "read")]
    assert [(job.state, job.progress and job.progress.phase) for job in heard] == expected
    assert asyncio.run(follow(heard[-2].revision)) == heard[-1:]
    assert asyncio.run(follow(heard[-1].revision)) == []
    with pytest.raises(JobNotFound):
        asyncio.run(anext(desk.jobs.follow("nope")))
