"""A replica over a database of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.feedback_helpers import (
    Replica,
)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = Replica(f"sqlite:///{tmp_path}/xylem.db")
    yield made
    made.close()
