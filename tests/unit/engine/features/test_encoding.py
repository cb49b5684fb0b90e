"""Trainings with a sentence encoder of the store: what they encode, keep, say and refuse."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.tiny_encoders import DIMS, graph_of, real_encoder, write_encoder

import xylem
from xylem.base import BadData, BadModel, BadParameter, TableColumns
from xylem.datasets import STDIN
from xylem.engine.features import encoding
from xylem.engine.features.vectors import TextEncoder
from xylem.extras.encoder.encoder import Encoder, read_encoder
from xylem.extras.search.parameter_search import SearchRequest, search
from xylem.workflows.estimate import estimate_size
from xylem.workflows.first_model import make_first_model
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store import read_origin
from xylem_store.errors import EncoderNotFound
from xylem_store.store import Store

COLOURS = ("red", "green", "blue")
ROWS = [
    {"text": f"a {COLOURS[i % 3]} thing n{i % 50}", "labels": [COLOURS[i % 3]]} for i in range(240)
]
PARAMETERS = ("features.encoder=tiny", "vectors.dims=0", "vectors.prefix=query ")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.encoders.add("tiny", read_encoder(write_encoder(tmp_path / "tiny"))[0])
    return store


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return file


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each call of an encoder got."""
    calls: list[int] = []
    run = TextEncoder.run

    def count(self: TextEncoder, texts: list[str], *arguments: object) -> object:
        calls.append(len(texts))
        return run(self, texts, *arguments)

    monkeypatch.setattr(TextEncoder, "run", count)
    return calls


def request(data: Path, *parameters: str, **options: object) -> TrainRequest:
    values = {"trainer": "label-tree", **options}
    return TrainRequest(data=data, parameters=(*PARAMETERS, *parameters), **values)


def test_a_second_training_encodes_nothing(store: Store, data: Path, encoded: list[int]) -> None:
    phases: list[tuple[str, int, int]] = []
    first = request(data, valid=data, threads=2)
    train_and_publish(store, "m", first, lambda *phase: phases.append(phase))
    assert sum(encoded) == len(ROWS), "the validation rows are the same texts"
    assert [phase for phase in phases if phase[0] == "encode"] == [
        ("encode", 128, 240),
        ("encode", 240, 240),
    ]
    train_and_publish(store, "m", request(data, valid=data))
    assert sum(encoded) == len(ROWS)
    first_digest, second_digest = (
        [
            info.sha256
            for name, info in store.manifest("m", n).arrays.items()
            if "origin" not in name
        ]
        for n in (1, 2)
    )
    assert first_digest == second_digest, "whatever the threads"
    train_and_publish(store, "m", request(data, "vectors.max_tokens=9"))
    assert sum(encoded) == 2 * len(ROWS), "with other options texts have other vectors"


def test_a_version_says_what_encoded_it(store: Store, data: Path) -> None:
    train_and_publish(store, "m", request(data))
    model = store.open("m")
    origin = read_origin(model.arrays)
    assert origin["encoder"] == {"name": "tiny", "sha256": store.encoders.info("tiny").digest}
    assert origin["libraries"].keys() == {"onnxruntime", "tokenizers"}
    vectors = {name: v for name, v in model.manifest.features.items() if name.startswith("vectors")}
    assert vectors == {
        "vectors.source": "encoder",
        "vectors.numbers": DIMS,
        "vectors.dims": DIMS,
        "vectors.weight": 0.5,
        "vectors.encoder": "tiny",
        "vectors.prefix": "query ",
        "vectors.max_tokens": 128,
    }
    assert store.encoders.info("tiny").n_versions == 1


def test_vectors_are_those_that_would_be_given(store: Store, data: Path, tmp_path: Path) -> None:
    train_and_publish(store, "m", request(data))
    texts = [str(row["text"]) for row in ROWS]
    encoder = store.encoders.open("tiny")
    vectors = TextEncoder("tiny", encoder, "query ", 128)
    matrix = vectors.run(texts, vectors.workspace())
    given = xylem.train(
        texts, [row["labels"] for row in ROWS], vectors=matrix, vectors_dims=0, progress=False
    )
    published = store.open("m")
    for name, array in given._opened.arrays.items():
        if not name.startswith(("origin", "report")):
            assert (published.arrays[name] == array).all(), name
    model = xylem.load(store.root, "m")
    answers = model.predict(texts[:5])
    assert answers == given.predict(texts[:5], vectors=matrix[:5])
    figures = model.evaluate(texts, [row["labels"] for row in ROWS])
    assert figures["P@1"] == 100.0


