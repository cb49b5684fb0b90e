"""Outputs are written as numpy and orjson write them, one place after the other."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, strategies as st

from xylem.engine.answering import Predictions
from xylem.serving.dialects.predict.kernels.request_bodies import BodyQuery
from xylem.serving.dialects.tensors.kernels.tensor_arrays import TensorLayout, form_of
from xylem.serving.dialects.tensors.kernels.tensors import END, pack_outputs
from xylem.serving.dialects.tensors.schema import OUTPUTS
from xylem.serving.dialects.tensors.writing import (
    InferOutputs,
    outputs_of,
    pack_predictions,
    write_outputs,
)
from xylem_store.names import NameTable, build_names

NAMES = ["a", 'say "b" \\ c', "émigré::日本", "x" * 4096, "\U0001f600/</script>", "back\\slash"]
NAMES += [f"label::{i}" for i in range(5)]
TABLE = build_names(NAMES)
Row = list[tuple[int, float]]
"""Labels and their scores."""

pairs = st.tuples(st.integers(0, len(NAMES) - 1), st.floats(0, width=32, allow_infinity=False))


def dump(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def predictions_of(rows: list[Row], exact: list[bool]) -> Predictions:
    labels = [label for row in rows for label, _ in row]
    scores = [score for row in rows for _, score in row]
    return Predictions(
        np.cumsum([0, *map(len, rows)]),
        np.array(labels, np.int32),
        np.array(scores, np.float32),
        np.array(exact, np.uint8),
        np.empty((0, 2), np.int64),
    )


def kernel_outputs(
    table: NameTable, outputs: InferOutputs, found: Predictions
) -> tuple[bytes, list[int]]:
    """What the kernel packs, which is called as a search calls it."""
    layout = TensorLayout(outputs.n_rows, 0, 0)
    asked = BodyQuery(outputs.n_rows, 0, outputs.n_places, 1, 0, 0)
    form = form_of(layout, asked, [list(OUTPUTS).index(name) for name in outputs.are_binary])
    spans = (found.ptr[:-1], found.ptr[1:], found.labels, found.scores, found.exact)
    out = np.empty(16, np.uint8)
    while not pack_outputs(spans, (table.offsets, table.utf8), form, out):
        out = np.empty(4 * len(out), np.uint8)
    ends = form[END : END + len(outputs.are_binary)].tolist()
    return out[: ends[-1]].tobytes(), ends


def written(
    table: NameTable, are_binary: dict[str, bool], n_places: int, found: Predictions
) -> tuple[bytes, bytes]:
    outputs = outputs_of(are_binary, len(found.ptr) - 1, n_places)
    data, ends = pack_predictions(table, outputs, found)
    assert kernel_outputs(table, outputs, found) == (data, ends)
    return write_outputs(outputs, data, ends)


def expected_tensors(
    rows: list[Row], exact: list[bool], places: int, outputs: dict[str, bool], names: list[str]
) -> tuple[bytes, bytes]:
    """The outputs, by numpy and orjson, one place after the other."""
    filled = [(names[label], label, score) for row in rows for label, score in row]
    for i, row in enumerate(rows):
        filled[i * places + len(row) : i * places + len(row)] = [("", -1, 0.0)] * (
            places - len(row)
        )
    labels, ids, scores = zip(*filled, strict=True)
    arrays: dict[str, Any] = {
        "labels": list(labels),
        "label_ids": np.array(ids, np.int32),
        "scores": np.array(scores, np.float32),
        "lengths": np.array([len(row) for row in rows], np.int32),
        "exact": np.array(exact, np.bool_),
    }
    texts = [text.encode() for text in labels]
    as_bytes = {name: data.tobytes() for name, data in arrays.items() if name != "labels"}
    as_bytes["labels"] = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    told, binary = [], b""
    for name, is_binary in outputs.items():
        shape = [len(rows)] if name in ("lengths", "exact") else [len(rows), places]
        output = {"name": name, "shape": shape, "datatype": OUTPUTS[name]}
        if is_binary:
            binary += as_bytes[name]
            output["parameters"] = {"binary_data_size": len(as_bytes[name])}
        else:
            output["data"] = arrays[name]
        told.append(dump(output))
    return b",".join(told), binary


@given(
    st.lists(st.tuples(st.lists(pairs, max_size=7), st.booleans()), min_size=1, max_size=6),
    st.integers(7, 30),
    st.lists(st.sampled_from(list(OUTPUTS)), unique=True, min_size=1),
    st.integers(0, 31),
)
def test_any_outputs(
    given_rows: list[tuple[Row, bool]], places: int, wanted: list[str], bits: int
) -> None:
    rows, exact = ([each[i] for each in given_rows] for i in (0, 1))
    outputs = {name: bool(bits >> k & 1) for k, name in enumerate(wanted)}
    found = written(TABLE, outputs, places, predictions_of(rows, exact))
    assert found == expected_tensors(rows, exact, places, outputs, NAMES)


@pytest.mark.parametrize("is_binary", [False, True])
def test_long_names_and_many_rows(is_binary: bool) -> None:
    names = [f'"{i}\\' + "é" * 1900 for i in range(11)]
    outputs = dict.fromkeys(OUTPUTS, is_binary)
    rows, exact = [[((i + j) % 11, j / 9) for j in range(9)] for i in range(64)], [True, False] * 32
    found = written(build_names(names), outputs, 9, predictions_of(rows, exact))
    assert found == expected_tensors(rows, exact, 9, outputs, names)
