"""Sentence encoders: a tokenizer, a graph that onnxruntime runs, and pooling; a text, a vector."""

import re
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from xylem.base import BadInstance, BadModel, BadParameter
from xylem.extras.encoder.folder import CONFIG, read_folder
from xylem_store import F32, EncoderArrays, json_array, read_json_array

MAX_TOKENS = 128  # how many tokens of a text are read, unless another number is chosen

DIMS_MAX = 4096  # the longest vector

# The name that exporters give to an output with a vector for the whole text.
SENTENCE = "sentence_embedding"

# The inputs that a graph may have, and the fields of a tokenized text that they take.
_INPUTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}

_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_FLOATS = ("tensor(float)", "tensor(float16)")

# The dimensions of the output that each pooling takes: text, token and number, or text and number.
_RANKS = {"mean": 3, "cls": 3, "output": 2}

# Matches every way to write that weights are in another file.
#
# Each such tensor has an entry whose key, its field 1, is "location". onnxruntime would read a file
# in the working directory, so graphs are searched before it sees them; it has no option for this. A
# graph with an input of a node of that name is refused, too.
_EXTERNAL = re.compile(rb"(\x0a|\x8a\x80*\x00)(\x08|\x88\x80*\x00)location")

# A step of onnxruntime that joins an addition to the normalization behind it.
#
# Its kernel for processors is slower than the two: 64 tokens of a small encoder take 8% longer in
# float32, 20% longer in integers.
_SLOW_FUSION = "SkipLayerNormFusion"

_PROBE = "a "  # a word of one token in tokenizers of most languages


class Encoder:
    """Turns texts into vectors of length 1; any number of threads may share it.

    Each text is encoded alone, on the caller's thread. Batches would be faster, but weights that
    were quantised for a processor are scaled by what stands in a batch: the vector of a text would
    depend on its neighbours.

    dims     the length of a vector
    vectors  of texts that were encoded before, for whoever needs them several times
    """

    def __init__(
        self, arrays: EncoderArrays, prefix: str = "", max_tokens: int = MAX_TOKENS
    ) -> None:
        """Open an encoder, and encode a text of `max_tokens` tokens.

        prefix      what the encoder expects before each text, such as "query: "
        max_tokens  how many tokens of a text are read

        Raises BadModel for a graph or a tokenizer that cannot be used.
        """
        self._prefix = prefix
        self.vectors: dict[str, F32] = {}
        self._tokenizer = _open_tokenizer(arrays.tokenizer.tobytes(), max_tokens)
        self._session = _open_session(arrays.model.tobytes())
        self._inputs = {
            graph_input.name: (_INPUTS[graph_input.name], _INTEGERS[graph_input.type])
            for graph_input in self._session.get_inputs()
        }
        self._output, self.pooling = _choose_output(
            self._session.get_outputs(), read_json_array(arrays.by_name, CONFIG).get("pooling")
        )
        self.dims = 0  # until a text has been encoded
        try:
            self.dims = len(self.encode(_PROBE * max_tokens))
        except BadInstance as error:
            raise BadModel(f"model.onnx: with {max_tokens} tokens: {error}") from error
        if not 1 <= self.dims <= DIMS_MAX:
            raise BadModel(f"model.onnx: expected 1 to {DIMS_MAX} numbers, found {self.dims}")

    def encode(self, text: str) -> F32:
        """Return the vector of a text, float32[dims], of length 1; zeros for a text without tokens.

        The mean of tokens is summed in float64. Same text, same bits, whatever else is encoded.
        Raises BadInstance if the graph fails, or its numbers are not finite.
        """
        if text in self.vectors:
            return self.vectors[text]
        try:
            tokens = self._tokenizer.encode(self._prefix + text)
            if not tokens.ids:
                return np.zeros(self.dims, np.float32)
            output = self._session.run(
                [self._output],
                {
                    name: np.array([getattr(tokens, field)], dtype)
                    for name, (field, dtype) in self._inputs.items()
                },
            )[0][0]
        except Exception as error:  # onnxruntime and tokenizers have no common class of errors
            raise BadInstance(
                f"expected an encoder that encodes the text, found {_first_line(error)}"
            ) from error
        vector = output.astype(np.float64)
        if self.pooling != "output":
            vector = vector[0] if self.pooling == "cls" else vector.mean(axis=0)
        length = np.sqrt(np.sum(vector * vector))
        if not np.isfinite(length):
            raise BadInstance("expected an encoder that gives finite numbers, found others")
        unit: F32 = (vector / (length or 1.0)).astype(np.float32)
        return unit


