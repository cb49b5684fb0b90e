"""Folders that are no sentence encoder: each is refused by a sentence that names it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.helpers.tiny_encoders import (
    DIMS,
    OUTPUT,
    graph_of,
    mixing_nodes,
    weights,
    write_encoder,
)

from xylem.base import BadModel, BadParameter
from xylem.extras.encoder import folder as folder_module
from xylem.extras.encoder.encoder import read_encoder


def external(location: str) -> bytes:
    """A graph whose weights are in another file."""
    tensor = TensorProto(name="words", data_type=TensorProto.FLOAT, dims=weights().shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return bytes(graph_of(tensors=(tensor,)).SerializeToString())


def overlong(content: bytes) -> bytes:
    """The same message with a length in two bytes where one would do, inside others of unknown
    length: enough for the search that comes before any reader.
    """
    return content.replace(b"\x0a\x08location", b"\x0a\x88\x00location")


def cyclic() -> bytes:
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["tokens"]),
        helper.make_node("Add", ["tokens", "later"], [OUTPUT]),
        helper.make_node("Relu", [OUTPUT], ["later"]),
    ]
    return bytes(graph_of(nodes).SerializeToString())


def custom() -> bytes:
    nodes = [helper.make_node("Run", ["words", "input_ids"], [OUTPUT], domain="other.ops")]
    return bytes(graph_of(nodes, domain="other.ops").SerializeToString())


GRAPHS = {
    "truncated": (
        lambda: graph_of().SerializeToString()[:-20],
        "model.onnx: expected a graph, found INVALID_PROTOBUF",
    ),
    "empty": (lambda: b"", "model.onnx: expected a graph, found INVALID_ARGUMENT"),
    "of another format": (lambda: b"PK\x03\x04" * 9, "model.onnx: expected a graph, found"),
    "cyclic": (cyclic, "model.onnx: expected a graph, found .*the graph is not acyclic"),
    "with an operator of others": (custom, "found .*other.ops:Run.* is not a registered function"),
    "with external data": (
        lambda: external("words.bin"),
        "model.onnx: expected all weights in it, found external data",
    ),
    "with external data, oddly written": (
        lambda: overlong(external("words.bin")),
        "model.onnx: expected all weights in it, found external data",
    ),
    "with other inputs": (
        lambda: graph_of(inputs=("input_ids", "pixel_values")).SerializeToString(),
        r"expected input_ids, .* found input_ids of tensor\(int64\), pixel_values of tensor",
    ),
    "without input_ids": (
        lambda: graph_of(
            [helper.make_node("Gather", ["words", "attention_mask"], [OUTPUT])],
            inputs=("attention_mask",),
        ).SerializeToString(),
        r"expected input_ids, .* found attention_mask of tensor\(int64\)",
    ),
    "without a vector for each token": (
        lambda: graph_of(
            [*mixing_nodes()[:1], helper.make_node("ReduceMax", ["tokens"], ["top"], keepdims=0)],
            output="top",
            shape=(),
        ).SerializeToString(),
        r"expected an output of 3 dimensions for pooling by mean, found top\[\]",
    ),
    "with too few words": (
        lambda: graph_of(
            tensors=(numpy_helper.from_array(weights()[:2], "words"),)
        ).SerializeToString(),
        "model.onnx: with 128 tokens: expected an encoder that encodes the text, found",
    ),
    "with numbers that are not finite": (
        lambda: graph_of(
            tensors=(numpy_helper.from_array(np.full((9, DIMS), np.nan, np.float32), "words"),)
        ).SerializeToString(),
        "model.onnx: with 128 tokens: expected an encoder that gives finite numbers",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_that_cannot_be_run_are_refused(name: str, tmp_path: Path) -> None:
    make, fault = GRAPHS[name]
    folder = write_encoder(tmp_path / "folder", bytes(make()))
    with pytest.raises(BadModel, match=fault) as refused:
        read_encoder(folder)
    assert str(refused.value).startswith(f"{folder}: ")
    assert len(str(refused.value).splitlines()) == 1


def test_external_data_in_the_working_directory_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights().tofile("words.bin")
    folder = write_encoder(tmp_path / "folder", external("words.bin"))
    with pytest.raises(BadModel, match="found external data"):
        read_encoder(folder)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "expected a sentence encoder with model.onnx or onnx/model.onnx"),
    "no graph": (lambda folder: shutil.rmtree(folder / "onnx"), "with model.onnx or onnx/model.on"),
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").unlink(),
        "expected a sentence encoder with tokenizer.json, found none",
    ),
    "a pipe": (
        lambda folder: ((folder / "tokenizer.json").unlink(), os.mkfifo(folder / "tokenizer.json")),
        "expected a sentence encoder with tokenizer.json, found none",
    ),
    "another tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text('{"model": {}}'),
        "tokenizer.json: expected a tokenizer, found",
    ),
    "no pooling": (
        lambda folder: shutil.rmtree(folder / "1_Pooling"),
        "1_Pooling/config.json: expected it, or --pooling mean or cls, or an output sentence_emb",
    ),
    "pooling that is no JSON": (
        lambda folder: (folder / "1_Pooling" / "config.json").write_text("mean"),
        "1_Pooling/config.json: expected a JSON object, found another content",
    ),
    "another pooling": (
        lambda folder: (folder / "1_Pooling" / "config.json").write_text(
            json.dumps({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False})
        ),
        "1_Pooling/config.json: expected pooling by mean or cls, found max_tokens",
    ),
    "another pooling, by name": (
        lambda folder: (folder / "1_Pooling" / "config.json").write_text(
            json.dumps({"pooling_mode": "lasttoken"})
        ),
        "1_Pooling/config.json: expected pooling by mean or cls, found lasttoken",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_folders_that_are_no_encoder_are_refused(name: str, tmp_path: Path) -> None:
    damage, fault = DAMAGES[name]
    folder = write_encoder(tmp_path / "folder")
    damage(folder)
    with pytest.raises(BadModel, match=fault) as refused:
        read_encoder(folder)
    assert str(refused.value).startswith(str(folder))


@pytest.mark.parametrize("name", ["cls", "mean"])
def test_pooling_may_be_named_as_newer_exporters_do(name: str, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": name}))
    assert read_encoder(folder)[1].pooling == name
    assert read_encoder(folder, "cls")[1].pooling == "cls"


def test_another_word_for_the_pooling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="pooling: expected mean, cls, output, found 'sum'"):
        read_encoder(write_encoder(tmp_path), "sum")


def test_a_file_may_have_so_many_bytes_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_encoder(tmp_path)
    file = folder / "onnx" / "model.onnx"
    n_bytes = file.stat().st_size
    monkeypatch.setattr(folder_module, "FILE_BYTES_MAX", max(n_bytes, 4096))
    read_encoder(folder)
    with file.open("r+b") as out:
        out.truncate(max(n_bytes, 4096) + 1)
    with pytest.raises(BadModel, match=rf"{file}: expected at most [\d,]+ bytes, found [\d,]+"):
        read_encoder(folder)
