"""Batches in files and searches, by threads here and by a cluster
of two nodes of one processor each.
"""

import gzip
import itertools
import json
import threading
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Run
from tests.e2e.on_ray.conftest import add_node
from tests.e2e.test_object_store import running_s3
from tests.helpers.jobs_helpers import write_data
from tests.helpers.servers import wait_for

from xylem.base.columns import DEFAULT_COLUMNS
from xylem.base.errors import BadParameter
from xylem.base.executors.local import AHEAD
from xylem.base.settings import Limits
from xylem.extras.ray.cluster import connect
from xylem.extras.ray.crew import RayCrew
from xylem.serving.batches import parts
from xylem.serving.batches.parts import AnswerParts, parts_of
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

pytest.importorskip("ray")

BAD = b'{"text": 1}\n'


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files of lines, of which one cannot be used in each."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(6):
        file = write_data(folder / f"{number}.jsonl", 60, seed=number)
        lines = file.read_bytes() + BAD
        file.write_bytes(lines)
        if number % 2 == 0:
            file.rename(f"{file}.gz").write_bytes(gzip.compress(lines))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    request = TrainRequest(trainer="label-tree", data=write_data(tmp_path / "train.jsonl", 400))
    train_and_publish(Store(tmp_path / "store"), "m", request)
    return tmp_path / "store"


def without_ids(lines: str) -> list[Any]:
    """Answers without what is another for each time that one asks."""
    found = [json.loads(line) for line in lines.splitlines()]
    for answer in found:
        answer.pop("prediction_id", None)
    return found


def answers_in(out: Path) -> list[list[Any]]:
    return [without_ids(file.read_text()) for file in sorted(out.glob("part-*.jsonl"))]


@pytest.fixture
def expected(run_here: Run, store: Path, data: Path) -> list[list[Any]]:
    """What the lines of each file are answered one after the other, as a batch over HTTP is."""
    found = []
    for file in sorted(data.iterdir()):
        done = run_here("predict", "m", "--data", file, store=store)
        assert done.returncode == 2 and "found 1 without" in done.stderr
        found.append(without_ids(done.stdout))
    assert all(len(part) == 61 and part[60]["error"]["line"] == 61 for part in found)
    return found


def last(done: Any) -> dict[str, Any]:
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("way", ["threads", "cluster"])
def test_answers_in_files_are_those_of_a_batch(
    way: str,
    request: pytest.FixtureRequest,
    run_here: Run,
    store: Path,
    data: Path,
    expected: list[Any],
) -> None:
    out = store.parent / "out"
    ray = ("--ray", request.getfixturevalue("cluster").address) if way == "cluster" else ()
    asked = "predict", "m", "--data", data, "--out", out, "--json", *ray
    done = run_here(*asked, store=store)
    assert (
        done.returncode,
        "expected an instance on each of 366 lines, found 6" in done.stderr,
    ) == (2, True)
    assert answers_in(out) == expected
    told = {"version": "m@1", "out": str(out), "n_parts": 6}
    assert last(done) == {**told, "n_there": 0, "n_rows": 360, "n_bad": 6}
    kept = {file.name: file.read_bytes() for file in out.iterdir()}
    (out / "part-000002.jsonl").unlink()
    assert last(run_here(*asked, store=store)) == {**told, "n_there": 5, "n_rows": 60, "n_bad": 1}
    assert answers_in(out) == expected
    assert [name for name in kept if (out / name).read_bytes() != kept[name]] == [
        "part-000002.jsonl"
    ]
    assert run_here(*asked, store=store).returncode == 0
    table = store.parent / "table"
    run_here(*asked, "--out", table, "--format", "parquet", store=store)
    for file, answers in zip(sorted(table.glob("part-*.parquet")), expected, strict=True):
        for row, answer in zip(pq.read_table(file).to_pylist(), answers, strict=True):
            if "error" in answer:
                assert json.loads(row["error"]) == answer["error"] and row["labels"] is None
                continue
            assert row["labels"] == [one["label"] for one in answer["labels"]]
            scores = pa.array([one["score"] for one in answer["labels"]], pa.float32()).to_pylist()
            assert (row["scores"], row["error"]) == (scores, None)


