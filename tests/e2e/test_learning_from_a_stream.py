"""`xylem train lomtree --data -`: rows that are learnt as they come on standard input."""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

from xylem_store.origin import read_report
from xylem_store.store import Store

XYLEM = Path(sys.executable).with_name("xylem")
LEARN = ("train", "lomtree", "--data", "-", "--model", "m")
TOPICS = ("graphics", "network", "music", "science", "games")


def lines(n: int, kind: str) -> list[str]:
    """Rows whose features tell their label, as text or as features."""
    found = []
    for i in range(n):
        words = [TOPICS[i % 5], f"noise{i * i % 17}"]
        instance = (
            {"features": dict.fromkeys(words, 1.0)}
            if kind == "named"
            else {"text": " ".join(words)}
        )
        found.append(json.dumps({**instance, "labels": [f"topic::{TOPICS[i % 5]}"]}) + "\n")
    return found


def command(store: Path) -> list[str | Path]:
    return [XYLEM, *LEARN, "--store", store, "--json"]


def bits_of(store: Path, model: str = "m") -> dict[str, bytes]:
    """The arrays of the newest version, without what it says of where it came from, and of the rows
    that its last command read.
    """
    arrays = Store(store).open(model).arrays
    report = {name: value for name, value in read_report(arrays).items() if name != "data"}
    bits = {name: array.tobytes() for name, array in arrays.items() if name != "origin/json"}
    return {**bits, "report/json": json.dumps(report, sort_keys=True).encode()}


