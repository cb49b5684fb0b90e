"""Data of jobs: tables, files that are split, and files that change under a training."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.job_places import ANYWAY, Place
from tests.helpers.jobs_helpers import N_LABELS

from xylem.admin.jobs.sources import split_lines
from xylem.base import no_progress
from xylem.base.errors import BadData
from xylem.datasets import read_dataset

CHANGES = {
    "append": lambda path: path.write_text(
        path.read_text() + '{"text": "x", "labels": ["label0"]}\n'
    ),
    "replace": lambda path: shutil.copy(path, path.with_name("other")).replace(path),
    "remove": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
def test_data_that_changes_under_a_training_fails_it(place: Place, change: str) -> None:
    def at(phase: str) -> None:
        if phase == "report":
            CHANGES[change](place.data / "train.jsonl")

    with pytest.raises(BadData, match=r"train\.jsonl"):
        place.train(at)
    assert place.store.versions("m") == (1,) and place.store.collect() == []


@pytest.mark.parametrize("held_out", [{"valid": None, "split": 0.3}, {"valid": "valid.csv"}])
def test_jobs_read_tables(place: Place, held_out: Any) -> None:
    for name in ("train", "valid"):
        lines = [
            json.loads(line) for line in (place.data / f"{name}.jsonl").read_text().splitlines()
        ]
        rows = "".join(f"{line['labels'][0]}|other,{line['text']}\n" for line in lines)
        (place.data / f"{name}.csv").write_text("tags,title\n" + rows)
    columns = {"text_column": ["title"], "label_column": "tags", "label_separator": "|"}
    tune = {"method": "fta"}
    done = place.train(data="train.csv", **columns, **held_out, thresholds=tune, promotion=ANYWAY)
    assert done.result["labels"] == N_LABELS + 1 and done.promotion.promoted
    report = place.do(
        "threshold-tuning", {"model": "m", "data": "valid.csv", **tune, **columns}
    ).result
    assert report["validation_micro_f"] > 50
    assert (report["data"]["source"], report["data"]["rows"]) == ("valid.csv", 80)
    assert report["findings"] == []
    result = place.batch(data="valid.csv", text_column=["title"]).result
    assert (result["lines"], result["bad"]) == (80, 0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.jsonl", "".join(f'{{"text": "t{i}", "labels": ["l{i % 3}"]}}\n\n' for i in range(100))),
        ("d.svm", "# a comment\n" + "".join(f"{i % 3} {i % 7}:1\n" for i in range(100))),
        ("d.txt", "100 7 3\n" + "".join(f"{i % 3} {i % 7}:1\n" for i in range(100))),
    ],
)
def test_lines_are_split_into_two_files_that_can_be_read(
    tmp_path: Path, name: str, content: Any
) -> None:
    path = tmp_path / name
    path.write_text(content)
    split = partial(split_lines, path, tmp_path / "work", 0.3, 1, no_progress)
    parts = split()
    counts = [read_dataset(part).n_rows for part in parts]
    assert sum(counts) == 100 and 15 < counts[1] < 45
    before = [part.read_bytes() for part in parts]
    assert [part.read_bytes() for part in split()] == before
    path.write_text(content.splitlines()[0] + "\n")
    with pytest.raises(BadData):
        split()


def test_errors_name_the_file_of_the_user_and_its_line(tmp_path: Path, place: Place) -> None:
    """The work files of a job, joined and divided, are nothing that a user knows."""
    rows = [f'{{"text": "t{i}", "labels": ["l{i % 3}"]}}' for i in range(40)]
    for name in ("a.jsonl", "b.jsonl"):
        (place.data / name).write_text("\ufeff" + "\n\n".join(rows) + "\n")
    (place.data / "c.csv").write_text("text,labels\n" + "".join(f"t{i},l\n" for i in range(9)))
    held_out = {"valid": None, "split": 0.3}
    assert place.train(data=["a.jsonl", "b.jsonl", "c.csv"]).result["rows"] == 89
    assert place.train(data=["a.jsonl", "b.jsonl", "c.csv"], **held_out).result["labels"] == 4
    for wrong, expected in (
        (b'{"text": 3, "labels": []}', "expected a string as `text`"),
        ('{"text": "é", "labels": []}'.encode("latin-1"), "expected UTF-8, found byte 0xe9"),
        (b'{"text": "x", "labels": [1.5]}', "expected strings or whole numbers"),
    ):
        (place.data / "d.jsonl").write_bytes("\n".join(rows).encode() + b"\n\n" + wrong + b"\n")
        for data in ("d.jsonl", ["a.jsonl", "d.jsonl"]):
            for options in (held_out, {}):
                with pytest.raises(BadData, match=rf"{place.data}/d\.jsonl:42: {expected}"):
                    place.train(data=data, **options)
    (place.data / "e.csv").write_text(
        "text,labels\n" + "".join(f"t{i},\"['l']\"\n" for i in range(9))
    )
    with pytest.raises(BadData, match=r"/e\.csv: expected labels, .* in row \d+ of e\.csv"):
        place.train(data="e.csv", **held_out)
    with pytest.raises(BadData, match=r"^e\.csv, e\.csv: expected labels, .* in row 2 of e\.csv"):
        place.train(data=["e.csv", "e.csv"])