def test_a_large_file_is_divided_and_lines_keep_their_numbers(
    run_here: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = store.parent / "large.jsonl"
    lines = write_data(file, 400).read_bytes().splitlines(keepends=True)
    lines[250:250] = [b"\n", BAD]
    file.write_bytes(b"".join(lines)[:-1])
    whole = without_ids(run_here("predict", "m", "--data", file, store=store).stdout)
    monkeypatch.setattr(parts, "PART_BYTES", 3000)
    found = list(parts_of(file))
    assert len(found) > 5 and found[0].start == 0 and found[-1].end == file.stat().st_size
    assert all(one.end == two.start for one, two in itertools.pairwise(found))
    run_here("predict", "m", "--data", file, "--out", store.parent / "out", store=store)
    assert [line for part in answers_in(store.parent / "out") for line in part] == whole


def test_a_killed_node_loses_no_line_and_repeats_none(
    cluster: Any, run_here: Run, store: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "many", tmp_path / "killed"
    data.mkdir()
    for number in range(16):
        write_data(data / f"{number}.jsonl", 2500)
    there: list[int] = []

    def kill() -> None:
        wait_for(lambda: any(out.glob("part-*")))
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        there.append(len(list(out.glob("part-*"))))

    killer = threading.Thread(target=kill)
    killer.start()
    asked = "predict", "m", "--data", data, "--beam-width", "200", "--exact"
    try:
        done = run_here(*asked, "--out", out, "--ray", cluster.address, "--json", store=store)
    finally:
        killer.join()
        add_node(cluster)
    assert done.returncode == 0, done.stderr
    assert 0 < there[0] < 16 and last(done)["n_rows"] == 16 * 2500
    alone = without_ids(run_here(*asked[:3], data / "0.jsonl", *asked[4:], store=store).stdout)
    assert answers_in(out) == [alone] * 16


def test_a_node_that_has_just_died_is_passed_over(cluster: Any) -> None:
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    try:
        with connect(cluster.address) as ray:
            RayCrew(1, ray, AHEAD).everywhere(lambda: None)
    finally:
        add_node(cluster)


def test_what_cannot_be_done_is_told_at_once(
    run_here: Run, store: Path, data: Path, cluster: Any
) -> None:
    out = store.parent / "out"

    def told(*options: object) -> str:
        done = run_here("predict", "m", *options, store=store)
        assert (
            done.returncode == 2 and not list(out.glob("part-*")) and done.stderr.count("\n") == 1
        )
        return done.stderr

    here = "--data", data, "--out", out
    assert "--ray cannot be used without --out" in told("--data", data, "--ray", "auto")
    assert "expected files as --data, found standard input" in told("--out", out)
    assert "--format: expected jsonl or parquet, found 'csv'" in told(*here, "--format", "csv")
    assert "expected jsonl with --explain" in told(*here, "--format", "parquet", "--explain")
    assert "top_r" in told(*here, "--top-r", 10**6)
    assert "expected such files, found none" in told("--data", data / "*.parquet", "--out", out)
    out.mkdir()
    file = out / "mine.txt"
    file.write_text("mine")
    assert "expected an empty directory, or one of the same batch, found 'mine.txt'" in told(*here)
    assert f"{file / 'below'}: expected" in told("--data", data, "--out", file / "below")
    file.unlink()
    assert run_here("predict", "m", *here, store=store).returncode == 2
    for file in out.glob("part-*"):
        file.unlink()
    assert "expected answers of the same query, found 'top_r=5" in told(*here, "--top-r", 3)
    assert "expected answers of the same parts, found others" in told(
        "--data", data / "*.gz", "--out", out
    )
    step = AnswerParts(
        str(store),
        "m",
        1,
        "0" * 64,
        "",
        (),
        None,
        DEFAULT_COLUMNS,
        Limits(),
        str(out),
        "jsonl",
        1,
    )
    other = f"node .*: {store}: expected m@1 of digest 0{{12}}, found one of"
    with connect(cluster.address) as ray, pytest.raises(BadParameter, match=other):
        RayCrew(1, ray, AHEAD).everywhere(lambda: step.check("none"))


def test_data_and_answers_in_an_object_store(
    s3_port: int,
    cluster: Any,
    run_here: Run,
    store: Path,
    data: Path,
    expected: list[Any],
    tmp_path: Path,
) -> None:
    with running_s3(tmp_path / "requests.log", s3_port):
        s3 = fsspec.filesystem("s3", use_listings_cache=False)
        s3.mkdir("rows")
        for file in data.iterdir():
            s3.put_file(str(file), f"rows/in/{file.name}")
        for out, how in (("rows/here", ()), ("rows/there", ("--ray", cluster.address))):
            asked = (
                "predict",
                "m",
                "--data",
                "s3://rows/in/*",
                "--out",
                f"s3://{out}",
                "--json",
                *how,
            )
            done = run_here(*asked, store=store)
            assert last(done)["n_rows"] == 360, done.stderr
            names = sorted(name for name in s3.ls(out, detail=False) if "/part-" in name)
            assert [without_ids(s3.cat_file(name).decode()) for name in names] == expected
            assert run_here(*asked, store=store).returncode == 0
            assert len(s3.ls(out)) == 7
        trained = run_here("evaluate", "m", "--data", "s3://rows/in/*", store=store)
        assert "s3://rows/in/0.jsonl.gz:61: expected keys `labels`" in trained.stderr
        rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
        with s3.open("rows/train/1.parquet", "wb") as table:
            pq.write_table(pa.Table.from_pylist(rows), table)
        options = "--data", "s3://rows/train/*.parquet", "--model", "n", "--json"
        assert run_here("train", "label-tree", *options, store=store).returncode == 0
        assert Store(store).open("n", 1).manifest.data.rows == 400


def test_trials_of_a_search_are_tried_on_the_nodes(
    cluster: Any, run_here: Run, tmp_path: Path
) -> None:
    data = write_data(tmp_path / "train.jsonl", 300)
    study = tmp_path / "study.db"
    search = (
        "tune",
        "--data",
        data,
        "--model",
        "best",
        "--study",
        study,
        "--trainer",
        "label-tree",
        "--json",
    )
    found = last(
        run_here(*search, "--trials", 4, "--ray", cluster.address, store=tmp_path / "store")
    )
    values = [trial["value"] for trial in found["trials"]]
    assert len(values) == 4 and values == sorted(values, reverse=True)
    assert found["best"] == found["trials"][0]
    more = last(run_here(*search, "--trials", 5, store=tmp_path / "store"))
    assert len(more["trials"]) == 5 and all(trial in more["trials"] for trial in found["trials"])
    assert Store(tmp_path / "store").manifest("best", 2).trainer.name == "label-tree"
