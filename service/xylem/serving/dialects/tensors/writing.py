"""Write the outputs of the Open Inference Protocol: JSON, and binary data behind it."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from xylem.engine import PlacedLabels
from xylem.serving.dialects.tensors.schema import OUTPUTS
from xylem_store import NameTable, name_of

_NO_LABEL = ""
"""The name in a place without a label."""

_LENGTH_BYTES = 4
"""An element of BYTES begins with its length."""

Outputs = tuple[bytes, bytes]
"""The JSON of outputs, commas between them, and their binary data."""


def write_outputs(
    names: NameTable, outputs: Mapping[str, bool], n_places: int, placed: PlacedLabels
) -> Outputs:
    """Return the outputs that are asked for, of n_places places for each row.

    outputs   their names; each: whether it comes as binary data
    placed    the labels, in as many places or fewer
    """
    placed = _widened(placed, n_places)
    heads: list[bytes] = []
    binaries: list[bytes] = []
    for name, is_binary in outputs.items():
        shape = [len(placed.lengths)]
        if name not in ("lengths", "exact"):
            shape.append(n_places)
        head = _head(name, *shape)
        if is_binary:
            binaries.append(_binary_of(name, names, placed))
            heads.append(b'%b"parameters":{"binary_data_size":%d}}' % (head, len(binaries[-1])))
        else:
            elements = orjson.dumps(
                _elements_of(name, names, placed), option=orjson.OPT_SERIALIZE_NUMPY
            )
            heads.append(b'%b"data":%b}' % (head, elements))
    return b",".join(heads), b"".join(binaries)


def _widened(placed: PlacedLabels, n_places: int) -> PlacedLabels:
    """Return labels with more places, where a model has fewer labels than are asked for."""
    missing = n_places - placed.labels.shape[1]
    if missing == 0:
        return placed
    margins = ((0, 0), (0, missing))
    return placed._replace(
        labels=np.pad(placed.labels, margins, constant_values=-1),
        scores=np.pad(placed.scores, margins),
    )


@functools.lru_cache(1024)
def _head(name: str, *shape: int) -> bytes:
    """Return the beginning of an output: all but its elements."""
    sizes = ",".join(map(str, shape))
    return f'{{"name":"{name}","shape":[{sizes}],"datatype":"{OUTPUTS[name]}",'.encode()


def _elements_of(name: str, names: NameTable, placed: PlacedLabels) -> Any:
    """Return the elements of an output, flat, as orjson takes them."""
    if name == "labels":
        return [
            name_of(names, label) if label >= 0 else _NO_LABEL
            for label in placed.labels.ravel().tolist()
        ]
    return _numbers_of(name, placed)


def _numbers_of(name: str, placed: PlacedLabels) -> Any:
    """Return the elements of an output that are numbers or truth values, in its datatype."""
    if name == "label_ids":
        return placed.labels.ravel()
    if name == "scores":
        return placed.scores.ravel()
    if name == "lengths":
        return placed.lengths.astype(np.int32)
    return placed.exact.view(np.bool_)


def _binary_of(name: str, names: NameTable, placed: PlacedLabels) -> bytes:
    """Return the elements of an output as binary data."""
    if name == "labels":
        return b"".join(_binary_names(names, placed.labels.ravel().tolist()))
    data: bytes = _numbers_of(name, placed).tobytes()
    return data


def _binary_names(names: NameTable, labels: list[int]) -> Iterator[bytes]:
    """Yield the length and the bytes of the name of each label; those of an empty one for -1."""
    empty = bytes(_LENGTH_BYTES)
    for label in labels:
        if label < 0:
            yield empty
            continue
        start = names.offsets.item(label)
        end = names.offsets.item(label + 1)
        yield (end - start).to_bytes(_LENGTH_BYTES, "little")
        yield names.utf8[start:end].tobytes()
