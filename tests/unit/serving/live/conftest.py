"""A store whose model has three versions."""

import pytest
from tests.helpers.live_models import publish

from xylem_store.store import Store


@pytest.fixture
def three(own_store: Store) -> Store:
    """A store whose model `raw` has a third version, the latest."""
    publish(own_store)
    return own_store
