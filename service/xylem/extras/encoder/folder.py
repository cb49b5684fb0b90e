"""Folders of sentence encoders, in the layout that exporters of ONNX write.

model.onnx, or onnx/model.onnx  the graph with its weights
tokenizer.json                  the tokenizer, in the format of the library tokenizers
1_Pooling/config.json           how the vectors of tokens become one; may be missing

Files that exporters write beside them are not read.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import BadModel
from xylem_store import U8, EncoderArrays, json_array

# The longest file: no message of protobuf, the format of ONNX, can be longer.
FILE_BYTES_MAX = (1 << 31) - 1

CONFIG = "encoder/config"  # the array with the pooling, and the length of a vector once it is known

_CONFIG_BYTES_MAX = 1 << 20
_POOLING = Path("1_Pooling", "config.json")

# The modes of pooling that are read, as older and newer exporters and as Xylem name them.
_MODES = {"cls_token": "cls", "mean_tokens": "mean", "cls": "cls", "mean": "mean"}


def read_folder(folder: Path, pooling: str | None = None) -> EncoderArrays:
    """Return the files of an encoder; its graph is not checked yet.

    pooling  "mean", "cls" or "output"; None: as the folder says

    Raises BadModel, which names the file that is missing or cannot be used.
    """
    graphs = (folder / "model.onnx", folder / "onnx" / "model.onnx")
    return EncoderArrays(
        config=json_array(CONFIG, {"pooling": pooling or _pooling_of(folder)}),
        model=_read(
            folder,
            graphs[0] if graphs[0].is_file() else graphs[1],
            "model.onnx or onnx/model.onnx",
            FILE_BYTES_MAX,
        ),
        tokenizer=_read(folder, folder / "tokenizer.json", "tokenizer.json", FILE_BYTES_MAX),
    )


def _read(folder: Path, file: Path, name: str, bytes_max: int) -> U8:
    if not file.is_file():
        raise BadModel(f"{folder}: expected a sentence encoder with {name}, found none")
    n_bytes = file.stat().st_size
    if n_bytes > bytes_max:
        raise BadModel(f"{file}: expected at most {bytes_max:,} bytes, found {n_bytes:,}")
    return np.fromfile(file, np.uint8)


def _pooling_of(folder: Path) -> str | None:
    """Return the pooling that a folder asks for; None if it does not say.

    Newer exporters write its name, older ones a field for each mode.
    """
    file = folder / _POOLING
    if not file.is_file():
        return None
    content = _read(folder, file, str(_POOLING), _CONFIG_BYTES_MAX)
    try:
        config: dict[str, Any] = dict(json.loads(content.tobytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadModel(f"{file}: expected a JSON object, found another content") from error
    fields = [name for name, value in config.items() if "pooling_mode_" in name and value]
    mode = str(config.get("pooling_mode", ", ".join(fields).replace("pooling_mode_", "")))
    if mode not in _MODES:
        raise BadModel(f"{file}: expected pooling by mean or cls, found {mode or 'none'}")
    return _MODES[mode]
