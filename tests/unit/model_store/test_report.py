"""The report of a version: kept whole, refused when damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.errors import Corrupt
from model_store.origin import JSON_BYTES_MAX, REPORT, read_report, report_array
from model_store.store import Store
from tests.small_models import small_draft

TOLD = {"balance": [0.5, 0.25], "ö": {"epochs": 3, "done": True, "why": None}}


def test_round_trip_through_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.publish("m", small_draft(extra={REPORT: report_array(TOLD)}))
    assert read_report(store.open("m").arrays) == TOLD
    store.publish("m", small_draft())
    assert read_report(store.open("m").arrays) == {}


@pytest.mark.parametrize("report", [{"x": float("nan")}, {"x": object()}, {"x": "y" * JSON_BYTES_MAX}])
def test_what_no_report_is(report: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="report"):
        report_array(report)


def test_the_longest_report() -> None:
    longest = {"x": "y" * (JSON_BYTES_MAX - len('{"x":""}'))}
    assert read_report({REPORT: report_array(longest)}) == longest


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff", b'{"a":1,"a":1}', b'{"a":NaN}', b'{"a":1e999}', b"[" * 100_000]
)
def test_damaged_reports_are_refused(tmp_path: Path, data: bytes) -> None:
    extra = {REPORT: np.frombuffer(data, np.uint8)}
    with pytest.raises(Corrupt, match=r"report\.json\.npy: expected"):
        Store(tmp_path).publish("m", small_draft(extra=extra))


def test_a_report_of_another_type_is_refused() -> None:
    with pytest.raises(Corrupt, match=r"expected uint8\[\*\], found int8\[3\]"):
        read_report({REPORT: np.zeros(3, np.int8)})