def test_a_folder_is_enough_in_python(tmp_path: Path) -> None:
    texts = [str(row["text"]) for row in ROWS]
    labels = [row["labels"] for row in ROWS]
    folder = write_encoder(tmp_path / "tiny")
    model = xylem.train(texts, labels, encoder=folder, vectors_dims=2, progress=False)
    model.save(tmp_path / "store", "m")
    loaded = xylem.load(tmp_path / "store", "m")
    assert loaded.predict(texts[:9]) == model.predict(texts[:9])
    with pytest.raises(BadParameter, match="encoder cannot be used with vectors"):
        xylem.train(texts, labels, encoder=folder, vectors=np.ones((240, 3)), progress=False)
    with pytest.raises(BadParameter, match=r"features.encoder: expected a store that has"):
        xylem.train(texts, labels, features_encoder="tiny", progress=False)


def test_auto_leaves_the_encoder_out_where_words_are_as_good(store: Store, data: Path) -> None:
    train_and_publish(store, "m", request(data, "vectors.weight=auto", valid=data))
    manifest = store.manifest("m", 1)
    assert not any(name.startswith(("encoder", "vectors")) for name in manifest.arrays)


def test_a_first_model_tries_the_encoder(store: Store, data: Path) -> None:
    def nothing(phase: str, done: int, total: int) -> None:
        pass

    columns = request(data).columns
    facts = make_first_model(store, "m", data, columns, 0, 1, nothing, encoder="tiny")
    assert "vectors" in facts["features"] and facts["P@1"] > 90
    with pytest.raises(EncoderNotFound):
        make_first_model(store, "m", data, columns, 0, 1, nothing, encoder="none")


REFUSED: dict[str, tuple[tuple[str, ...], type[Exception], str]] = {
    "another name": (("features.encoder=none",), EncoderNotFound, "found 'none': xylem encoders"),
    "no name": (("features.encoder=",), BadParameter, "expected the name of an encoder"),
    "no tokens": (("features.encoder=tiny", "vectors.max_tokens=7"), BadParameter, "max_tokens"),
    "options alone": (("vectors.prefix=query",), BadParameter, "expected vectors beside the text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_parameters_are_refused(name: str, store: Store, data: Path) -> None:
    parameters, kind, fault = REFUSED[name]
    wrong = TrainRequest(trainer="label-tree", data=data, parameters=parameters)
    with pytest.raises(kind, match=fault):
        train_and_publish(store, "m", wrong)


def test_more_tokens_than_the_graph_has_are_refused(data: Path, tmp_path: Path) -> None:
    """A graph that knows 64 places, as most know 512."""
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["places"]),
        helper.make_node("Gather", ["table", "places"], ["placed"]),
        helper.make_node("Gather", ["words", "input_ids"], ["tokens"]),
        helper.make_node("Add", ["tokens", "placed"], ["last_hidden_state"]),
    ]
    tensors = tuple(
        numpy_helper.from_array(np.array(value), name)
        for name, value in {
            "words": np.ones((7, DIMS), np.float32),
            "table": np.ones((64, DIMS), np.float32),
            "zero": 0,
            "one": 1,
        }.items()
    )
    folder = write_encoder(tmp_path / "places", graph_of(nodes, tensors=tensors))
    with pytest.raises(BadModel, match="with 128 tokens: expected an encoder that encodes the te"):
        read_encoder(folder)


