"""`xylem models labels`: what is listed, found and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model_store.label_info import Subject, build_label_info
from model_store.store import Store
from tests.alias_helpers import deny
from tests.conftest import Run
from tests.served_models import publish_model


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    publish_model(made, "m", "raw")
    subjects = [
        Subject("label::3", "3", {"fi": "koira", "en": "Dog"}, ["label::4"]),
        Subject("label::4", None, {"en": "animal"}),
    ]
    made.put_label_info("m", build_label_info(subjects))
    deny(made, "m", ["label::3"])
    return made


def test_labels_are_listed_found_and_told(store: Store, run_here: Run) -> None:
    def listed(*arguments: str) -> Any:
        done = run_here("models", "labels", *arguments, "--json", store=store.root)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    whole = listed("m", "--limit", "4")
    assert (whole["n_found"], [one["id"] for one in whole["labels"]]) == (11, [0, 1, 2, 3])
    assert [one["denied"] for one in whole["labels"]] == [False, False, False, True]
    assert "name" not in whole["labels"][3]
    (dog,) = listed("m@1", "--search", "DOG", "--language", "en")["labels"]
    assert (dog["label"], dog["name"], dog["denied"]) == ("label::3", "Dog", False)
    (dog,) = listed("m", "--search", "koira", "--label-info")["labels"]
    assert (dog["names"], dog["broader"]) == ({"fi": "koira", "en": "Dog"}, ["label::4"])
    assert listed("m", "--search", "koira")["labels"] == []
    done = run_here("models", "labels", "m", "--label-info", "--search", "::3", store=store.root)
    assert "fi: koira; en: Dog" in done.stdout and "denied" in done.stdout
    done = run_here("models", "labels", "m", "--search", "nothing", store=store.root)
    assert (done.returncode, "0 of 11 labels" in done.stdout) == (0, True)
    done = run_here("models", "labels", "m", "--language", "de", store=store.root)
    assert (done.returncode, "(fi, en), found 'de'" in done.stderr) == (2, True)
