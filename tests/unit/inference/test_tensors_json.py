"""Tensors are written byte for byte as orjson and numpy write them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_store.names import build_names, name_of
from service.inference.prediction_json import Spans
from service.inference.tensors_json import OUTPUTS, form_of, tensors_json

NAMES = build_names(
    ["a", "b c", 'quo"te', "back\\slash", "ü", "long" * 400, *(f"label::{i}" for i in range(5))]
)
N_LABELS = 11


def expected_of(
    spans: Spans, places: int, outputs: dict[str, bool], names: Any = NAMES
) -> tuple[bytes, bytes]:
    """The outputs, by numpy and orjson, one place after the other."""
    n_rows = len(spans.starts)
    labels: list[str] = []
    ids = np.full((n_rows, places), -1, np.int32)
    scores = np.zeros((n_rows, places), np.float32)
    for row, (start, end) in enumerate(zip(spans.starts, spans.ends, strict=True)):
        found = spans.labels[start:end].tolist()
        labels += [name_of(names, label) for label in found] + [""] * (places - len(found))
        ids[row, : len(found)], scores[row, : len(found)] = found, spans.scores[start:end]
    lengths = (spans.ends - spans.starts).astype(np.int32)
    arrays: dict[str, Any] = {
        "labels": labels,
        "label_ids": ids.reshape(-1),
        "scores": scores.reshape(-1),
        "lengths": lengths,
        "exact": spans.exact.astype(np.bool_),
    }
    told, binary = [], b""
    for name, is_binary in outputs.items():
        shape = [n_rows] if name in ("lengths", "exact") else [n_rows, places]
        output = {"name": name, "shape": shape, "datatype": OUTPUTS[name]}
        data = arrays[name]
        if is_binary:
            if name == "labels":
                texts = [text.encode() for text in data]
                part = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
            else:
                part = data.tobytes()
            binary += part
            output["parameters"] = {"binary_data_size": len(part)}
        else:
            output["data"] = data
        told.append(orjson.dumps(output, option=orjson.OPT_SERIALIZE_NUMPY))
    return b",".join(told), binary


def spans_of(lengths: list[int], random: np.random.Generator) -> Spans:
    ptr = np.cumsum([0, *lengths])
    labels = random.integers(N_LABELS, size=ptr[-1]).astype(np.int32)
    scores = (random.random(ptr[-1]) ** 9).astype(np.float32)
    exact = random.integers(2, size=len(lengths)).astype(np.uint8)
    return Spans(ptr[:-1], ptr[1:], labels, scores, exact)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6),
    st.integers(7, 30),
    st.lists(st.sampled_from(list(OUTPUTS)), unique=True, min_size=1),
    st.integers(0, 31),
    st.integers(0, 1000),
)
def test_any_outputs(lengths: list[int], places: int, wanted: list[str], bits: int, seed: int) -> None:
    spans = spans_of(lengths, np.random.default_rng(seed))
    outputs = {name: bool(bits >> k & 1) for k, name in enumerate(wanted)}
    assert tensors_json(NAMES, form_of(places, outputs), spans) == expected_of(spans, places, outputs)


@pytest.mark.parametrize("is_binary", [False, True])
def test_long_names_and_many_rows(is_binary: bool) -> None:
    names = build_names([f'"{i}\\' + "é" * 1900 for i in range(N_LABELS)])
    outputs = dict.fromkeys(OUTPUTS, is_binary)
    spans = spans_of([9] * 64, np.random.default_rng(0))
    assert tensors_json(names, form_of(9, outputs), spans) == expected_of(spans, 9, outputs, names)
    ends = [0, *spans.ends.tolist()]
    assert len(ends) == 65
    assert all(b - a == 9 for a, b in pairwise(ends))
