"""The xylem command as its users run it: real processes, files and signals."""

import gzip
import json
import os
import pty
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.helpers import foreign_models as foreign
from tests.helpers.datasets_helpers import write_lines

from xylem_store import staging
from xylem_store.fs import FileSystem
from xylem_store.store import Store

XYLEM = Path(sys.executable).with_name("xylem")
TOPICS = ("graphics", "network", "music", "science", "games", "mail", "text", "web")
EVALUATION_KEYS = {
    "rows",
    *(f"{metric}@{k}" for metric in ("P", "nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)),
    *(
        "R@5",
        "macro_f",
        "micro_f",
        "instance_f",
        "empty_label_convention",
        "threshold",
        "us_per_row",
    ),
    *("bands", "calibration_error", "unknown_labels", "unknown_label_names"),
}


def xylem(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command; of what it says that it compiles kernels is left out."""
    command = [str(XYLEM), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, **options
    )
    lines = done.stderr.splitlines(keepends=True)
    done.stderr = "".join(line for line in lines if not line.startswith("compiling kernels into"))
    return done


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The object on the last line of a command's standard output;
    it succeeded and said nothing else.
    """
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def lines_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_refused(done: subprocess.CompletedProcess[str], *words: str, status: int = 2) -> None:
    """It exited with `status` and one line on standard error that holds the words."""
    assert (done.returncode, len(done.stderr.splitlines())) == (status, 1), done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_arguments_that_are_not_utf8_are_refused_in_a_line() -> None:
    """By each command: what they do with a name, such as to store it, takes UTF-8."""
    commands = [["train", "ovr", "--data"], ["models", "list", "--store"], ["serve", "--store"], []]
    for command in commands:
        started = [sys.executable, "-m", "xylem", *command, b"caf\xe9.jsonl"]
        done = subprocess.run(started, capture_output=True, text=True, check=False)
        assert_refused(done, "expected arguments in UTF-8, found 'caf\\udce9.jsonl'")


def rows(n: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows whose words tell their labels."""
    found = []
    for i in range(first, first + n):
        topics = sorted({TOPICS[i % 8], TOPICS[i * i % 8]})
        text = " ".join(
            [f"about {topic} and {topic}{i % 5}" for topic in topics] + [f"noise{i % 13}"]
        )
        found.append({"text": text, "labels": [f"topic::{topic}" for topic in topics]})
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with train.jsonl and test.jsonl."""
    directory = tmp_path_factory.mktemp("data")
    write_lines(directory / "train.jsonl", rows(240))
    write_lines(directory / "test.jsonl", rows(60, first=1000))
    return directory


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store that `xylem train` has published topics@1 to, and what the command answered."""
    store = tmp_path_factory.mktemp("trained") / "store"
    files = ("--data", data / "train.jsonl", "--valid", data / "test.jsonl")
    done = xylem("train", "label-tree", *files, "--model", "topics", "--store", store, "--json")
    return store, answer(done)


@pytest.fixture
def store(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of that store."""
    return Path(shutil.copytree(trained[0], tmp_path / "store"))


def test_train_answers_with_the_keys_of_the_contract(trained: tuple[Path, dict[str, Any]]) -> None:
    report = trained[1]
    keys = "model version trainer train_seconds peak_memory_bytes model_bytes metrics"
    assert list(report) == keys.split()
    assert (report["model"], report["version"], report["trainer"]) == ("topics", 1, "label-tree")
    assert report["train_seconds"] > 0
    assert report["peak_memory_bytes"] > report["model_bytes"] > 0
    assert report["metrics"]["P@1"] > 95


def test_evaluate_answers_programs_and_people(run_here: Run, data: Path, store: Path) -> None:
    evaluate = ("evaluate", "topics@1", "--data", data / "test.jsonl", "--store", store)
    report = answer(xylem(*evaluate, "--json"))
    assert report.keys() == EVALUATION_KEYS
    assert (report["rows"], report["P@1"] > 95, report["us_per_row"] > 0) == (60, True, True)
    table = xylem(*evaluate)
    assert (table.returncode, table.stderr, "PSnDCG" in table.stdout) == (0, "", True)
    assert "latest -> 1" in run_here("models", "list", store=store).stdout


def test_estimate_bounds_the_size_of_what_is_trained(data: Path) -> None:
    size = answer(xylem("estimate", "--data", data / "train.jsonl", "-p", "leaf_size=2", "--json"))
    assert size.keys() == {
        "nonzeros_bound",
        "bytes_bound",
        "ratio_to_ovr",
        "stored_bytes",
        "alpha_per_depth",
    }
    assert size["bytes_bound"] == 12 * size["nonzeros_bound"]
    assert size["alpha_per_depth"]


def test_predict_reads_lines_and_writes_a_line_for_each(run_here: Run, store: Path) -> None:
    lines = [{"text": "about music"}, {"id": "b", "text": "about mail", "labels": ["ignored"]}]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"indices": [0], "values": [1]}])
    done = xylem("predict", "topics", "--data", "-", "--store", store, "--top-r", 2, input=text)
    assert (done.returncode, done.stderr) == (0, "")
    found = lines_of(done)
    assert [len(line["labels"]) for line in found] == [2, 2, 2]
    assert found[0]["labels"][0]["label"] == "topic::music"
    assert (found[1]["id"], found[1]["labels"][0]["label"]) == ("b", "topic::mail")
    done = run_here("predict", "topics", "--threshold", "1", "--exact", store=store, input=text)
    assert {label["score"] for line in lines_of(done) for label in line["labels"]} <= {1}


def test_predict_explains_a_label_by_the_words_that_counted(run_here: Run, store: Path) -> None:
    text = '{"text": "about music"}\nnot json\n{"text": "about mail"}\n'
    done = run_here("predict", "topics", "--top-r", 1, "--explain", store=store, input=text)
    music, bad, mail = lines_of(done)
    assert "error" in bad
    for found, word in ((music, "music"), (mail, "mail")):
        (label,) = found["labels"]
        for tree in label["explanation"]["trees"]:
            assert tree["path"][-1]["features"][0]["feature"] == word


@pytest.mark.parametrize("command", [("predict", "topics"), ("serve", "--port", "0")])
def test_a_bad_setting_is_refused_in_one_line(command: tuple[str, ...], store: Path) -> None:
    environment = {**os.environ, "XYLEM_TOP_R_MAX": "abc"}
    done = xylem(*command, "--store", store, input="", env=environment)
    assert_refused(done, "XYLEM_TOP_R_MAX", "'abc'")


def test_predict_answers_a_bad_line_in_its_place_and_exits_with_2(
    store: Path, tmp_path: Path
) -> None:
    lines = [
        '{"text": "about web"}',
        '{"text": 7}',
        "not json",
        '{"features": {"a": 1}}',
        '{"text": "x"}',
    ]
    file = tmp_path / "lines.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    done = xylem("predict", "topics", "--data", file, "--store", store)
    assert_refused(done, "expected an instance on each of 5 lines", "found 3 without")
    found = [("labels" in line, line.get("error", {}).get("line")) for line in lines_of(done)]
    assert found == [(True, None), (False, 2), (False, 3), (False, 4), (True, None)]


def test_predict_answers_as_lines_come(store: Path) -> None:
    command = [XYLEM, "predict", "topics", "--store", str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for topic in ("music", "games"):
            process.stdin.write(json.dumps({"text": f"about {topic}"}).encode() + b"\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
            assert found["labels"][0]["label"] == f"topic::{topic}"
        process.stdin.close()
        assert process.wait(240) == 0


def test_predict_of_a_file_equals_predict_of_its_lines(
    run_here: Run, data: Path, store: Path
) -> None:
    whole = run_here(
        "predict", "topics", "--data", data / "test.jsonl", "--threads", 2, store=store
    )
    lines = xylem("predict", "topics", "--store", store, input=(data / "test.jsonl").read_text())
    found, expected = lines_of(whole), lines_of(lines)
    for line in (*found, *expected):
        del line["prediction_id"]
    assert found == expected and len(found) == 60


def test_a_text_without_a_known_word_has_labels_and_a_warning(run_here: Run, store: Path) -> None:
    for text, warning in (
        ("about music", ""),
        ("zzqq", "xylem: warning: the model knows no word of the text\n"),
    ):
        done = run_here("predict", "topics", text, store=store)
        assert (done.returncode, done.stderr, "topic::" in done.stdout) == (0, warning, True)


def test_a_file_without_lines_has_no_answers(run_here: Run, store: Path, tmp_path: Path) -> None:
    lines, table = tmp_path / "empty.jsonl", tmp_path / "empty.csv"
    lines.touch()
    table.touch()
    done = run_here("predict", "topics", "--data", lines, store=store)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_refused(
        run_here("predict", "topics", "--data", table, store=store), "empty.csv", "an empty file"
    )


def test_models_commands_change_the_store_and_say_so(
    run_here: Run, store: Path, tmp_path: Path
) -> None:
    def models(*arguments: object) -> Any:
        return answer(run_here("models", *arguments, "--json", store=store))

    file = tmp_path / "topics.tar"
    assert models("export", "topics", "--file", file)["bytes"] == file.stat().st_size
    assert models("import", "--file", file, "--model", "topics") == {
        "model": "topics",
        "version": 2,
    }
    listed = models("list")["models"]
    empty = {"broken_aliases": [], "fault": None, "splits": {}, "denied": {}}
    assert listed == [{"name": "topics", "versions": [1, 2], "aliases": {"latest": 2}, **empty}]
    assert models("rollback", "topics")["version"] == 1
    assert models("promote", "topics@2", "--alias", "canary")["version"] == 2
    assert models("verify", "topics@canary") == {"model": "topics", "version": 2, "verified": True}
    assert models("promote", "topics@1", "--alias", "canary")["version"] == 1
    assert models("delete", "topics@2")["deleted"] is True
    unaliased = {"model": "topics", "alias": "canary", "deleted": True}
    assert models("unalias", "topics", "canary") == unaliased
    assert models("import", "--file", file, "--model", "other")["version"] == 1
    gone = {"model": "other", "versions": [1], "deleted": True, "thresholds_deleted": False}
    assert models("delete", "other", "--all") == gone
    assert [model["name"] for model in models("list")["models"]] == ["topics"]
    shown = models("show", "topics")
    table = run_here("models", "show", "topics", store=store).stdout
    parts = [line.split("│") for line in table.splitlines() if "│ metrics " in line]
    assert len(parts) > 10
    assert all(len(value.strip()) < 8 for _, _, value, _ in parts)
    assert (shown["version"], shown["trainer"]["name"], shown["data"]["rows"]) == (
        1,
        "label-tree",
        240,
    )
    assert sorted(tmp_path.iterdir()) == [store, file]


def test_models_list_tells_of_aliases_that_cannot_be_read(run_here: Run, store: Path) -> None:
    Store(store).promote("topics", 1, "canary")
    (store / "models" / "topics" / "aliases" / "canary.json").write_text("damage")
    (listed,) = answer(run_here("models", "list", "--json", store=store))["models"]
    assert (listed["aliases"], listed["broken_aliases"]) == ({"latest": 1}, ["canary"])
    assert "canary (unreadable)" in run_here("models", "list", store=store).stdout


def test_models_collect_removes_what_dead_writers_left(run_here: Run, store: Path) -> None:
    dead = store / "staging" / "dead"
    (dead / "version").mkdir(parents=True)
    with staging.stage(FileSystem(), store) as living:
        assert answer(run_here("models", "collect", "--json", store=store)) == {
            "removed": [str(dead)]
        }
        assert list(dead.parent.iterdir()) == [living]
    done = run_here("models", "collect", store=store)
    assert (done.returncode, done.stdout) == (0, f"0 unfinished writes removed from {store}\n")
    assert Store(store).resolve("topics") == 1


def test_models_import_stores_weights_as_asked(run_here: Run, tmp_path: Path) -> None:
    foreign.save_pecos(tmp_path / "m")
    store = tmp_path / "store"
    source = ("--from", "pecos", tmp_path / "m")
    for arguments, weights in ((), "float32"), (("--weights", "int8"), "int8"):
        answer(run_here("models", "import", *source, *arguments, "--json", store=store))
        assert answer(run_here("models", "show", "m", "--json", store=store))["weights"] == weights
    for wrong in ((*source, "--weights", "x"), ("--file", "f", "--weights", "int8")):
        assert_refused(
            run_here("models", "import", *wrong, "--model", "m", store=store), "expected"
        )


def test_nothing_is_trained_for_a_store_that_is_none(
    run_here: Run, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("a file")
    for root in (tmp_path / "mistyped" / "store", tmp_path / "store"):
        arguments = ("--data", data / "missing.jsonl", "--model", "m")  # is not looked at
        done = run_here("train", "label-tree", *arguments, store=root)
        assert_refused(done, f"xylem: {root}: expected ", status=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate", "other", "--data", "TEST"), ("model", "other")),
        (("evaluate", "topics@9", "--data", "TEST"), ("version", "9")),
        (("evaluate", "topics@canary", "--data", "TEST"), ("alias", "canary")),
        (("evaluate", "Topics/..", "--data", "TEST"), ("name", "Topics/..")),
        (("evaluate", "topics", "--data", "none.jsonl"), ("none.jsonl",)),
        (("predict", "topics", "--top-r", "0"), ("top_r", "at least 1", "0")),
        (("predict", "topics", "--top-r", "1000000"), ("top_r", "1000", "1000000")),
        (("predict", "topics", "--threshold", "1.5"), ("threshold", "1.5")),
        (("predict", "topics", "--threshold", "tuned"), ("tuned thresholds",)),
        (("predict", "topics", "--data", "none.jsonl"), ("none.jsonl",)),
        (("models", "delete", "topics@1"), ("alias", "latest")),
        (("models", "delete", "topics"), ("NAME@VERSION",)),
        (("models", "delete", "topics@1", "--all"), ("--all", "name of a model", "topics@1")),
        (("models", "delete", "other", "--all"), ("model", "other")),
        (("models", "unalias", "topics", "canary"), ("alias", "canary")),
        (("models", "unalias", "topics", "latest"), ("alias", "latest")),
        (("models", "rollback", "topics"), ("earlier version",)),
        (("models", "import", "--file", "none.tar", "--model", "m"), ("none.tar",)),
        (("train", "nonsense", "--data", "TEST", "--model", "m"), ("label-tree", "nonsense")),
        (
            ("train", "label-tree", "--data", "TEST", "--model", "m", "-p", "arity=x"),
            ("arity", '"x"'),
        ),
        (("train", "label-tree", "--data", "TEST", "--model", "m", "-p", "nope=1"), ("nope",)),
        (
            ("train", "label-tree", "--data", "TEST", "--model", "m", "-p", "features.nope=1"),
            ("nope",),
        ),
        (("train", "label-tree", "--data", "TEST", "--model", "UP"), ("model name", "UP")),
        (("train", "label-tree", "--model", "m"), ("--data",)),
        (
            ("train", "label-tree", "--data", "WRONG", "--model", "m"),
            ("wrong.jsonl:2:", "text", "found"),
        ),
        (("serve", "--port", "70000"), ("--port", "65535", "70000")),
        (("predict", "topics", "--top-r", "many"), ("--top-r", "integer", "'many'")),
        (
            ("models", "export", "topics", "--file", "no/such/place.tar"),
            ("place.tar", "expected", "found"),
        ),
        (("models", "export", "topics", "--file", "."), ("expected", "found a directory")),
        (
            ("models", "report", "topics", "--out", "TEST"),
            ("test.jsonl", "expected a directory", "found"),
        ),
        (("nonsense",), ("nonsense",)),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_is_not_there_or_not_right_is_refused(
    arguments: tuple[str, ...], words: tuple[str, ...], run_here: Run, data: Path, store: Path
) -> None:
    (data / "wrong.jsonl").write_text('{"text": "a", "labels": ["x"]}\n{"text": 1, "labels": []}\n')
    files = {"TEST": str(data / "test.jsonl"), "WRONG": str(data / "wrong.jsonl")}
    given = [files.get(argument, argument) for argument in arguments]
    done = run_here(*given, store=store)
    assert_refused(done, *words)
    assert done.stdout == ""
    assert Store(store).models()[0].versions == (1,)


def test_a_damaged_version_is_refused(run_here: Run, store: Path) -> None:
    array = max(
        (store / "models/topics/versions/1/arrays").iterdir(), key=lambda file: file.stat().st_size
    )
    whole = array.read_bytes()
    array.chmod(0o644)
    array.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    assert_refused(
        run_here("models", "verify", "topics", store=store), "topics@1", "expected", "found"
    )
    done = run_here("predict", "topics", store=store, input='{"text": "x"}\n')
    assert_refused(done, "topics@1", "expected", "found")
    array.write_bytes(whole)
    assert run_here("models", "verify", "topics", store=store).returncode == 0
    array.unlink()
    assert_refused(run_here("models", "verify", "topics", store=store), "topics@1", "none")


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def train_topics(data: Path, store: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    files = ("--data", data / "train.jsonl", "--model", "topics", "--store", store)
    return xylem("train", "label-tree", *files, "--json", **options)


def test_a_disk_that_is_full_while_publishing_leaves_the_store_as_it_was(
    data: Path, store: Path
) -> None:
    done = train_topics(data, store, preexec_fn=limit_files)
    assert_refused(done, str(store), "expected", "bytes free and 'File too large'", status=1)
    assert Store(store).models()[0].aliases == {"latest": 1}
    assert answer(train_topics(data, store))["version"] == 2


def test_a_disk_that_is_full_while_exporting_leaves_no_file(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "topics.tar"
    given = ("models", "export", "topics", "--store", store, "--file", file)
    assert_refused(
        xylem(*given, preexec_fn=limit_files), str(file), "expected to read or write", status=1
    )
    assert list(tmp_path.glob("topics.tar*")) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if (
        os.geteuid() != 0
        or shutil.which("mount") is None
        or subprocess.run(mount, check=False).returncode
    ):
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_without_room_is_found_before_anything_is_published(
    data: Path, tiny_disk: Path
) -> None:
    store = tiny_disk / "store"
    assert_refused(train_topics(data, store), str(store), "bytes free", status=1)
    assert Store(store).models() == []


def read_until(descriptor: int, word: bytes, seconds: float) -> bytes:
    """What a terminal shows until `word` stands there."""
    shown, end = b"", time.monotonic() + seconds
    while word not in shown:
        assert time.monotonic() < end, shown[-500:]
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                shown += os.read(descriptor, 65536)
            except OSError:  # nobody is left who could write
                assert word in shown, shown[-500:]
    return shown


def test_ctrl_c_while_training_publishes_nothing(store: Path, tmp_path: Path) -> None:
    slow = write_lines(tmp_path / "slow.jsonl", rows(3000))
    terminal, inner = pty.openpty()
    command = [XYLEM, "train", "ovr", "--data", slow, "--model", "topics", "--store", store]
    hard = ["-p", "cost=1000000", "-p", "eps=0.0001", "-p", "max_epochs=100000"]
    process = subprocess.Popen([*command, *hard], stdout=subprocess.PIPE, stderr=inner, text=True)
    os.close(inner)
    try:
        shown = read_until(terminal, b"classifiers", 120)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = read_until(terminal, b"xylem: interrupted", 120)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        os.close(terminal)
    assert (process.returncode, out) == (130, "")
    assert b"Traceback" not in shown + rest
    assert Store(store).models()[0].aliases == {"latest": 1}
    assert answer(xylem("models", "verify", "topics@1", "--store", store, "--json"))["verified"]
