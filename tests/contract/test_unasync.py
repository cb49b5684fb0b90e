"""The blocking half of the client is what its asynchronous half makes it."""

from __future__ import annotations

from tests.unasync import TO, modules


def test_the_blocking_half_is_made_of_the_asynchronous_one() -> None:
    made = modules()
    assert {path: path.read_text() for path in TO.glob("*.py")} == made, "call python -m tests.unasync"
