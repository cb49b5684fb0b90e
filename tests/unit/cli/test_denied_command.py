"""`xylem models deny`, and what it changes of show, list, predict and score."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.served_models import publish_model
from tests.unit.cli.conftest import Cli

from xylem_store.label_info import Subject, build_label_info
from xylem_store.store import Store

LINE = '{"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0], "labels": ["label::1"]}\n'
DENY = ("models", "deny")


@pytest.fixture(autouse=True)
def versions(store: Path) -> Store:
    """Version 1 of a model has more labels than version 2."""
    made = Store(store)
    publish_model(made, "m", "raw", n_labels=30)
    publish_model(made, "m", "raw", seed=1)
    return made


def findings_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["findings"]
    return findings


def test_labels_come_and_go_and_stay_with_the_alias(
    cli: Cli, versions: Store, tmp_path: Path
) -> None:
    assert cli.says(*DENY, "m") == "m: latest denies 0 labels\n"
    assert cli.says(*DENY, "m", "--label", "label::3") == "m: latest denies 1 label\n  label::3\n"
    file = tmp_path / "retired.txt"
    file.write_text("label::5\nlabel::4\n")
    assert "denies 3 labels" in cli.says(*DENY, "m@latest", "--labels", file, "--reason", "retired")
    left = cli.says(*DENY, "m", "--label", "label::5", "--allow-again")
    assert left.endswith("  label::3\n  label::4\n")
    versions.promote("m", 1)
    many = [part for i in range(25) for part in ("--label", f"label::{i}")]
    assert cli.says(*DENY, "m", *many).endswith("  and 5 more: --json has all\n")
    versions.promote("m", 2)
    assert cli.says(*DENY, "m").startswith(
        "m: latest denies 25 labels, 14 of them not in version 2\n"
    )
    found = cli.answers(*DENY, "m")
    assert (found["alias"], found["version"], len(found["labels"])) == ("latest", 2, 25)
    assert len(found["unknown"]) == 14 and "label::24" in found["unknown"]
    again = cli.says(*DENY, "m", "--label", "label::24", "--label", "label::3")
    assert again.startswith("m: latest denies 25 labels")
    assert cli.says(*DENY, "m", "--clear") == "m: latest denies 0 labels\n"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("m", "--label", "lable::3"), "found 'lable::3'"),
        (("m", "--label", "nothing like it"), "found 'nothing like it'"),
        (
            ("m", "--label", "label::4", "--allow-again"),
            "found 'label::4'; did you mean 'label::3'?",
        ),
        (("m", "--allow-again"), "expected --label, --labels or --under, found none"),
        (("m", "--clear", "--label", "label::3"), "--clear cannot be used with --label"),
        (("m@2", "--label", "label::3"), "an alias that denies labels, found version 2"),
        (("m@none", "--label", "label::3"), "expected an alias, found 'none'"),
        (("n",), "expected a model, found none named 'n'"),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, arguments: tuple[str, ...], fault: str) -> None:
    cli.says(*DENY, "m", "--label", "label::3")
    cli.refuses(fault, *DENY, *arguments)
    assert cli.says(*DENY, "m").startswith("m: latest denies 1 label\n")


def test_commands_of_the_alias_keep_to_it(cli: Cli) -> None:
    cli.says(*DENY, "m", "--label", "label::1")
    (of_alias,), (of_version,) = (
        cli.lines("predict", "--top-r", "11", model, input=LINE) for model in ("m", "m@2")
    )
    assert {each["label"] for each in of_alias["labels"]} == {
        f"label::{i}" for i in range(11) if i != 1
    }
    assert len(of_version["labels"]) == 11
    scored = cli("score", "m", input=LINE)
    assert scored.returncode == 2 and "neither denied nor deprecated" in scored.stdout
    assert cli.answers("models", "show", "m")["denied"] == ["label::1"]
    assert "denied" not in cli.answers("models", "show", "m@2")
    assert "latest denies" in cli.says("models", "show", "m")
    assert cli.answers("models", "list")["models"][0]["denied"] == {"latest": 1}


def test_the_history_tells_who_denied_what(cli: Cli) -> None:
    cli.says(*DENY, "m", "--label", "label::1", "--reason", "a court said so")
    cli.says(*DENY, "m", "--clear")
    history = cli.answers("models", "history", "m")["history"]
    rows = [
        (row["verdict"], row["why"], row["to_version"])
        for row in history
        if row["action"] == "denied"
    ]
    assert rows == [
        ({"denied": 0, "added": [], "removed": ["label::1"]}, "", 2),
        ({"denied": 1, "added": ["label::1"], "removed": []}, "a court said so", 2),
    ]
    cli.says("models", "promote", "m@1")
    cli.says("models", "rollback", "m")


def test_an_evaluation_says_that_labels_are_never_answered(cli: Cli, tmp_path: Path) -> None:
    rows = tmp_path / "rows.svm"
    rows.write_text("".join(f"{i % 5} 1:1 5:0.5 {i + 6}:1\n" for i in range(20)))
    assert cli.answers("evaluate", "m", "--data", rows)["findings"] == []
    cli.says(*DENY, "m", "--label", "label::3", "--label", "label::9")
    done = cli("evaluate", "m", "--data", rows, "--json")
    assert "(labels-never-answered)" in done.stderr
    (finding,) = findings_of(done)
    assert finding["code"] == "labels-never-answered"
    assert finding["message"].startswith(
        "expected labels that a server answers, found 1 of 5 that are denied, deprecated or "
        "without a training row, as 'label::3'"
    )
    assert cli.answers("evaluate", "m@2", "--data", rows)["findings"] == []


def test_an_evaluation_says_that_labels_are_deprecated(
    cli: Cli, versions: Store, tmp_path: Path
) -> None:
    subjects = [Subject(f"label::{i}", None, {}, deprecated=i in (2, 4)) for i in range(11)]
    versions.put_label_info("m", build_label_info(subjects))
    rows = tmp_path / "rows.svm"
    rows.write_text("".join(f"{i % 5} 1:1 5:0.5 {i + 6}:1\n" for i in range(20)))
    (finding,) = findings_of(cli("evaluate", "m", "--data", rows, "--json"))
    assert finding["code"] == "labels-never-answered"
    assert "found 2 of 5" in finding["message"] and "'label::2', 'label::4'" in finding["message"]


def test_an_evaluation_says_that_its_ids_begin_at_one(cli: Cli, tmp_path: Path) -> None:
    rows = tmp_path / "rows.svm"
    rows.write_text("".join(f"{i % 5 + 1} 1:1 5:0.5 {i + 6}:1\n" for i in range(20)))
    (finding,) = findings_of(cli("evaluate", "m", "--data", rows, "--json"))
    assert finding["code"] == "ids-from-one"
