"""The beam width of a combined version is chosen on the rows that its ranker is fitted to."""

import random
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines

from xylem.vocabulary.beams import BEAMS, LOSS_MAX
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.members import BEAM_MAX, proposing_of
from xylem_store.origin import read_report
from xylem_store.store import Store

N_LABELS = 96


def rows(n: int, seed: int) -> list[dict[str, object]]:
    """Return texts with the words of seven labels each: more than a narrow beam can follow."""
    draw = random.Random(seed)
    chosen = [draw.sample(range(N_LABELS), 7) for _ in range(n)]
    return [
        {"text": " ".join(f"word{i}" for i in labels), "labels": [f"l{i}" for i in labels]}
        for labels in chosen
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    home = tmp_path_factory.mktemp("beams")
    write_lines(home / "valid.jsonl", rows(40, 2))
    data = write_lines(home / "train.jsonl", rows(300, 1))
    binary = ("arity=2", "leaf_size=1", "trees=1")
    store = Store(home / "store")
    train_and_publish(
        store, "tree", TrainRequest(trainer="label-tree", data=data, parameters=binary)
    )
    return store


def combine(store: Store, model: str, **options: Any) -> dict[str, Any]:
    request = CombineRequest([("tree", 1)], store.root.parent / "valid.jsonl", **options)
    return combine_and_publish(store, model, request)


def test_the_smallest_beam_that_loses_little_is_chosen(store: Store) -> None:
    told = combine(store, "chosen")
    widest, *tried = told["beams"]
    assert [beam["beam_width"] for beam in (widest, *tried)] == [BEAM_MAX, *BEAMS[: len(tried)]]
    least = widest["f1_at_5"] - LOSS_MAX
    assert [beam["f1_at_5"] >= least for beam in tried] == [False] * (len(tried) - 1) + [True]
    assert len(tried) > 1, "a beam of 3 is enough: these rows do not try anything"
    assert told["beam_width"] == tried[-1]["beam_width"]
    assert told["combined"]["F1@5"] == tried[-1]["f1_at_5"]
    opened = store.open("chosen")
    assert proposing_of(opened.arrays).beam_width == told["beam_width"]
    assert opened.manifest.trainer.parameters["beam_width"] == told["beam_width"]
    assert all(beam["us_per_row"] > 0 for beam in told["beams"])
    assert "us_per_row" not in str(read_report(opened.arrays))  # times differ from run to run


def test_the_same_rows_choose_the_same_and_a_stated_beam_stays(store: Store) -> None:
    first, again = combine(store, "first"), combine(store, "again")
    assert first["beam_width"] == again["beam_width"]
    assert [beam["f1_at_5"] for beam in first["beams"]] == [
        beam["f1_at_5"] for beam in again["beams"]
    ]
    digests = [
        {name: info.sha256 for name, info in store.manifest(model, 1).arrays.items()}
        for model in ("first", "again")
    ]
    assert digests[0] == digests[1]
    stated = combine(store, "stated", beam_width=2)
    assert (stated["beam_width"], stated["beams"]) == (2, [])
    assert proposing_of(store.open("stated").arrays).beam_width == 2
