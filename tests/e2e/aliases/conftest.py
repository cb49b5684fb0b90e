"""Two replicas over one store, and connections to them."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.helpers.alias_requests import Asker, Connect, Replicas, move
from tests.helpers.served_models import publish_model
from tests.helpers.servers import KEY, ServerProcess

from xylem_store.store import Store


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    root = tmp_path_factory.mktemp("canary")
    for seed in (1, 2, 3):
        publish_model(Store(root), "raw", "raw", seed=seed)
    Store(root).promote("raw", 1)
    with (
        ServerProcess(root, admin_key=KEY, store_poll_seconds=0.05) as here,
        ServerProcess(root, admin_key=KEY, store_poll_seconds=0.05) as there,
    ):
        yield here, there


@pytest.fixture
def here(replicas: Replicas) -> Iterator[ServerProcess]:
    """A replica; afterwards `latest` names 1 again, alone."""
    yield replicas[0]
    move(replicas[0], "promote", 1, version=1)


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(Asker(server.port))
