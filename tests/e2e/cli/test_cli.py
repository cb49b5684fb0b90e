"""The xylem command as its users run it: real processes, files and signals."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.helpers import foreign_models as foreign
from tests.helpers.commands import answer, assert_refused, xylem

from xylem_store import staging
from xylem_store.fs import FileSystem
from xylem_store.store import Store

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


def test_arguments_that_are_not_utf8_are_refused_in_a_line() -> None:
    """By each command: what they do with a name, such as to store it, takes UTF-8."""
    commands = [["train", "ovr", "--data"], ["models", "list", "--store"], ["serve", "--store"], []]
    for command in commands:
        started = [sys.executable, "-m", "xylem", *command, b"caf\xe9.jsonl"]
        done = subprocess.run(started, capture_output=True, text=True, check=False)
        assert_refused(done, "expected arguments in UTF-8, found 'caf\\udce9.jsonl'")


def test_train_answers_with_the_keys_of_the_contract(trained: tuple[Path, dict[str, Any]]) -> None:
    report = trained[1]
    keys = "model version trainer train_seconds peak_memory_bytes model_bytes metrics"
    # of the validation rows some are training rows: a finding says so
    assert list(report) == [*keys.split(), "data", "findings"]
    assert (report["model"], report["version"], report["trainer"]) == ("topics", 1, "label-tree")
    assert report["train_seconds"] > 0
    assert report["peak_memory_bytes"] > report["model_bytes"] > 0
    assert report["metrics"]["P@1"] > 95


def test_evaluate_answers_programs_and_people(run_here: Run, data: Path, store: Path) -> None:
    evaluate = ("evaluate", "topics@1", "--data", data / "test.jsonl", "--store", store)
    report = answer(xylem(*evaluate, "--json"))
    assert report.keys() == EVALUATION_KEYS | {"data", "findings", "branches"}
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
        "data",
        "findings",
    }
    assert size["bytes_bound"] == 12 * size["nonzeros_bound"]
    assert size["alpha_per_depth"]


@pytest.mark.parametrize("command", [("predict", "topics"), ("serve", "--port", "0")])
def test_a_bad_setting_is_refused_in_one_line(command: tuple[str, ...], store: Path) -> None:
    environment = {**os.environ, "XYLEM_TOP_R_MAX": "abc"}
    done = xylem(*command, "--store", store, input="", env=environment)
    assert_refused(done, "XYLEM_TOP_R_MAX", "'abc'")


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
