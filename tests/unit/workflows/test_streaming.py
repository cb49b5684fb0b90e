"""Training on a file that is read again for each pass: the same model,
and every way a file can be wrong.
"""

import gzip
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import refused
from tests.oracles.problems import dense_labels, dense_rows, random_labels, random_rows

from xylem.base import no_progress
from xylem.base.errors import BadData, BadParameter
from xylem.base.executors.local import Crew
from xylem.datasets import read_dataset, stream
from xylem.datasets.data_stream import DataStream
from xylem.trainers import TrainingSet, windows
from xylem.trainers.source import count
from xylem.workflows.file_source import FileSource
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.origin import ORIGIN, REPORT, read_origin, read_report
from xylem_store.store import Store

SGD = ("solver=sgd", "epochs=3", "arity=4", "leaf_size=4", "prune=0")
NAMED = '{"features": {"a": 3, "b": 4}, "labels": ["x"]}\n{"features": {}, "labels": []}\n'


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks in small files, and more windows than one."""
    monkeypatch.setattr(stream, "BLOCK_BYTES", 700)
    monkeypatch.setattr(windows, "WINDOW_ENTRIES_MAX", 400)


def _lines(suffix: str) -> str:
    """150 rows of any format, some without labels or features; label 3 is on none."""
    rng = np.random.default_rng(4)
    x = dense_rows(random_rows(rng, 150, 20, 0.2)).astype(np.float32)
    y = dense_labels(random_labels(rng, 150, 12, 0.3))
    y[:, 3] = False
    y[7], x[9] = False, 0
    lines = ["150 20 12"] if suffix == ".txt" else []
    for values, carried in zip(x, y, strict=True):
        features, labels = np.flatnonzero(values), np.flatnonzero(carried)
        if suffix == ".jsonl":  # labels are first seen in another order than sorted
            names = [f"label {97 - label}" for label in labels]
            row = {"text": " ".join(f"word{feature}" for feature in features), "labels": names}
            lines.append(json.dumps(row))
        else:
            pairs = " ".join(f"{feature}:{values[feature]}" for feature in features)
            lines.append(f"{','.join(map(str, labels))} {pairs}")
    return "\n".join(lines) + "\n"


def _write(directory: Path, suffix: str) -> Path:
    path = directory / f"rows{suffix}"
    content = _lines(suffix.removesuffix(".gz")).encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    return path


def _source(path: Path, **features: Any) -> FileSource:
    return FileSource(DataStream(path), features, no_progress, crew=Crew(3))


@pytest.mark.parametrize("suffix", [".txt", ".svm.gz", ".jsonl", ".jsonl.gz"])
def test_a_stream_has_the_rows_of_the_file(suffix: str, tmp_path: Path) -> None:
    path = _write(tmp_path, suffix)
    whole = read_dataset(path)
    source = _source(path, norm="none", **({"n_features": 1024} if ".jsonl" in suffix else {}))
    census = source.census
    parts = list(source.parts())
    assert len(parts) > 3
    rows = whole.rows if whole.rows is not None else source.featurizer.transform_texts(whole.texts)
    found = np.vstack([dense_rows(part.rows)[:, : rows.n_features] for part in parts])
    np.testing.assert_array_equal(found, dense_rows(rows))
    labels = np.vstack([dense_labels(part.labels) for part in parts])
    np.testing.assert_array_equal(labels, dense_labels(whole.labels))
    assert (source.stream.sha256, source.stream.label_names) == (whole.sha256, whole.label_names)
    for a, b in zip(census, count(TrainingSet(rows, whole.labels)), strict=True):
        np.testing.assert_array_equal(a, b)


HASHED = ["features.kind=hashing", "features.n_features=1024"]
PLT = (*SGD, "trees=2")
SOFTMAX = ("epochs=3", "dim=5", "arity=3")
TREES = [
    *(
        ("huffman-tree", f"tree={tree}")
        for tree in ("huffman", "random", "kmeans", "clustered", "flat")
    ),
    *(("learned-tree", f"start={tree}") for tree in ("huffman", "kmeans", "random")),
    ("learned-tree", "statistics=paths"),
    ("learned-tree", "optimiser=adagrad"),
]


def _same(tmp_path: Path, name: str, path: Path, parameters: list[str]) -> None:
    """Train in memory and twice on the stream, and check that all bits are the same."""
    store = Store(tmp_path / "store")
    for is_stream, threads in ((False, 1), (True, 2), (True, 1)):
        request = TrainRequest(
            trainer=name,
            data=path,
            parameters=parameters,
            seed=9,
            threads=threads,
            stream=is_stream,
        )
        train_and_publish(store, "m", request)
    memory = store.open("m", 1)
    for version in (2, 3):
        streamed = store.open("m", version)
        assert {*memory.arrays, ORIGIN} == streamed.arrays.keys()  # which says what came before it
        origins = [read_origin(model.arrays).get("data") for model in (memory, streamed)]
        assert origins[0] == origins[1]
        for array in memory.arrays.keys() - {REPORT, ORIGIN}:
            assert memory.arrays[array].tobytes() == streamed.arrays[array].tobytes(), array
        # where rows in memory go in a forest is of no stream
        told, expected = (
            {**read_report(model.arrays), "forest": 0} for model in (streamed, memory)
        )
        assert told == expected
        assert memory.manifest.data == streamed.manifest.data
        assert memory.manifest.features == streamed.manifest.features


@pytest.mark.parametrize(
    ("name", "suffix", "parameters"),
    [
        *(("plt", ".svm", [*PLT, f"tree={tree}"]) for tree in ("kmeans", "random", "huffman")),
        *(
            ("plt", ".jsonl", [*PLT, *HASHED, f"tree={tree}"])
            for tree in ("kmeans", "random", "huffman")
        ),
        *((name, ".svm", [*SOFTMAX, tree]) for name, tree in TREES),
        *((name, ".jsonl.gz", [*SOFTMAX, *HASHED]) for name in ("huffman-tree", "learned-tree")),
    ],
)
def test_a_stream_trains_the_same_model_as_memory(
    name: str, suffix: str, parameters: Any, tmp_path: Path
) -> None:
    path = _write(tmp_path, suffix)
    if suffix == ".svm":
        assert _source(path).census.n_entries > 2 * windows.WINDOW_ENTRIES_MAX
    _same(tmp_path, name, path, parameters)


@pytest.mark.parametrize(
    ("suffix", "parameters"),
    [
        (".svm", ["idf=no"]),
        (".svm.gz", ["idf=yes", "optimiser=nag"]),
        (".jsonl", [*HASHED, "features.norm=none"]),
    ],
)
def test_decision_trees_of_a_stream_are_those_of_memory(
    suffix: str, parameters: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, real = [], windows.mapped

    def mapped(n: int, dtype: Any) -> Any:
        made.append(n)
        return real(n, dtype)

    monkeypatch.setattr(windows, "mapped", mapped)
    monkeypatch.setattr("xylem.trainers.ldsm.trainer.mapped", mapped)
    _same(tmp_path, "ldsm", _write(tmp_path, suffix), ["trees=3", "epochs=2", *parameters])
    assert len(made) >= 2 * (5 + 2), "the rows, and for each thread a copy of a node's"


@pytest.mark.parametrize(
    ("name", "tree"),
    [*TREES[:4], ("learned-tree", "start=random"), ("learned-tree", "transition=full")],
)
def test_next_words_of_a_stream_are_those_of_memory(name: str, tree: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    path = tmp_path / "texts.jsonl"
    texts = [
        " ".join(f"w{word}" for word in rng.geometric(0.1, rng.integers(0, 12))) for _ in range(60)
    ]
    late = [*texts, "only at the end", "only at the end"]
    path.write_text("\n".join(json.dumps({"text": text}) for text in late) + "\n\n")
    _same(tmp_path, name, path, ["task=text", *SOFTMAX, tree])


def _appending(path: Path, more: str) -> Callable[[str, int, int], None]:
    """What appends to a file when its first window begins."""

    def append(phase: str, done: int, _: int) -> None:
        if (phase, done) == (windows.STAGE, 0):
            with path.open("a") as file:
                file.write(more)

    return append


def test_texts_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    path, store = tmp_path / "texts.jsonl", Store(tmp_path / "store")
    path.write_text('{"text": "one two one two"}\n' * 50)
    request = TrainRequest(trainer="huffman-tree", data=path, parameters=["task=text"], stream=True)
    with pytest.raises(BadData, match="expected the bytes that were read at first, found others"):
        train_and_publish(store, "m", request, _appending(path, '{"text": "three"}\n'))
    for content, fault in (
        ("\n", "expected at least one row, found none"),
        ('{"text": ""}\n', "expected texts with words, found none"),
    ):
        path.write_text(content)
        with refused(BadData, fault):
            train_and_publish(store, "m", request)
    assert store.models() == []


def test_named_features_stream_hashed_with_a_names_file(tmp_path: Path) -> None:
    path = tmp_path / "named.jsonl"
    path.write_text(NAMED)
    source = _source(path, n_features=256, signed=False)
    assert source.census.n_nonzeros == 2
    (part,) = source.parts()
    np.testing.assert_allclose(np.sort(part.rows.values), [0.6, 0.8])
    names = tmp_path / "names.txt"
    names.write_text("".join(f"name {i}\n" for i in range(14)))
    streamed = DataStream(_write(tmp_path, ".svm"), names)
    assert len(FileSource(streamed, {}, no_progress).census.label_rows) == 14
    assert streamed.label_names[13] == "name 13"


def _refused(directory: Path, path: Path, *parameters: str, trainer: str = "plt") -> str:
    """Return the message with which training on the stream is refused; nothing is published."""
    store = Store(directory / "store")
    request = TrainRequest(trainer=trainer, data=path, parameters=parameters, stream=True)
    with pytest.raises((BadData, BadParameter)) as told:
        train_and_publish(store, "m", request)
    assert store.models() == []
    return str(told.value)


@pytest.mark.parametrize(
    ("name", "content", "trainer", "parameters", "fault"),
    [
        (
            "none.svm",
            None,
            "plt",
            ["solver=batch"],
            "solver: expected sgd",
        ),  # said before the file is read
        (
            "rows.svm",
            _lines(".svm"),
            "ldsm",
            ["rerank=yes"],
            "rerank: expected no to train on a stream",
        ),
        ("rows.jsonl", _lines(".jsonl"), "plt", [*SGD, "features.kind=tfidf"], "expected hashing"),
        ("named.jsonl", NAMED, "plt", [*SGD, "features.kind=named"], "expected hashing"),
        ("rows.X.npz", None, "plt", SGD, ".npz"),
    ],
)
def test_what_does_not_stream_is_refused(
    name: str, content: Any, trainer: str, parameters: Any, fault: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    assert fault in _refused(tmp_path, tmp_path / name, *parameters, trainer=trainer)


def test_a_temporary_directory_without_room_is_told(tmp_path: Path) -> None:
    path = _write(tmp_path, ".svm")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        found = _refused(tmp_path, path, "trees=1", trainer="ldsm")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "TMPDIR: expected room for" in found and "File too large" in found


FAULTS = {
    "cut.txt": (_lines(".txt")[:4000].rpartition("\n")[0] + "\n", "rows as the header says"),
    "cut.jsonl": (_lines(".jsonl")[:4000], "cut.jsonl:"),
    "cut.svm.gz": (gzip.compress(_lines(".svm").encode())[:-20], "expected whole gzip data"),
    "nan.svm": (_lines(".svm") + "1 0:nan\n", "nan.svm:151: expected a value that is finite"),
    "inf.svm": (_lines(".svm") + "1 0:1e39\n", "finite in 32 bits"),
    "word.svm": (_lines(".svm") + "1 0:one\n", "word.svm:151: expected a decimal number"),
    "empty.jsonl": ("\n", "expected at least one row, found none"),
    "empty.txt": ("", "found an empty file"),
}


@pytest.mark.parametrize(("trainer", "parameters"), [("plt", SGD), ("ldsm", ("trees=1",))])
@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_file_is_refused(
    name: str, trainer: str, parameters: tuple[str, ...], tmp_path: Path
) -> None:
    content, message = FAULTS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in _refused(tmp_path, tmp_path / name, *parameters, trainer=trainer)


@pytest.mark.parametrize(
    ("suffix", "more"), [(".svm", "1 0:1\n"), (".jsonl", '{"text": "word1", "labels": ["new"]}\n')]
)
def test_a_file_that_changes_while_it_is_read_is_refused(
    suffix: str, more: str, tmp_path: Path
) -> None:
    path, store = _write(tmp_path, suffix), Store(tmp_path / "store")
    for trainer, parameters in (("plt", SGD), ("ldsm", ("trees=1",))):
        request = TrainRequest(trainer=trainer, data=path, parameters=parameters, stream=True)
        with pytest.raises(BadData, match="read at first, found"):
            train_and_publish(store, "m", request, _appending(path, more))
        assert store.models() == []
