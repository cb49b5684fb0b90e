"""Two versions are compared: by the names of labels, with intervals, and by the command."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Run
from tests.helpers.colour_texts import COLOURS, decisions, write
from tests.helpers.measured import tuned_to

from xylem.base.errors import BadData, BadParameter
from xylem.workflows.comparison import CompareRequest, Contender, compare
from xylem.workflows.request import TrainRequest
from xylem.workflows.train import train_and_publish
from xylem_store.store import Store

LEVEL = np.float32(0.4)


def contender(home: Path, name: str, *, tuned: bool = True) -> Contender:
    model = Store(home / "store").open(name)
    return Contender(model, tuned_to(np.full(model.labels.n_names, LEVEL)) if tuned else None)


def test_labels_are_matched_by_name(home: Path) -> None:
    data, sides = home / "test.jsonl", (contender(home, "some"), contender(home, "others"))
    report = compare(*sides, CompareRequest(data, resamples=100))
    assert report["labels"] == {"both": 1, "only_a": 2, "only_b": 1, "neither": 0}
    more = write(home / "more.jsonl", [("red", ["black", "red", "white"])])
    assert compare(*sides, CompareRequest(more, resamples=100))["labels"]["neither"] == 1
    true = [set(json.loads(line)["labels"]) for line in data.read_text().splitlines()]
    for key, side in zip("ab", sides, strict=True):
        rows = list(zip(decisions(side.model, data, float(LEVEL)), true, strict=True))
        f = []
        for colour in COLOURS:
            hits = sum(colour in found and colour in known for found, known in rows)
            marks = sum((colour in found) + (colour in known) for found, known in rows)
            f.append(2 * hits / marks)
        assert report["metrics"]["macro_f"][key] == pytest.approx(100 * np.mean(f))
    turned = compare(*sides[::-1], CompareRequest(data, resamples=100))
    for name, each in report["metrics"].items():
        assert turned["metrics"][name]["difference"] == pytest.approx(-each["difference"])


def test_a_better_model_is_better_and_one_like_itself_is_not(home: Path) -> None:
    request = CompareRequest(home / "test.jsonl", resamples=200)
    some, noise = contender(home, "some"), contender(home, "noise")
    report = compare(noise, some, request)
    best = report["metrics"]["P@1"]
    assert best["difference"] > 0 and best["real"] and best["low"] > 0
    assert not any(each["real"] for each in compare(some, some, request)["metrics"].values())
    assert compare(noise, some, request) == report
    report = compare(contender(home, "some", tuned=False), noise, request)
    assert list(report["metrics"]) == [
        "P@1",
        "P@3",
        "P@5",
        "F1@5",
        "nDCG@5",
    ]  # no macro-F without thresholds
    assert "some@1 not tuned" in report["note"]


def test_what_cannot_be_compared_is_refused(home: Path, tmp_path: Path) -> None:
    some, file = contender(home, "some"), home / "test.jsonl"
    with pytest.raises(BadParameter, match="resamples: expected 100 to 100000, found 9"):
        compare(some, some, CompareRequest(file, resamples=9))
    store = Store(tmp_path / "store")
    texts = write(tmp_path / "texts.jsonl", [("a b c d", []), ("b c a d e", [])])
    parameters = ("task=text", "dim=4", "epochs=1")
    train_and_publish(
        store, "words", TrainRequest(trainer="huffman-tree", data=texts, parameters=parameters)
    )
    words = Contender(store.open("words"), None)
    with pytest.raises(
        BadData, match=r"expected two models of next words.*found words@1 and some@1"
    ):
        compare(words, some, CompareRequest(file))


def test_the_command_says_which_is_better(run_here: Run, home: Path) -> None:
    asked = ("compare", "noise", "some@1", "--data", home / "test.jsonl")
    report = json.loads(run_here(*asked, "--json", "--seed", 3, store=home / "store").stdout)
    assert (report["a"], report["b"], report["rows"], report["seed"]) == (
        "noise@1",
        "some@1",
        36,
        3,
    )
    assert report["metrics"]["P@1"].keys() == {"a", "b", "difference", "low", "high", "p", "real"}
    done = run_here(*asked, store=home / "store")
    assert "some@1 is better" in done.stdout and "not tuned" in done.stdout
    same = run_here("compare", "some", "some@1", *asked[3:], store=home / "store").stdout
    assert "no difference" in same and "may be chance" not in same
    done = run_here(*asked, "--resamples", 1, store=home / "store")
    assert done.returncode == 2 and "100" in done.stderr
