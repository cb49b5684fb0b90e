"""The queue on SQLite and PostgreSQL: submissions, claims, leases, what
the states allow, and its figures.
"""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from tests.helpers.jobs_helpers import TRAINING, Desk, settings_for
from tests.helpers.servers import exchange, wait_for

from xylem.admin.jobs.errors import IdempotencyConflict, JobConflict, JobNotFound
from xylem.admin.jobs.figures import FiguresPage, JobFigures
from xylem.admin.jobs.job import Job, JobProgress, PromotionVerdict
from xylem.admin.jobs.kinds import KINDS
from xylem.admin.jobs.leases import ClaimLost
from xylem.base import errors
from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import add_key, all_keys


@pytest.fixture
def desk(tmp_path: Path, database_url: str) -> Iterator[Desk]:
    made = Desk(settings_for(tmp_path), database_url)
    yield made
    made.database.close()


@pytest.fixture
def others(desk: Desk) -> Iterator[list[Desk]]:
    """The same as four other processes have it."""
    made = [Desk(desk.settings, desk.settings.database_url) for _ in range(4)]
    yield made
    for other in made:
        other.database.close()


def figures(desk: Desk) -> dict[tuple[str, str, str], float]:
    """Each figure by its name, kind and state."""
    registry = CollectorRegistry()
    found = JobFigures(desk.database)
    registry.register(found)
    found.read()
    return {
        (sample.name, sample.labels["kind"], sample.labels["state"]): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_a_job_is_kept_as_it_was_submitted(desk: Desk, others: Any) -> None:
    said = {"a": [1, "ü"], "b": {"c": None}}
    job = desk.jobs.add("batch", "m", said, "key-1")
    assert others[0].jobs.get(job.id) == job
    assert (job.request, job.state, job.kind, job.model) == (said, "queued", "batch", "m")
    assert json.loads(json.dumps(job.as_json()))["created"].endswith("Z")


def test_a_hundred_submissions_at_once_with_repeats_give_exactly_the_distinct_jobs(
    desk: Desk, others: Any
) -> None:
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


def test_a_job_whose_worker_died_is_taken_over_and_the_dead_change_nothing(desk: Desk) -> None:
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


def test_a_renewal_counts_if_it_is_late_and_is_a_change_only_if_it_tells_something_new(
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
    desk.leases.renew(claim, progress._replace(done=2))
    assert desk.jobs.get(job_id).revision == revision + 1
    desk.end_lease(job_id)  # the database was away, and nobody took the job
    assert desk.leases.renew(claim, None) == "go on"
    assert desk.leases.claim("other") is None


def test_a_job_that_workers_die_of_fails_with_the_reason_or_is_cancelled_as_asked(
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


def test_what_is_not_there_or_cannot_be_held_is_no_fault_of_the_database(desk: Desk) -> None:
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


def test_what_waits_runs_and_has_ended_is_counted(desk: Desk) -> None:
    assert figures(desk) == {}
    ids = [desk.add() for _ in range(6)]
    tuning = desk.jobs.add("threshold-tuning", "m", {}).id
    found = figures(desk)
    assert found["xylem_jobs", "training", "queued"] == 6
    assert found["xylem_jobs", "threshold-tuning", "queued"] == 1
    ends = {"succeeded", "failed", "cancelled"}
    assert {state for name, _, state in found if name == "xylem_jobs_ended_total"} == ends
    assert not any(
        value for (name, _, _), value in found.items() if "ended" in name or "total" in name
    )
    claims = [desk.claim() for _ in ids]
    desk.leases.succeed(claims[0], {})
    desk.leases.fail(claims[1], "no", "bad-data")
    desk.leases.cancel(claims[2])
    desk.leases.give_back(claims[3], is_counted=False)
    desk.end_lease(ids[4])  # its worker died: it waits for another
    desk.jobs.cancel(tuning)
    found = figures(desk)
    assert found["xylem_jobs", "training", "queued"] == 2
    assert found["xylem_jobs", "training", "running"] == 1
    assert found["xylem_jobs", "threshold-tuning", "queued"] == 0
    assert 0 <= found["xylem_job_oldest_seconds", "training", "running"] < 60
    for state in ends:
        assert found["xylem_jobs_ended_total", "training", state] == 1
        assert 0 < found["xylem_job_seconds_total", "training", state] < 60
    assert found["xylem_jobs_ended_total", "threshold-tuning", "cancelled"] == 1
    assert found["xylem_job_seconds_total", "threshold-tuning", "cancelled"] == 0
    desk.jobs.retry(ids[1])  # it may end again
    desk.finish()
    found = figures(desk)
    assert found["xylem_jobs_ended_total", "training", "succeeded"] == 2
    assert found["xylem_jobs_ended_total", "training", "failed"] == 1


def ask(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    status, _, text = exchange(port, "GET", path, **headers)
    return status, text.decode()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_page_is_for_those_who_may_see_figures(desk: Desk) -> None:
    desk.add()
    page = FiguresPage(desk.database, desk.settings, 0)
    status, text = ask(page.port)
    assert (status, 'xylem_jobs{kind="training",state="queued"} 1.0' in text) == (200, True)
    assert "process_resident_memory_bytes" in text
    assert ask(page.port, "/metrics/x")[0] == ask(page.port, "/")[0] == 404
    page.close()
    with desk.database.write() as connection:
        seeing, predicting = (
            add_key(connection, scope.value, frozenset({scope}), None).text
            for scope in (AccessScope.METRICS, AccessScope.PREDICT)
        )
    changes = {"open_scopes": ("predict",), "admin_key": SecretStr("open sesame")}
    shut = FiguresPage(desk.database, desk.settings.model_copy(update=changes), 0)
    assert ask(shut.port)[0] == 401
    assert ask(shut.port, "/livez") == (200, '{"status":"alive"}')
    for key, status in (("x", 401), (predicting, 403), (seeing, 200), ("open sesame", 200)):
        assert ask(shut.port, authorization=f"Bearer {key}")[0] == status, key
    with desk.database.read() as connection:
        assert len(list(all_keys(connection))) == 2  # no first admin key is made by who only asks
    shut.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
@pytest.mark.parametrize("host", ["::", "*", "[::]"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_page_answers_both_families(desk: Desk, host: str) -> None:
    changes = {"host": host, "open_scopes": ("metrics",)}
    page = FiguresPage(desk.database, desk.settings.model_copy(update=changes), 0)
    for address in ("127.0.0.1", "[::1]"):
        with urlopen(f"http://{address}:{page.port}/metrics", timeout=60) as answer:
            assert answer.status == 200
    page.close()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_answers_on_its_port(desk: Desk, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "xylem.cli.entry", "worker", "--metrics-port", "0"]
    own = {"XYLEM_STORE": str(desk.settings.store), "XYLEM_DATABASE_URL": desk.database.public_url}
    how = {"env": {**os.environ, **own}, "text": True}
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=file, **how) as worker,
    ):
        wait_for(lambda: "job_worker_started" in log.read_text() or worker.poll() is not None)
        [port] = re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", log.read_text())
        assert ask(int(port))[0] == 200
        command[-1] = port
        twice = subprocess.run(command, capture_output=True, timeout=120, check=False, **how)
        assert (twice.returncode, "expected an address to listen on" in twice.stderr) == (
            1,
            True,
        ), twice
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
