"""Sentence encoders: their vectors are those of a slow reading of the graph, whatever else runs."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tests.helpers.tiny_encoders import (
    DIMS,
    INPUTS,
    WORDS,
    graph_of,
    integer_encoder,
    real_encoder,
    write_encoder,
)
from tokenizers import Tokenizer

from xylem.base import BadInstance
from xylem.extras.encoder import encoder as encoder_module
from xylem.extras.encoder.encoder import Encoder, open_encoder, read_encoder
from xylem_store import EncoderArrays, read_json_array

TEXTS = ("red thing", "a green thing", "blue", "unknown words here", "red green blue " * 9)


def read_slowly(folder: Path, text: str, pooling: str = "mean") -> NDArray[np.float32]:
    """The vector of a text by the reference implementation of ONNX, in plain Python."""
    (file,) = folder.rglob("model.onnx")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokens = tokenizer.encode(text)
    feeds = dict(zip(INPUTS, (tokens.ids, tokens.attention_mask, tokens.type_ids), strict=True))
    model = onnx.load(file)
    names = {each.name for each in model.graph.input}
    arrays = {name: np.array([values]) for name, values in feeds.items() if name in names}
    hidden = ReferenceEvaluator(model).run(None, arrays)[0][0].astype(np.float64)
    vector = hidden.mean(0) if pooling == "mean" else hidden[0] if pooling == "cls" else hidden
    unit: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_a_slow_reading(tmp_path: Path, pooling: str) -> None:
    folder = write_encoder(tmp_path, pooling="mean" if pooling == "mean" else "cls_token")
    arrays, encoder = read_encoder(folder)
    assert (encoder.dims, encoder.pooling) == (DIMS, pooling)
    assert read_json_array(arrays.by_name, "encoder/config") == {"dims": DIMS, "pooling": pooling}
    for text in TEXTS:
        vector = encoder.encode(text)
        assert vector.dtype == np.float32 and abs(float(vector @ vector) - 1) < 1e-6
        np.testing.assert_allclose(vector, read_slowly(folder, text, pooling), atol=1e-6)


@pytest.mark.parametrize("inputs", [INPUTS[:1], INPUTS[:2], INPUTS])
def test_a_graph_gets_the_inputs_that_it_has(tmp_path: Path, inputs: tuple[str, ...]) -> None:
    folder = write_encoder(tmp_path, graph_of(inputs=inputs))
    vector = read_encoder(folder)[1].encode("red thing")
    np.testing.assert_allclose(vector, read_slowly(folder, "red thing"), atol=1e-6)


def test_a_graphs_own_vector_of_a_text_is_taken_where_it_has_one(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["tokens"]),
        helper.make_node("ReduceMax", ["tokens"], ["sentence_embedding"], axes=[1], keepdims=0),
    ]
    model = graph_of(nodes, output="sentence_embedding", shape=(1, DIMS))
    folder = write_encoder(tmp_path, model, pooling=None)
    _, encoder = read_encoder(folder)
    assert encoder.pooling == "output"
    np.testing.assert_allclose(encoder.encode("red"), read_slowly(folder, "red", "output"), 1e-6)


def test_a_prefix_is_encoded_before_the_text(tmp_path: Path) -> None:
    arrays, encoder = read_encoder(write_encoder(tmp_path))
    with_prefix = Encoder(arrays, prefix="query ")
    assert (with_prefix.encode("red") == encoder.encode("query red")).all()


def test_texts_are_cut_after_the_most_tokens(tmp_path: Path) -> None:
    arrays, encoder = read_encoder(write_encoder(tmp_path))
    short = Encoder(arrays, max_tokens=2)
    assert (short.encode("red thing blue") == encoder.encode("red thing")).all()
    assert (encoder.encode("red thing blue") != encoder.encode("red thing")).any()


def test_a_text_without_tokens_is_zeros(tmp_path: Path) -> None:
    _, encoder = read_encoder(write_encoder(tmp_path))
    assert encoder.encode("").tolist() == [0.0] * DIMS


def test_versions_with_the_same_encoder_share_one(tmp_path: Path) -> None:
    arrays, _ = read_encoder(write_encoder(tmp_path))
    copies = EncoderArrays(*(array.copy() for array in arrays))
    encoder = open_encoder(arrays)
    assert open_encoder(copies) is encoder
    assert open_encoder(copies, prefix="a ") is not encoder
    del encoder
    gc.collect()
    assert not encoder_module._open_encoders


def test_a_graph_that_fails_for_a_text_is_reported(tmp_path: Path) -> None:
    """The embedding of the last word of the vocabulary is missing."""
    missing = write_encoder(tmp_path / "missing", graph_of(tensors=(_words(len(WORDS) - 1),)))
    encoder = read_encoder(missing)[1]
    with pytest.raises(BadInstance, match=r"encodes the text, found .*Gather.*out of data bounds"):
        encoder.encode("a query")
    infinite = write_encoder(tmp_path / "infinite", graph_of(tensors=(_words(len(WORDS), np.inf),)))
    with pytest.raises(BadInstance, match="expected an encoder that gives finite numbers"):
        read_encoder(infinite)[1].encode("query")


def _words(n_words: int, last: float = 0.5) -> onnx.TensorProto:
    values = np.full((n_words, DIMS), 0.25, np.float32)
    values[-1] = last
    return onnx.numpy_helper.from_array(values, "words")


def test_real_weights_give_the_vectors_of_a_slow_reading(tmp_path: Path) -> None:
    folder = real_encoder(tmp_path / "minilm")
    _, encoder = read_encoder(folder)
    assert (encoder.dims, encoder.pooling) == (384, "mean")
    for text in ("a fast text editor for the terminal", "Übergrößenträger im Zug"):
        np.testing.assert_allclose(encoder.encode(text), read_slowly(folder, text), atol=1e-5)
    near, other = encoder.encode("an editor of plain text"), encoder.encode("folding of proteins")
    text_vector = encoder.encode("a fast text editor")
    assert text_vector @ near > 0.6 > 0.3 > text_vector @ other


@pytest.mark.parametrize("write", [real_encoder, integer_encoder])
def test_what_else_is_encoded_changes_no_bit(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    _, encoder = read_encoder(write(tmp_path / "minilm"))
    texts = [f"{'the colour of a long sentence ' * (i % 7)} number {i}" for i in range(40)]
    alone = [encoder.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(encoder.encode, texts * 3))
    for i, vector in enumerate(together):
        assert (vector == alone[i % len(texts)]).all(), texts[i % len(texts)]


def test_a_graph_of_integers_means_nearly_the_same(tmp_path: Path) -> None:
    _, integers = read_encoder(integer_encoder(tmp_path))
    _, floats = read_encoder(tmp_path / "floats")
    for text in ("a fast text editor for the terminal", "Übergrößenträger im Zug", "folding"):
        assert integers.encode(text) @ floats.encode(text) > 0.95, text
