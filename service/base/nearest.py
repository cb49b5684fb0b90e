"""What somebody may have meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable

_KEPT = 256

_ELSEWHERE = {
    "k": "top_r",
    "top_k": "top_r",
    "topk": "top_r",
    "limit": "top_r",
    "beam": "beam_width",
    "beam_size": "beam_width",
    "timeout": "deadline_ms",
}
"""What other libraries and services call things, where our name for it looks different."""


def did_you_mean(name: str, known: Iterable[str], *, is_quoted: bool = False) -> str:
    """Return "; did you mean ...?" with the name that is most alike; empty where none is.

    is_quoted  for names that may be anything
    """
    near = _nearest(name, tuple(known))
    if near is None:
        return ""
    return f"; did you mean {near!r:.80}?" if is_quoted else f"; did you mean {near}?"


@functools.lru_cache(_KEPT)
def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    """Return the name that is most alike; kept, as a client makes the same mistake in each request."""
    if (own := _ELSEWHERE.get(name)) in known:
        return own
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
