"""`xylem models deny`, and what it changes of show, list, predict and score."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_store.store import Store
from tests.conftest import Run
from tests.served_models import publish_model

LINE = '{"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0], "labels": ["label::1"]}\n'


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    publish_model(made, "m", "raw", n_labels=30)
    publish_model(made, "m", "raw", seed=1)
    return made


@pytest.fixture
def deny(store: Store, run_here: Run) -> Callable[..., Any]:
    def run(*arguments: object, ok: bool = True) -> Any:
        done = run_here("models", "deny", *arguments, store=store.root)
        assert (done.returncode == 0) == ok, done.stderr
        return done.stdout if ok else done.stderr

    return run


def test_labels_come_and_go_and_stay_with_the_alias(
    deny: Callable[..., Any], store: Store, tmp_path: Path
) -> None:
    assert deny("m") == "m: latest denies 0 labels\n"
    assert deny("m", "--label", "label::3") == "m: latest denies 1 label\n  label::3\n"
    file = tmp_path / "retired.txt"
    file.write_text("label::5\nlabel::4\n")
    assert "denies 3 labels" in deny("m@latest", "--labels", file, "--reason", "retired")
    assert deny("m", "--label", "label::5", "--allow-again").endswith("  label::3\n  label::4\n")
    store.promote("m", 1)
    many = [part for i in range(25) for part in ("--label", f"label::{i}")]
    assert deny("m", *many).endswith("  and 5 more: --json has all\n")
    store.promote("m", 2)
    assert deny("m").startswith("m: latest denies 25 labels, 14 of them not in version 2\n")
    found = json.loads(deny("m", "--json").splitlines()[-1])
    assert (found["alias"], found["version"], len(found["labels"])) == ("latest", 2, 25)
    assert len(found["unknown"]) == 14 and "label::24" in found["unknown"]
    assert deny("m", "--label", "label::24", "--label", "label::3").startswith("m: latest denies 25 labels")
    assert deny("m", "--clear") == "m: latest denies 0 labels\n"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("m", "--label", "lable::3"), "found 'lable::3'"),
        (("m", "--label", "nothing like it"), "found 'nothing like it'"),
        (("m", "--label", "label::4", "--allow-again"), "found 'label::4'; did you mean 'label::3'?"),
        (("m", "--allow-again"), "expected --label or --labels, found neither"),
        (("m", "--clear", "--label", "label::3"), "expected no label beside it"),
        (("m@2", "--label", "label::3"), "an alias that denies labels, found version 2"),
        (("m@none", "--label", "label::3"), "expected an alias, found 'none'"),
        (("n",), "expected a model, found none named 'n'"),
    ],
)
def test_what_cannot_be_is_refused(deny: Callable[..., Any], arguments: tuple[str, ...], fault: str) -> None:
    deny("m", "--label", "label::3")
    assert fault in deny(*arguments, ok=False)
    assert deny("m").startswith("m: latest denies 1 label\n")


def test_commands_of_the_alias_keep_to_it(deny: Callable[..., Any], store: Store, run_here: Run) -> None:
    def out(*arguments: object, of_line: str = "", code: int = 0) -> str:
        done = run_here(*arguments, store=store.root, input=of_line)
        assert done.returncode == code, done.stderr
        return done.stdout

    deny("m", "--label", "label::1")
    asked = ("predict", "--top-r", "11")
    predicted = {label["label"] for label in json.loads(out(*asked, "m", of_line=LINE))["labels"]}
    assert predicted == {f"label::{i}" for i in range(11)} - {"label::1"}
    assert len(json.loads(out(*asked, "m@2", of_line=LINE))["labels"]) == 11
    assert "neither denied nor deprecated" in out("score", "m", of_line=LINE, code=2)
    assert json.loads(out("models", "show", "m", "--json").splitlines()[-1])["denied"] == ["label::1"]
    assert "denied" not in json.loads(out("models", "show", "m@2", "--json").splitlines()[-1])
    assert "latest denies" in out("models", "show", "m")
    assert json.loads(out("models", "list", "--json").splitlines()[-1])["models"][0]["denied"] == {
        "latest": 1
    }


def test_the_history_tells_who_denied_what(deny: Callable[..., Any], store: Store, run_here: Run) -> None:
    deny("m", "--label", "label::1", "--reason", "a court said so")
    deny("m", "--clear")
    told = run_here("models", "history", "m", "--json", store=store.root).stdout.splitlines()[-1]
    rows = [row for row in json.loads(told)["history"] if row["action"] == "denied"]
    assert [row["verdict"] for row in rows] == [
        {"denied": 0, "added": [], "removed": ["label::1"]},
        {"denied": 1, "added": ["label::1"], "removed": []},
    ]
    assert rows[1]["why"] == "a court said so"
    assert {row["to_version"] for row in rows} == {2}
    assert run_here("models", "promote", "m@1", store=store.root).returncode == 0
    assert run_here("models", "rollback", "m", store=store.root).returncode == 0