def test_rows_that_are_no_texts_are_refused(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "named.jsonl"
    rows = [{"features": {"x": 1.0}, "labels": ["a"]}, {"features": {"y": 1.0}, "labels": ["b"]}]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(BadData, match=r"expected texts alone for features.encoder, found rows of"):
        train_and_publish(store, "m", request(file))


def test_vectors_beside_the_file_are_refused(store: Store, data: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((240, 3), np.float32))
    both = request(data)
    columns = both.columns.with_vectors([tmp_path / "rows.npy"], data)
    with pytest.raises(BadData, match=r"alone for features.encoder, found vectors beside them"):
        train_and_publish(store, "m", both.model_copy(update={"columns": columns}))


@pytest.mark.parametrize(
    ("trainer", "parameters"), [("label-tree", ()), ("lomtree", ()), ("plt", ("solver=sgd",))]
)
def test_a_stream_is_encoded_once_with_the_bits_of_given_vectors(
    trainer: str,
    parameters: tuple[str, ...],
    store: Store,
    data: Path,
    encoded: list[int],
    tmp_path: Path,
) -> None:
    encoding_request = request(data, *parameters, valid=data, stream=True, trainer=trainer)
    train_and_publish(store, "m", encoding_request)
    assert sum(encoded) == len(ROWS)
    train_and_publish(store, "again", encoding_request)
    assert sum(encoded) == len(ROWS)
    folder = store.root / "encoded"
    assert len(list(folder.rglob("*.npy"))) == 2

    encoder = TextEncoder("tiny", store.encoders.open("tiny"), "query ", 128)
    file = tmp_path / "rows.npy"
    np.save(file, encoder.run([str(row["text"]) for row in ROWS], encoder.workspace()))
    vectors_request = encoding_request.model_copy(
        update={
            "parameters": [*parameters, "vectors.dims=0"],
            "columns": encoding_request.columns.with_vectors([file, file], data, data),
        }
    )
    train_and_publish(store, "given", vectors_request)
    streamed, published = store.open("m"), store.open("given")
    for name, array in published.arrays.items():
        if not name.startswith(("origin", "report")):
            assert (streamed.arrays[name] == array).all(), name
    assert streamed.manifest.metrics == published.manifest.metrics
    assert xylem.load(store.root, "m").predict([str(ROWS[0]["text"])])


@pytest.mark.parametrize("stream", [False, True])
def test_an_estimate_keeps_the_vectors_for_the_training(
    stream: bool, store: Store, data: Path, encoded: list[int]
) -> None:
    trained = request(data, stream=stream)
    assert estimate_size(trained, store=store)["nonzeros_bound"] > 0
    assert sum(encoded) == len(ROWS)
    train_and_publish(store, "m", trained)
    assert sum(encoded) == len(ROWS)


@pytest.mark.parametrize("valid", [False, True])
def test_a_search_encodes_each_text_once(
    valid: bool, store: Store, data: Path, encoded: list[int]
) -> None:
    fixed = (*PARAMETERS, "features.kind=tfidf")
    trainers = ("label-tree", "plt")
    wanted = SearchRequest(
        data, valid=data if valid else None, trainers=trainers, trials=3, fixed=fixed
    )
    best, *_ = trials = search(wanted, store=store)
    assert {trial.trainer for trial in trials} == set(trainers)
    assert best.parameters["features.encoder"] == "tiny"
    train_and_publish(store, "m", wanted.training(best))
    assert sum(encoded) == len(ROWS)
    assert store.manifest("m", 1).features["vectors.encoder"] == "tiny"
    with pytest.raises(BadParameter, match=r"features.encoder: expected a store that has"):
        search(wanted)


def test_a_search_leaves_vectors_out_where_words_are_as_good(
    store: Store, data: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", np.ones((len(ROWS), 3), np.float32))
    file_columns = TableColumns().with_vectors([tmp_path / "rows.npy"], data)
    auto = ("features.kind=tfidf", "vectors.weight=auto")
    for fixed, columns in ((auto, file_columns), ((*PARAMETERS, *auto), TableColumns())):
        (trial,) = search(
            SearchRequest(data, trainers=("label-tree",), trials=1, fixed=fixed, columns=columns),
            store=store,
        )
        assert trial.value > 0


@pytest.mark.parametrize("rerank", [False, True])
@pytest.mark.parametrize("encodes", [False, True])
def test_a_training_leaves_vectors_out_of_all_its_files(
    encodes: bool, rerank: bool, store: Store, data: Path, encoded: list[int], tmp_path: Path
) -> None:
    """Words are as good: the validation file and the folds of a ranker have no vectors, too."""
    np.save(tmp_path / "rows.npy", np.ones((len(ROWS), 3), np.float32))
    file_columns = TableColumns().with_vectors([tmp_path / "rows.npy"] * 2, data, data)
    trained = TrainRequest(
        trainer="label-tree",
        data=data,
        valid=data,
        parameters=[*(PARAMETERS if encodes else ()), "vectors.weight=auto"],
        columns=TableColumns() if encodes else file_columns,
        rerank=rerank,
    )
    phases: list[str] = []
    report = train_and_publish(store, "m", trained, lambda *phase: phases.append(phase[0]))
    assert report.metrics["P@1"] == 100.0 and (report.rerank is not None) == rerank
    assert phases.count("choose weight") == 5, "the folds do not choose again"
    assert "vectors.weight" not in store.manifest("m", 1).features
    assert sum(encoded) == (len(ROWS) if encodes else 0)


def test_folds_of_a_ranker_encode_nothing(
    store: Store, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {row["text"] for row in ROWS}
    new_texts: list[str] = []
    encode = Encoder.encode

    def note(self: Encoder, text: str) -> object:
        if text in texts and text not in self.vectors:
            new_texts.append(text)
        return encode(self, text)

    monkeypatch.setattr(Encoder, "encode", note)
    report = train_and_publish(store, "m", request(data, rerank=True))
    assert report.rerank is not None and len(new_texts) == len(ROWS)


def test_rows_of_weight_0_are_not_encoded_in_a_stream(
    store: Store, data: Path, encoded: list[int]
) -> None:
    weighed = [{**row, "weight": i % 2} for i, row in enumerate(ROWS)]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in weighed))
    columns = TableColumns(weight="weight")
    train_and_publish(store, "m", request(data, stream=True, columns=columns))
    assert sum(encoded) == len(ROWS) / 2


def test_standard_input_is_refused(store: Store) -> None:
    with pytest.raises(BadParameter, match=r"expected a file, whose texts are encoded first, foun"):
        train_and_publish(store, "m", request(STDIN, trainer="lomtree"))


def test_a_stream_takes_a_number_as_weight(store: Store, data: Path) -> None:
    with pytest.raises(BadParameter, match=r"expected a number for a stream, found auto"):
        train_and_publish(store, "m", request(data, "vectors.weight=auto", stream=True))


def test_a_missing_library_is_reported_before_data_are_read(
    store: Store, data: Path, hide_module: Callable[[str], None]
) -> None:
    hide_module("onnxruntime")
    with pytest.raises(BadParameter, match="running sentence encoders needs onnxruntime: pip ins"):
        train_and_publish(store, "m", request(data.with_name("none.jsonl")))


def test_damaged_vectors_are_made_again_and_old_ones_go(
    store: Store, data: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    train_and_publish(store, "m", request(data))
    files = sorted((store.root / "encoded").rglob("*.npy"))
    assert len(files) == 2
    monkeypatch.setattr(encoding, "STORED_BYTES_MAX", max(file.stat().st_size for file in files))
    files[0].write_bytes(files[0].read_bytes()[:50])
    encoded.clear()
    train_and_publish(store, "m", request(data))
    assert len(encoded) == 1
    assert len(list((store.root / "encoded").rglob("*.npy"))) == 1


def test_real_weights_bring_texts_of_other_words_together(tmp_path: Path) -> None:
    """Words that no training row has, but that mean the same."""
    texts = ["a fast text editor", "edit files in the terminal", "plays music and songs"] * 20
    texts += ["an audio player for albums"] * 20
    labels = [["editor"], ["editor"], ["music"]] * 20 + [["music"]] * 20
    model = xylem.train(
        texts,
        labels,
        encoder=real_encoder(tmp_path / "minilm"),
        vectors_dims=0,
        vectors_weight=1.0,
        progress=False,
    )
    best = [
        answer[0].label
        for answer in model.predict(["write documents by keyboard", "listen to tunes"])
    ]
    assert best == ["editor", "music"]
