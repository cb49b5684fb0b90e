"""Batches as jobs: each line is answered once, also if a process dies between."""

import json
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import Killed, Place
from tests.helpers.jobs_helpers import write_data

from xylem.admin.jobs.files import OFFSET, PART, RESULT
from xylem.admin.jobs.kinds import run_job
from xylem.base.errors import BadData
from xylem_store.label_info import Subject, build_label_info
from xylem_store.names import all_names


def batch_data(place: Place, n_rows: int) -> None:
    """Write rows and a line that is none."""
    path = write_data(place.data / "batch.jsonl", n_rows, seed=9)
    path.write_text(path.read_text() + "no json\n")


def test_a_batch_answers_each_line_with_names_of_labels(place: Any) -> None:
    batch_data(place, 50)
    names = all_names(place.store.open("m", verify=False).labels)
    subjects = [Subject(name, None, {"fi": f"nimi {name}"}) for name in names]
    place.store.put_label_info("m", build_label_info(subjects))
    job = place.batch(data="batch.jsonl", top_r=2, language="fi")
    path, lines = place.desk.jobs.result_file(job.id), place.predictions(job)
    assert job.result == {"lines": 51, "bad": 1, "bytes": path.stat().st_size}
    assert len(lines) == 51 and lines[-1]["error"]["line"] == 51
    for line in lines[:-1]:
        assert len(line["labels"]) == 2
        assert all(label["name"] == f"nimi {label['label']}" for label in line["labels"])
    assert job.version == 1 and path.name == RESULT


def test_a_batch_divides_long_texts(place: Place) -> None:
    lines = write_data(place.data / "x.jsonl", 30, seed=9).read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    write_lines(place.data / "long.jsonl", [{"text": " ".join(texts * 9)}])
    whole = place.predictions(place.batch(data="long.jsonl"))
    divided = place.predictions(place.batch(data="long.jsonl", chunk_characters=500))
    assert divided[0]["exact"] is False
    assert divided[0]["labels"] != whole[0]["labels"]


def test_a_batch_explains_as_predict_does(place: Place) -> None:
    batch_data(place, 60)
    explained = place.predictions(place.batch(data="batch.jsonl", explain=True))
    labels = [label for line in explained for label in line.get("labels", ())]
    assert labels and all(label.pop("explanation")["trees"] for label in labels)
    plain = place.predictions(place.batch(data="batch.jsonl"))
    assert labels == [label for line in plain for label in line.get("labels", ())]


def test_a_batch_that_died_goes_on_where_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.admin.jobs.batch.SYNC_SECONDS", 0.0)
    place.desk = place.desk.limited(block_rows_max=64)
    batch_data(place, 1000)
    whole = place.predictions(place.batch(data="batch.jsonl"))
    job_id = place.submit("batch", {"model": "m", "data": "batch.jsonl"})
    for n_calls in (1, 4, 9):  # each worker dies so many blocks further
        context = place.claimed(job_id)
        calls = [0]

        def told(phase: str, *_: int, calls: list[int] = calls, n_calls: int = n_calls) -> None:
            calls[0] += phase == "predict"
            if calls[0] > n_calls:
                raise Killed

        with pytest.raises(Killed):
            run_job(context._replace(on_progress=told))
        with (context.directory / PART).open("ab") as file:
            file.write(b"half a li")
        offset = json.loads((context.directory / OFFSET).read_bytes())
        assert 0 < offset["lines"] < 1001
        place.desk.end_lease(job_id)
        with place.desk.database.write() as connection:
            connection.exec_driver_sql("UPDATE jobs SET attempts = 1")
    job = place.run(job_id)
    assert place.predictions(job) == whole
    assert (job.result["lines"], job.result["bad"]) == (1001, 1)


def test_a_finished_batch_without_a_report_is_not_done_again(place: Place) -> None:
    batch_data(place, 20)
    job_id = place.submit("batch", {"model": "m", "data": "batch.jsonl"})
    context = place.claimed(job_id)
    result = run_job(context)
    before = (context.directory / RESULT).stat()
    place.desk.end_lease(job_id)
    assert place.run(job_id).result == result and (context.directory / RESULT).stat() == before


def test_a_batch_of_a_file_that_changes_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.admin.jobs.batch.SYNC_SECONDS", 0.0)
    batch_data(place, 50)
    job_id = place.submit("batch", {"model": "m", "data": "batch.jsonl"})

    def at(phase: str) -> None:
        if phase == "predict":
            batch_data(place, 51)

    with pytest.raises(BadData, match="changed"):
        place.run(job_id, at)
    place.desk.end_lease(job_id)
    with pytest.raises(BadData, match="changed"):
        place.run(job_id)  # which would go on with another file
    assert not (place.store.root / "jobs" / job_id / RESULT).exists()
