"""Jobs read vectors beside the texts: a file beside each data file, or a column."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import ANYWAY, Place
from tests.helpers.jobs_helpers import TRAINING
from tests.helpers.tiny_encoders import write_encoder
from tests.helpers.vectors import NUMBERS, vectors_of

from xylem.base.errors import BadData, BadInput
from xylem.extras.encoder.encoder import read_encoder
from xylem.thresholds.store.feedback_rows import add_rows
from xylem.vocabulary.featurizers import featurizer_of
from xylem_store.errors import EncoderNotFound

DIMS = {"parameters": {"trees": 1, "vectors.dims": 5}}
FILES = {"vectors": ["train.npy", "valid.npy"]}
COLUMN = {"data": "train-emb.jsonl", "valid": "valid-emb.jsonl", "vector_column": "emb"}


@pytest.fixture
def rows(place: Place) -> Path:
    """The data directory: a .npy file beside each file, and one with a column each."""
    new = [{"text": f"new{i % 4} word{i % 5}", "labels": ["new"]} for i in range(30)]
    write_lines(place.data / "new.jsonl", new)
    for name in ("train", "valid", "new"):
        lines = (place.data / f"{name}.jsonl").read_text().splitlines()
        loaded = [json.loads(line) for line in lines]
        vectors = vectors_of([row["text"] for row in loaded])
        np.save(place.data / f"{name}.npy", vectors)
        with_column = ({**row, "emb": vectors[i].tolist()} for i, row in enumerate(loaded))
        write_lines(place.data / f"{name}-emb.jsonl", with_column)
        table = "".join(f"{row['text']},{row['labels'][0]}\n" for row in loaded)
        (place.data / f"{name}.csv").write_text(f"text,labels\n{table}")
    return place.data


def takes_vectors(place: Place, version: int) -> bool:
    return "vectors.numbers" in featurizer_of(place.store.open("m", version)).config()


TRAININGS = [
    FILES,
    COLUMN,
    {"data": "train.csv", "valid": "valid.csv", **FILES},
    {"valid": None, "split": 0.3, "vectors": "train.npy"},
    {"data": "train.csv", "valid": None, "split": 0.3, "vectors": "train.npy"},
    {"data": "train-emb.jsonl", "valid": None, "split": 0.3, "vector_column": "emb"},
    {"data": ["train.jsonl", "new.csv"], "vectors": ["train.npy", "new.npy", "valid.npy"]},
    {"data": ["train-emb.jsonl", "new-emb.jsonl"], "valid": "valid-emb.jsonl",
     "vector_column": "emb"},
]  # fmt: skip


@pytest.mark.parametrize("request_", TRAININGS)
def test_trainings_read_vectors(place: Place, rows: Path, request_: dict[str, Any]) -> None:
    tuned = {"thresholds": {"method": "fta"}, "promotion": ANYWAY}
    done = place.train(**DIMS, **request_, **tuned)
    assert done.promotion is not None and done.promotion.promoted
    assert takes_vectors(place, done.version)
    assert done.result["metrics"]["P@1"] > 50


def test_other_jobs_read_vectors(place: Place, rows: Path) -> None:
    version = place.train(**DIMS, **FILES).version
    tuning = {"model": "m", "version": version, "method": "fta"}
    files = {"data": "train.jsonl", "test": "valid.jsonl", **FILES}
    column = {"data": "valid-emb.jsonl", "vector_column": "emb"}
    for read in (files, column):
        place.do("threshold-tuning", {**tuning, **read})
    answers = [
        place.predictions(place.batch(version=version, **read))
        for read in (
            {"data": "valid.jsonl", "vectors": "valid.npy"},
            {"data": "valid.csv", "vectors": ["valid.npy"]},
            column,
        )
    ]
    assert answers[0] == answers[1] == answers[2] and len(answers[0]) == 80
    assert all("labels" in answer for answer in answers[0])
    extension = {"model": "m", "version": version, "data": "new.jsonl", "rows": ["train.jsonl"]}
    done = place.do("extend", {**extension, "vectors": ["new.npy", "train.npy"]})
    assert takes_vectors(place, done.version)


def test_combined_versions_read_vectors(place: Place, rows: Path) -> None:
    pytest.importorskip("sklearn")
    version = place.train(**DIMS, **FILES).version
    fast = {"ranker": "linear", "beam_width": 10}
    body = {"model": "c", "members": [f"m@{version}"], "data": "valid.jsonl", **fast}
    done = place.do("combine", {**body, "vectors": "valid.npy"})
    assert done.result["metrics"]["P@1"] > 50


def give_feedback(place: Place, n: int = 40, **row: Any) -> None:
    """Store rows of feedback; each has a vector unless `row` says otherwise."""
    lines = []
    for i in range(n):
        text = f"fed{i % 4} word{i % 7}"
        event = {"event_id": str(i), "text": text, "labels": [f"fed{i % 4}"]}
        lines.append({**event, "vector": vectors_of([text])[0].tolist(), **row})
    stored = {str(i).encode(): (json.dumps(line).encode(), "") for i, line in enumerate(lines)}
    with place.desk.database.write() as connection:
        add_rows(connection, "m", stored)


SOURCE = {"feedback": {"model": "m"}}


@pytest.mark.parametrize(
    "request_",
    [
        {"data": [SOURCE], "vector_column": "vector", "valid": {"feedback": 0.3}},
        {"data": ["train.jsonl", SOURCE], **FILES},
        {**COLUMN, "data": ["train-emb.jsonl", SOURCE]},
        {**COLUMN, "data": ["train-emb.jsonl", SOURCE], "valid": {"feedback": 0.3}},
        {"data": ["train.csv", SOURCE], "valid": None, "split": 0.3, "vectors": "train.npy"},
    ],
)
def test_feedback_keeps_its_vectors(place: Place, rows: Path, request_: dict[str, Any]) -> None:
    give_feedback(place)
    done = place.train(**DIMS, **request_, promotion=ANYWAY)
    assert takes_vectors(place, done.version)


def test_feedback_without_a_vector_is_refused(place: Place, rows: Path) -> None:
    give_feedback(place, vector=None)
    message = "feedback to m:1: `vector`: expected a vector, found none"
    with pytest.raises(BadData, match=message):
        place.train(data=["train.jsonl", SOURCE], **FILES)


@pytest.mark.parametrize(
    ("change", "place_of", "message"),
    [
        ({"vectors": "train.npy"}, "vectors", "expected a file for each file of data, 2"),
        ({"vectors": ["train.npy"] * 3}, "vectors", "found 3"),
        ({"vectors": ["train.npy", "none.npy"]}, "vectors[1]", "below the data directory"),
        ({"vectors": "../x.npy", "valid": None}, "vectors", "below the data directory"),
        ({**FILES, "vector_column": "emb"}, "vectors", "cannot be used with a vector column"),
        ({**FILES, "join_rows": "id"}, "vectors", "cannot be used with join rows"),
        ({"vector_column": ""}, "vector_column", "found an empty one"),
        ({"vectors": []}, "vectors", "at least 1"),
        ({"vectors": 7}, "vectors", ""),
        ({"data": "train.csv", "vector_column": "emb"}, "vector_column", "found 'train.csv'"),
    ],
)
def test_requests_with_faults(
    place: Place, rows: Path, change: dict[str, Any], place_of: str, message: str
) -> None:
    request = {"model": "m", "trainer": "ovr", "data": "train.jsonl", "valid": "valid.jsonl"}
    with pytest.raises(BadInput) as error:
        place.submit("training", {**request, **change})
    (fault,) = error.value.faults  # type: ignore[attr-defined]
    assert fault.path == place_of and message in str(fault)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, NUMBERS)), "train.npy: expected as many rows as train.jsonl has, .*, found"),
        (np.full((200, NUMBERS), np.nan), "train.npy: row 0: .* found nan"),
        (np.array([{}] * 200), "train.npy: expected a .npy file .* Python objects"),
        (b"text", "train.npy: expected a .npy file with a matrix of floats"),
    ],
)
def test_bad_files_of_vectors(place: Place, rows: Path, array: Any, message: str) -> None:
    if isinstance(array, bytes):
        (rows / "train.npy").write_bytes(array)
    else:
        np.save(rows / "train.npy", array)
    before = place.store.versions("m")
    held_out = {"valid": None, "split": 0.3, "vectors": "train.npy"}
    for how in (FILES, held_out):
        job = place.submit("training", {"model": "m", "trainer": "ovr", "data": "train.jsonl",
                                        "valid": "valid.jsonl", **how})  # fmt: skip
        with pytest.raises(BadData, match=message):
            place.run(job)
        place.desk.end_lease(job)
        place.desk.jobs.cancel(job)
    assert place.store.versions("m") == before


def test_versions_and_vectors_must_fit(place: Place, rows: Path) -> None:
    version = place.train(**DIMS, **FILES).version
    tuning = {"model": "m", "data": "valid.jsonl", "method": "fta"}
    with pytest.raises(BadData, match="found no vector"):
        place.do("threshold-tuning", {**tuning, "version": version})


def test_vectors_for_a_version_of_words(place: Place, rows: Path) -> None:
    tuning = {"model": "m", "data": "valid.jsonl", "method": "fta", "version": 1}
    with pytest.raises(BadData, match=f"found a vector of {NUMBERS} numbers"):
        place.do("threshold-tuning", {**tuning, "vectors": "valid.npy"})


def test_an_encoder_that_is_removed_before_a_job_runs(place: Place, tmp_path: Path) -> None:
    place.store.encoders.add("tiny", read_encoder(write_encoder(tmp_path / "tiny"))[0])
    encoded = {**TRAINING, "parameters": {"features.encoder": "tiny"}}
    job = place.submit("training", encoded)
    place.store.encoders.remove("tiny")
    before = place.store.versions("m")
    with pytest.raises(EncoderNotFound, match="expected an encoder of the store, found 'tiny'"):
        place.run(job)
    assert place.store.versions("m") == before


def test_vectors_may_not_change_while_they_are_read(place: Place, rows: Path) -> None:
    def change(phase: str) -> None:
        if phase == "features":
            np.save(rows / "train.npy", np.zeros((200, NUMBERS)))

    with pytest.raises(BadData, match=r"train.npy: expected a file that does not change"):
        place.train(change, **DIMS, **FILES)