_open_encoders: WeakValueDictionary[tuple[str, str, int], Encoder] = WeakValueDictionary()
_opening = threading.Lock()


def open_encoder(arrays: EncoderArrays, prefix: str = "", max_tokens: int = MAX_TOKENS) -> Encoder:
    """Return an encoder, opened as `Encoder` opens it.

    All versions of this process that have the same encoder share one. Cost: a pass over its bytes.
    """
    key = (arrays.digest, prefix, max_tokens)
    with _opening:
        encoder = _open_encoders.get(key)
        if encoder is None:
            encoder = _open_encoders[key] = Encoder(arrays, prefix, max_tokens)
        return encoder


def read_encoder(folder: Path, pooling: str | None = None) -> tuple[EncoderArrays, Encoder]:
    """Return the arrays of the encoder in a folder, and the encoder.

    pooling  "mean", "cls" or "output"; None: as the folder says

    Raises BadModel, which names the folder, for anything that is no encoder, and BadParameter for
    another pooling.
    """
    if pooling is not None and pooling not in _RANKS:
        raise BadParameter(f"pooling: expected {', '.join(_RANKS)}, found {pooling!r}")
    arrays = read_folder(folder, pooling)
    try:
        encoder = Encoder(arrays)
    except BadModel as error:
        raise BadModel(f"{folder}: {error}") from error
    return arrays._replace(
        config=json_array(CONFIG, {"dims": encoder.dims, "pooling": encoder.pooling})
    ), encoder


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that encode."""
    return {name: version(name) for name in ("onnxruntime", "tokenizers")}


def _open_tokenizer(content: bytes, max_tokens: int) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_tokens)
    except BaseException as error:  # a panic of its Rust code is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise BadModel(
            f"tokenizer.json: expected a tokenizer, found {_first_line(error)}"
        ) from error
    return tokenizer


def _open_session(content: bytes) -> onnxruntime.InferenceSession:
    """Return a session that runs in the caller's thread, for a graph that needs nothing else."""
    if _EXTERNAL.search(content):
        raise BadModel("model.onnx: expected all weights in it, found external data")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; warnings would go to standard error
    try:
        session = onnxruntime.InferenceSession(
            content, options, ["CPUExecutionProvider"], disabled_optimizers=[_SLOW_FUSION]
        )
    except Exception as error:
        raise BadModel(f"model.onnx: expected a graph, found {_first_line(error)}") from error
    inputs = [(graph_input.name, graph_input.type) for graph_input in session.get_inputs()]
    if "input_ids" not in dict(inputs) or any(
        name not in _INPUTS or kind not in _INTEGERS for name, kind in inputs
    ):
        listed = ", ".join(f"{name} of {kind}" for name, kind in inputs) or "none"
        raise BadModel(
            "model.onnx: expected input_ids, and no inputs but attention_mask and "
            f"token_type_ids, of int64 or int32, found {listed}"
        )
    return session


def _choose_output(outputs: Any, pooling: object) -> tuple[str, str]:
    """Return the name of the output to take, and its pooling.

    pooling  as requested; None: the graph's own output for the text, which must have its usual name
    """
    if pooling is None and SENTENCE in [output.name for output in outputs]:
        pooling = "output"
    if pooling not in _RANKS:
        raise BadModel(
            f"1_Pooling/config.json: expected it, or --pooling mean or cls, or an output {SENTENCE}"
            f" of the graph, found none of them"
        )
    fitting = [
        output.name
        for output in outputs
        if output.type in _FLOATS and len(output.shape) == _RANKS[str(pooling)]
    ]
    if not fitting:
        shapes = ", ".join(f"{output.name}{output.shape}" for output in outputs)
        raise BadModel(
            f"model.onnx: expected an output of {_RANKS[str(pooling)]} dimensions for pooling by "
            f"{pooling}, found {shapes}"
        )
    return SENTENCE if SENTENCE in fitting else fitting[0], str(pooling)


def _first_line(error: BaseException) -> str:
    """Return what a library says, without its own prefix: the first 200 characters."""
    message = re.sub(r"^\[ONNXRuntimeError\] : \d+ : ", "", str(error)) or type(error).__name__
    return message.splitlines()[0][:200]