@pytest.mark.parametrize("kind", ["text", "named"])
def test_a_stream_becomes_a_version(kind: str, run_here: Run, tmp_path: Path) -> None:
    # the last line has no end, one has no label, and one label is seen once
    text = "".join(lines(400, kind)).rstrip("\n")
    if kind == "text":
        text = (
            '{"text": "nothing", "labels": []}\n\n{"text": "rare", "labels": ["a rare one"]}\n'
            + text
        )
    done = subprocess.run(
        command(tmp_path), input=text, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "Learning from standard input" in done.stderr and "Ctrl-C" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["version"] == 1
    told = Store(tmp_path).manifest("m", 1)
    assert (told.data.source, told.features["kind"]) == ("standard input", "hashing")
    assert (told.data.rows, told.n_labels) == ((402, 6) if kind == "text" else (400, 5))
    answered = run_here(
        "predict", "m", "--top-r", "1", store=tmp_path, input="".join(lines(50, kind))
    )
    names = [json.loads(line)["labels"][0]["label"] for line in answered.stdout.splitlines()]
    assert sum(name == f"topic::{TOPICS[i % 5]}" for i, name in enumerate(names)) >= 45
    assert run_here(*LEARN, store=tmp_path / "again", input=text).returncode == 0
    assert bits_of(tmp_path / "again") == bits_of(tmp_path), "the same stream gives the same model"


@pytest.mark.parametrize("kind", ["text", "named"])
def test_a_stream_that_goes_on_is_one_that_never_ended(
    kind: str, run_here: Run, tmp_path: Path
) -> None:
    """Labels and features come as they go: the second part has some that the first has not."""
    found = lines(300, kind)
    late: dict[str, Any] = (
        {"features": {"late": 1.0}} if kind == "named" else {"text": "late topic"}
    )
    found[200:200] = [json.dumps({**late, "labels": ["a late one", "zz"]}) + "\n"] * 20
    fixed = ("train", "lomtree", "--data", "-", "--keep-state", "--model")
    assert run_here(*fixed, "whole", store=tmp_path, input="".join(found)).returncode == 0
    whole = bits_of(tmp_path, "whole")
    for name, cuts in (("a", [1]), ("b", [150]), ("c", [3, 205, 310])):
        on: tuple[str, ...] = ()
        for first, last in zip([0, *cuts], [*cuts, len(found)], strict=True):
            done = run_here(*fixed, name, *on, store=tmp_path, input="".join(found[first:last]))
            assert done.returncode == 0, done.stderr
            on = ("--from", name)
        assert bits_of(tmp_path, name) == whole, name


def test_a_tree_goes_on_with_a_stream_and_a_stream_with_no_file(
    run_here: Run, tmp_path: Path
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(lines(200, "text")))
    store, fixed = tmp_path / "store", ("train", "lomtree", "--model", "m")
    assert run_here(*fixed, "--data", str(data), "--keep-state", store=store).returncode == 0
    late = '{"text": "graphics late", "labels": ["late"]}\n' * 60
    assert run_here(*fixed, "--data", "-", "--from", "m", store=store, input=late).returncode == 0
    asked = '{"text": "graphics late"}\n{"text": "music noise4"}\n'
    told = run_here("predict", "m", "--top-r", "1", store=store, input=asked).stdout
    names = [json.loads(line)["labels"][0]["label"] for line in told.splitlines()]
    assert names == ["late", "topic::music"]
    done = run_here(*fixed, "--data", str(data), "--from", "m@2", store=store)
    assert (
        done.returncode == 2
        and "expected -, to go on from m@2, which learns from standard" in done.stderr
    )


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ('{"text": "a", "labels": ["x"]}\n{"text": ', (), (":2:", "JSON")),
        ('{"text": "a", "labels": ["x"]}\n\n{"text": "a"}\n', (), (":3:", "labels", "'text'")),
        ('{"features": {"a": NaN}, "labels": ["x"]}\n', (), (":1:", "JSON")),
        ('{"features": {"a": 1e99}, "labels": ["x"]}\n', (), (":1:", "finite", "1e+99")),
        (
            '{"features": {"a": 1}, "labels": ["x"]}\n{"text": "a", "labels": []}\n',
            (),
            (":2:", "`features`"),
        ),
        (
            '{"features": {"a": 1}, "labels": ["x"]}\n',
            ("-p", "features.kind=raw"),
            ("hashing", "raw"),
        ),
        ('{"text": "a", "labels": []}\n', (), ("label", "none in 1 rows")),
        ("", (), ("row", "none")),
        ('{"text": "a", "labels": ["x"]}\n', ("-p", "features.kind=tfidf"), ("hashing", "tfidf")),
        ("", ("--stream",), ("standard input",)),
    ],
    ids=[
        "json",
        "labels",
        "nan",
        "infinite",
        "mixed",
        "raw",
        "unlabelled",
        "empty",
        "tfidf",
        "stream",
    ],
)
def test_a_stream_that_cannot_be_used_is_refused_by_its_line(
    text: str, arguments: tuple[str, ...], words: tuple[str, ...], run_here: Run, tmp_path: Path
) -> None:
    done = run_here(*LEARN, *arguments, store=tmp_path, input=text)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    fault = done.stderr.splitlines()[-1]
    assert [word for word in ("expected", "found", *words) if word not in fault] == []
    assert Store(tmp_path).models() == []


def test_standard_input_may_be_any_descriptor(run_here: Run, tmp_path: Path) -> None:
    """A process with many open files has descriptors that `select` does not take."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2048:
        pytest.skip("so many open files are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        while files.enter_context(Path(os.devnull).open()).fileno() < 1024:
            pass
        text = "".join(lines(50, "text"))
        done = run_here(*LEARN, store=tmp_path, input=text)
        assert (done.returncode, Store(tmp_path).models()[0].versions) == (0, (1,))
        done = run_here("predict", "m", store=tmp_path, input=text)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 50)


def test_other_trainers_do_not_learn_from_standard_input(run_here: Run, tmp_path: Path) -> None:
    done = run_here("train", "label-tree", "--data", "-", "--model", "m", store=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "lomtree" in done.stderr and "label-tree" in done.stderr


def test_ctrl_c_publishes_nothing(tmp_path: Path) -> None:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command(tmp_path), **pipes) as process:
        try:
            assert b"Learning" in process.stderr.readline()
            process.stdin.write("".join(lines(300, "text")).encode())
            process.stdin.flush()
            process.send_signal(signal.SIGINT)
            process.wait(timeout=240)  # its input goes on
        finally:
            process.kill()
    assert process.returncode == 130
    assert Store(tmp_path).models() == []
