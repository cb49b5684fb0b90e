"""Members of words, of given vectors and of an encoder in one version."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.tiny_encoders import write_encoder

import xylem
from xylem.base import BadInput
from xylem.base.columns import DEFAULT_COLUMNS
from xylem.engine.features.vectors import TextEncoder
from xylem.extras.encoder.encoder import Encoder, read_encoder
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.workflows.part_training import part_trainer
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store import Store

COLOURS = ("red", "green", "blue")
WORDS = ("words", 1)
GIVEN = ("given", 1)
ENCODED = ("encoded", 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("members")
    draw = np.random.default_rng(1)
    for name, n in (("train", 200), ("later", 90)):
        colours = draw.integers(3, size=n)
        rows = [
            f'{{"text": "a {COLOURS[colour]} {name} n{i}", "labels": ["{COLOURS[colour]}"]}}\n'
            for i, colour in enumerate(colours)
        ]
        (home / f"{name}.jsonl").write_text("".join(rows))
        clues = np.eye(3, 5)[colours] + draw.normal(size=(n, 5))
        np.save(home / f"{name}.npy", clues.astype(np.float32))
    store = Store(home / "store")
    store.encoders.add("tiny", read_encoder(write_encoder(home / "tiny"))[0])
    train = {"trainer": "label-tree", "data": home / "train.jsonl"}
    train_and_publish(store, "words", TrainRequest(**train))
    train_and_publish(store, "given", TrainRequest(**train, columns=beside(home, "train")))
    encoder = ("features.encoder=tiny", "vectors.dims=2", "vectors.prefix=query ")
    train_and_publish(store, "encoded", TrainRequest(**train, parameters=encoder))
    return home


def beside(home: Path, *names: str) -> Any:
    files = [home / f"{name}.jsonl" for name in names]
    return DEFAULT_COLUMNS.with_vectors([file.with_suffix(".npy") for file in files], *files)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts whose vectors an encoder did not remember."""
    texts: list[str] = []
    encode = Encoder.encode

    def note(self: Encoder, text: str) -> Any:
        texts.extend([text] if self.dims and text not in self.vectors else [])
        return encode(self, text)

    monkeypatch.setattr(Encoder, "encode", note)
    return texts


def combined(home: Path, *members: tuple[str, int], data: str = "later", **options: Any) -> Any:
    columns = options.pop("columns", None) or beside(home, data)
    request = CombineRequest(members, home / f"{data}.jsonl", columns=columns, **options)
    return combine_and_publish(Store(home / "store"), "both", request)


def test_each_member_gets_what_it_takes(home: Path) -> None:
    report = combined(home, WORDS, GIVEN, ENCODED)
    assert report["combined"]["P@1"] > 90 and not report["warnings"]
    model = xylem.load(home / "store", "both")
    vectors = np.load(home / "later.npy")[:1]
    assert model.predict(["a red thing"], vectors=vectors)[0][0].label in COLOURS
    with pytest.raises(BadInput, match=r"a vector of 5 numbers, or ids .* found no vector"):
        model.predict(["a red thing"])


def test_near_rows_of_a_member_with_vectors(home: Path) -> None:
    files = beside(home, "later", "train")
    assert combined(home, GIVEN, WORDS, columns=files, rerank=home / "train.jsonl")["rerank"]


def test_folds_train_members_as_they_were_trained(home: Path, encoded: list[str]) -> None:
    report = combined(
        home, WORDS, GIVEN, ENCODED, data="train", trainer_of=part_trainer, beam_width=3
    )
    assert report["rows"] == 200 and report["members"].keys() == {"words@1", "given@1", "encoded@1"}
    assert not encoded, "the store has the vectors of the training"


def test_members_without_vectors_refuse_them(home: Path) -> None:
    with pytest.raises(BadInput, match=r"ids and values, which .* found a vector of 5 numbers"):
        combined(home, WORDS)
    with pytest.raises(BadInput, match="found no vector"):
        combined(home, GIVEN, columns=DEFAULT_COLUMNS)


def test_models_in_python(home: Path, encoded: list[str]) -> None:
    colours = [COLOURS[i % 3] for i in range(120)]
    texts, labels = [f"a {c} n{i}" for i, c in enumerate(colours)], [[c] for c in colours]
    vectors = np.random.default_rng(0).normal(size=(120, 6))
    quiet = {"progress": False, "vectors_dims": 3}
    members = [
        xylem.train(texts, labels, progress=False),
        xylem.train(texts, labels, vectors=vectors, **quiet),
        xylem.train(texts, labels, encoder=home / "tiny", **quiet),
    ]
    encoded.clear()
    rows: dict[str, Any] = {"vectors": vectors, "progress": False, "beam_width": 3}
    both = xylem.combine(members, None, texts, labels, folds=True, **rows)
    assert len(encoded) == 120
    assert both.report["combined"]["rows"] == 120
    assert both.predict(texts[:2], vectors=vectors[:2])
    near = (texts, labels, vectors)
    assert xylem.combine(members[1:2], None, texts, labels, rerank=near, **rows).report["combined"]
    with pytest.raises(BadInput, match="found no vector"):
        xylem.combine(members, None, texts, labels, progress=False)
    with pytest.raises(BadInput, match="vectors: expected 120 rows"):
        xylem.combine(members, None, texts, labels, vectors=vectors[:9], progress=False)
    encoder = TextEncoder("tiny", read_encoder(home / "tiny")[0], "", 128).workspace()
    assert not encoder.vectors, "nothing is remembered afterwards"
