"""Models of colours, and a file to measure them on."""

from pathlib import Path

import pytest
from tests.helpers.colour_texts import COLOURS, WORDS, write

from xylem.workflows.request import TrainRequest
from xylem.workflows.train import train_and_publish
from xylem_store.store import Store
from xylem_store.version import Model


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three models: `some` knows three colours,
    `others` one and white, `noise` is wrong.
    """
    folder = tmp_path_factory.mktemp("evaluated")
    every = [(colour, i) for colour in COLOURS for i in range(9)]
    for name, rows in {
        "some": [(f"{colour} {i}x", [colour]) for colour, i in every if colour in WORDS],
        "others": [(f"{colour} {i}x", [colour]) for colour, i in every if colour in COLOURS[2:]],
        "noise": [(f"{COLOURS[i % 3]} {i}x", [COLOURS[(i * 7 // 3) % 3]]) for i in range(27)],
    }.items():
        request = TrainRequest(trainer="ovr", data=write(folder / f"{name}.jsonl", rows))
        train_and_publish(Store(folder / "store"), name, request)
    also_green = [{colour, "green"} if i % 5 == 0 else {colour} for colour, i in every]
    texts = [f"{colour} {i}x" for colour, i in every]
    write(folder / "test.jsonl", list(zip(texts, map(sorted, also_green), strict=True)))
    return folder


@pytest.fixture(scope="module")
def model(home: Path) -> Model:
    """A version that knows each of three words as the label of that name."""
    return Store(home / "store").open("some")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose first word is their label, but for every ninth; a fifth label is on two rows."""
    rows = []
    for i in range(80):
        word = "other" if i % 9 == 0 else COLOURS[i % 4]
        rows.append((f"{word} thing{i % 7}", [COLOURS[i % 4], *(["rare"] if i < 2 else [])]))
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", rows)
