from __future__ import annotations

import unicodedata

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model_store.errors import BadNames
from model_store.names import build_names, check_names, find_name, name_of

names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


@settings(deadline=None)
@given(st.lists(names, unique=True, max_size=60), st.lists(names, max_size=10))
def test_a_table_is_a_dict(present: list[str], others: list[str]) -> None:
    table = check_names(*build_names(present))
    oracle = {name: i for i, name in enumerate(present)}
    assert [name_of(table, i) for i in range(table.n_names)] == present
    for name in present + others:
        assert find_name(table, name) == oracle.get(name, -1)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=5))
def test_what_is_refused_is_what_python_says(name: str) -> None:
    bad = any(unicodedata.category(c) in ("Cc", "Cs") for c in name)
    try:
        build_names([name])
    except BadNames:
        assert bad
    else:
        assert not bad


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=12))
def test_utf8_is_what_python_says(data: bytes) -> None:
    slots = build_names(["a"]).slots
    utf8 = np.frombuffer(data, np.uint8)
    try:
        check_names(np.array([0, len(data)]), utf8, slots)
        fault = ""
    except BadNames as error:
        fault = str(error)
    try:
        data.decode()
        assert "UTF-8" not in fault
    except UnicodeDecodeError:
        # a control character may stand before the bytes that are not UTF-8
        assert "UTF-8" in fault or "control" in fault
