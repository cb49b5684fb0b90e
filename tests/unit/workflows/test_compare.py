"""Two versions on the same file: by name, whatever their labels are, and as the command tells it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from model_store.names import name_of
from model_store.store import Store
from service.base.errors import BadData, BadParameter
from service.inference.parts import predict_all
from service.inference.predictors import make_predictor
from service.workflows.compare import CompareRequest, Contender, compare
from service.workflows.labelled import no_progress, read_labelled
from service.workflows.train import TrainRequest, train_and_publish
from tests.conftest import Run

COLOURS = ("red", "green", "blue", "white")
LEVEL = np.float32(0.4)


def write(path: Path, rows: list[tuple[str, list[str]]]) -> Path:
    path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three models: `some` knows three colours, `others` one and white, `noise` is wrong."""
    folder = tmp_path_factory.mktemp("compared")
    store = Store(folder / "store")
    for name, colours in (("some", COLOURS[:3]), ("others", COLOURS[2:])):
        rows = [(f"{colour} {i}x", [colour]) for colour in colours for i in range(9)]
        train_and_publish(store, name, TrainRequest("ovr", write(folder / f"{name}.jsonl", rows)))
    rows = [(f"{COLOURS[i % 3]} {i}x", [COLOURS[(i * 7 // 3) % 3]]) for i in range(27)]
    train_and_publish(store, "noise", TrainRequest("ovr", write(folder / "noise.jsonl", rows)))
    texts = [
        (f"{colour} {i}x", [colour, *(["green"] if i % 5 == 0 else [])])
        for colour in COLOURS
        for i in range(9)
    ]
    write(folder / "test.jsonl", [(text, sorted(set(labels))) for text, labels in texts])
    return folder


def contender(home: Path, name: str, *, tuned: bool = True) -> Contender:
    model = Store(home / "store").open(name)
    return Contender(model, np.full(model.labels.n_names, LEVEL) if tuned else None)


def decisions(side: Contender, data: Path) -> list[set[str]]:
    """The names of the labels that reach the threshold, row by row."""
    predictor = make_predictor(side.model)
    rows = read_labelled(side.model, data, no_progress).rows
    ptr, labels = predict_all(predictor, rows, float(LEVEL), 1, lambda done: None)
    names = [name_of(side.model.labels, label) for label in labels.tolist()]
    return [set(names[ptr[i] : ptr[i + 1]]) for i in range(len(ptr) - 1)]


def test_labels_are_matched_by_name(home: Path) -> None:
    data, sides = home / "test.jsonl", (contender(home, "some"), contender(home, "others"))
    report = compare(*sides, CompareRequest(data, resamples=100))
    assert report["labels"] == {"both": 1, "only_a": 2, "only_b": 1, "neither": 0}
    more = write(home / "more.jsonl", [("red", ["black", "red", "white"])])
    assert compare(*sides, CompareRequest(more, resamples=100))["labels"]["neither"] == 1
    true = [set(json.loads(line)["labels"]) for line in data.read_text().splitlines()]
    for key, side in zip("ab", sides, strict=True):
        found, f = decisions(side, data), []
        for colour in COLOURS:
            hits = sum(colour in row and colour in known for row, known in zip(found, true, strict=True))
            marks = sum((colour in row) + (colour in known) for row, known in zip(found, true, strict=True))
            f.append(2 * hits / marks)
        assert report["metrics"]["macro_f"][key] == pytest.approx(100 * np.mean(f))
    turned = compare(*sides[::-1], CompareRequest(data, resamples=100))
    for name, each in report["metrics"].items():
        assert turned["metrics"][name]["difference"] == pytest.approx(-each["difference"])


def test_a_better_model_is_really_better_and_one_like_itself_is_not(home: Path) -> None:
    request = CompareRequest(home / "test.jsonl", resamples=200)
    some = contender(home, "some")
    report = compare(contender(home, "noise"), some, request)
    best = report["metrics"]["P@1"]
    assert best["difference"] > 0 and best["real"] and best["low"] > 0
    assert not any(each["real"] for each in compare(some, some, request)["metrics"].values())
    assert compare(contender(home, "noise"), some, request) == report


def test_without_thresholds_there_is_no_macro_f_and_the_note_says_why(home: Path) -> None:
    sides = contender(home, "some", tuned=False), contender(home, "others")
    report = compare(*sides, CompareRequest(home / "test.jsonl", resamples=100))
    assert list(report["metrics"]) == ["P@1", "P@3", "P@5", "nDCG@5"]
    assert "some@1 not tuned" in report["note"]


def test_what_cannot_be_compared_is_refused(home: Path, tmp_path: Path) -> None:
    some, file = contender(home, "some"), home / "test.jsonl"
    with pytest.raises(BadParameter, match="resamples: expected 100 to 100000, found 9"):
        compare(some, some, CompareRequest(file, resamples=9))
    store = Store(tmp_path / "store")
    texts = write(tmp_path / "texts.jsonl", [("a b c d", []), ("b c a d e", [])])
    parameters = ("task=text", "dim=4", "epochs=1")
    train_and_publish(store, "words", TrainRequest("huffman-tree", texts, parameters=parameters))
    words = Contender(store.open("words"), None)
    with pytest.raises(BadData, match=r"expected two models of next words.*found words@1 and some@1"):
        compare(words, some, CompareRequest(file))


def test_the_command_says_which_is_better(run_here: Run, home: Path) -> None:
    asked = ("compare", "noise", "some@1", "--data", home / "test.jsonl")
    report = json.loads(run_here(*asked, "--json", "--seed", 3, store=home / "store").stdout)
    assert (report["a"], report["b"], report["rows"], report["seed"]) == ("noise@1", "some@1", 36, 3)
    assert report["metrics"]["P@1"].keys() == {"a", "b", "difference", "low", "high", "real"}
    done = run_here(*asked, store=home / "store")
    assert "some@1 is better" in done.stdout and "not tuned" in done.stdout
    same = run_here("compare", "some", "some@1", *asked[3:], store=home / "store").stdout
    assert "no difference" in same and "may be chance" not in same
    done = run_here(*asked, "--resamples", 1, store=home / "store")
    assert done.returncode == 2 and "100" in done.stderr
