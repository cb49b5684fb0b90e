"""Claims and leases of jobs, on SQLite and PostgreSQL, and what the states allow."""

import dataclasses
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.helpers.jobs_helpers import Desk

from xylem.admin.jobs.errors import JobConflict
from xylem.admin.jobs.job import JobProgress, PromotionVerdict
from xylem.admin.jobs.leases import ClaimLost


def test_of_many_workers_each_job_is_claimed_by_one(desk: Desk, others: Any) -> None:
    ids = [desk.add(n=n) for n in range(24)]
    claimed = []
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        leases = others[number % 4].leases
        gate.wait()
        while True:
            claim = leases.claim(f"w{number}")
            if claim is not None:
                claimed.append(claim.job.id)
                leases.succeed(claim, {"n": number})
            elif not leases.is_waiting():
                return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert Counter(claimed) == Counter(ids)
    assert {job.state for job in desk.jobs.list()} == {"succeeded"}


def test_the_oldest_job_comes_first_and_tells_how_far_it_is(desk: Desk) -> None:
    ids = [desk.add(n=n) for n in range(3)]
    claim = desk.claim()
    assert claim.job.id == ids[0] and claim.job.state == "running"
    progress = JobProgress("read", 5, 10, 2.0, 2.5)
    assert desk.leases.renew(claim, progress) == "go on"
    verdict = PromotionVerdict(False, ("P@5 fell",), "latest", 3)
    desk.leases.record_version(claim, 4)
    desk.leases.record_verdict(claim, verdict)
    desk.leases.succeed(claim, {"rows": 7})
    job = desk.jobs.get(ids[0])
    assert (job.state, job.progress, job.version, job.result) == (
        "succeeded",
        progress,
        4,
        {"rows": 7},
    )
    assert job.promotion == verdict and job.as_json()["promotion"]["reasons"] == ("P@5 fell",)
    assert job.created <= job.started <= job.ended


def test_a_job_whose_worker_died_is_taken_over(desk: Desk) -> None:
    job_id = desk.add()
    first = desk.leases.claim("first")
    assert desk.leases.claim("second") is None
    desk.end_lease(job_id)
    assert desk.leases.is_waiting()
    second = desk.leases.claim("second")
    assert second.job.attempts == 2
    assert desk.leases.renew(first, None) == "lost"
    verdict = PromotionVerdict(True, (), "latest", None)
    for call in (
        lambda: desk.leases.succeed(first, {}),
        lambda: desk.leases.fail(first, "x", "y"),
        lambda: desk.leases.cancel(first),
        lambda: desk.leases.give_back(first, is_counted=True),
        lambda: desk.leases.record_version(first, 1),
        lambda: desk.leases.record_verdict(first, verdict),
    ):
        with pytest.raises(ClaimLost):
            call()
    with pytest.raises(ClaimLost), desk.database.write() as connection:
        desk.leases.record_result(connection, first, {})
    job = desk.jobs.get(job_id)
    assert (job.state, job.worker, job.version, job.promotion) == ("running", "second", None, None)
    desk.leases.succeed(second, None)


def test_a_late_renewal_counts_and_is_a_change_only_with_news(
    desk: Desk,
) -> None:
    job_id = desk.add(n=1)
    claim = desk.claim()
    progress = JobProgress("train", 1, 2)
    desk.leases.renew(claim, progress)
    revision = desk.jobs.get(job_id).revision
    desk.leases.renew(claim, progress)
    desk.leases.renew(claim, None)
    assert desk.jobs.get(job_id).revision == revision
    desk.leases.renew(claim, dataclasses.replace(progress, done=2))
    assert desk.jobs.get(job_id).revision == revision + 1
    desk.end_lease(job_id)  # the database was away, and nobody took the job
    assert desk.leases.renew(claim, None) == "go on"
    assert desk.leases.claim("other") is None


def test_a_job_that_workers_die_of_fails_or_is_cancelled(
    desk: Desk,
) -> None:
    job_id = desk.add()
    for _ in range(desk.settings.limits.job_attempts_max):
        desk.leases.claim("a-worker")
        desk.end_lease(job_id)
    assert desk.leases.claim("b") is None
    job = desk.jobs.get(job_id)
    assert (job.state, job.error_code) == ("failed", "worker-died")
    assert "a-worker" in job.error and job.ended is not None
    asked = desk.add()
    desk.claim()
    desk.jobs.cancel(asked)
    desk.end_lease(asked)
    assert desk.leases.claim("b") is None
    assert desk.jobs.get(asked).state == "cancelled"


def test_a_stopping_worker_gives_its_job_back(desk: Desk) -> None:
    job_id = desk.add()
    for is_counted, attempts in ((False, 0), (True, 1)):
        desk.leases.give_back(desk.claim(), is_counted=is_counted)
        job = desk.jobs.get(job_id)
        assert (job.state, job.attempts, job.progress) == ("queued", attempts, None)


def test_cancelling_at_once_while_running_twice_and_too_late(desk: Desk) -> None:
    waits, runs = desk.add(n=1), desk.add(n=2)
    assert desk.jobs.cancel(waits).state == "cancelled"
    assert desk.jobs.cancel(waits).state == "cancelled"
    claim = desk.claim()
    assert claim.job.id == runs
    asked = desk.jobs.cancel(runs)
    assert (asked.state, asked.cancel_asked) == ("running", True)
    assert desk.jobs.cancel(runs) == asked
    assert desk.leases.renew(claim, None) == "cancel"
    desk.leases.cancel(claim)
    assert desk.jobs.cancel(runs).state == "cancelled"
    done = desk.add(n=3)
    desk.finish()
    with pytest.raises(JobConflict, match="succeeded"):
        desk.jobs.cancel(done)


def test_only_jobs_that_failed_or_were_cancelled_are_tried_again(desk: Desk) -> None:
    job_id = desk.add()
    with pytest.raises(JobConflict, match="queued"):
        desk.jobs.retry(job_id)
    claim = desk.claim()
    with pytest.raises(JobConflict, match="running"):
        desk.jobs.retry(job_id)
    desk.leases.fail(claim, "why", "bad-data")
    failed = desk.jobs.get(job_id)
    assert (failed.state, failed.error, failed.error_code) == ("failed", "why", "bad-data")
    again = desk.jobs.retry(job_id)
    assert (again.state, again.attempts, again.error, again.ended) == ("queued", 0, None, None)
    assert again.revision > failed.revision
    desk.finish()
    with pytest.raises(JobConflict, match="succeeded"):
        desk.jobs.retry(job_id)
