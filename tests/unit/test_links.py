"""Links and their inverses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_store.ensemble import LINK_CODES
from service.kernels.links import log_link, margin_cut
from tests.oracles.trees import LINKS

links = st.sampled_from(list(LINKS))


@settings(deadline=None)
@given(links, st.floats(-60, 60, width=32))
def test_log_link_is_the_logarithm_of_the_link(link, margin):
    found = log_link(LINK_CODES[link], np.float32(margin))
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        expected = np.log(LINKS[link](np.float64(margin)))
    assert found <= 0
    if np.isfinite(expected):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


@settings(deadline=None)
@given(links, st.floats(-90, 60, width=32), st.floats(-90, 60, width=32))
def test_what_the_cut_stops_is_less(link, margin, other):
    code = LINK_CODES[link]
    floor = log_link(code, np.float32(other))
    if np.float32(margin) <= margin_cut(code, floor):
        assert log_link(code, np.float32(margin)) < floor


@settings(deadline=None)
@given(links, st.floats(-3, 0.875, width=32))
def test_the_cut_is_close(link, margin):
    """So close that the filter is worth having: one percent further down, nothing passes."""
    code = LINK_CODES[link]
    cut = margin_cut(code, log_link(code, np.float32(margin)))
    assert margin - 0.01 * (1 + abs(margin)) < cut < margin


def test_the_ends():
    for code in (LINK_CODES[link] for link in LINKS):
        assert margin_cut(code, np.float32(-np.inf)) == -np.inf
        assert margin_cut(code, np.float32(0.1)) == np.inf
        assert log_link(code, np.float32(-np.inf)) == -np.inf
        assert log_link(code, np.float32(np.inf)) == 0
