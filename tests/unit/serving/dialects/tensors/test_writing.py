"""Outputs are written as numpy and orjson write them, one place after the other."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xylem.engine.fast_request import PlacedLabels
from xylem.serving.dialects.tensors.schema import OUTPUTS
from xylem.serving.dialects.tensors.writing import write_outputs
from xylem_store.names import build_names

NAMES = ["a", 'say "b" \\ c', "émigré::日本", "x" * 4096, "\U0001f600/</script>", "back\\slash"]
NAMES += [f"label::{i}" for i in range(5)]
TABLE = build_names(NAMES)
Row = list[tuple[int, float]]
"""Labels and their scores."""

pairs = st.tuples(st.integers(0, len(NAMES) - 1), st.floats(0, width=32, allow_infinity=False))


def dump(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def placed(rows: list[Row], exact: list[bool]) -> PlacedLabels:
    """The labels of rows in as many places as the longest row needs."""
    n_places = max(map(len, rows))
    labels = np.full((len(rows), n_places), -1, np.int32)
    scores = np.zeros((len(rows), n_places), np.float32)
    for i, row in enumerate(rows):
        for place, (label, score) in enumerate(row):
            labels[i, place] = label
            scores[i, place] = score
    lengths = np.array([len(row) for row in rows], np.int64)
    return PlacedLabels(labels, scores, lengths, np.array(exact, np.uint8))


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
    found = write_outputs(TABLE, outputs, places, placed(rows, exact))
    assert found == expected_tensors(rows, exact, places, outputs, NAMES)


@pytest.mark.parametrize("is_binary", [False, True])
def test_long_names_and_many_rows(is_binary: bool) -> None:
    names = [f'"{i}\\' + "é" * 1900 for i in range(11)]
    outputs = dict.fromkeys(OUTPUTS, is_binary)
    rows, exact = [[((i + j) % 11, j / 9) for j in range(9)] for i in range(64)], [True, False] * 32
    found = write_outputs(build_names(names), outputs, 9, placed(rows, exact))
    assert found == expected_tensors(rows, exact, 9, outputs, names)
