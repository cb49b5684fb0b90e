"""A store with versions, an empty one, and remote stores in a directory and in memory."""

import uuid
from pathlib import Path

import pytest
from tests.helpers.small_models import small_draft

from xylem.admin.registry.remote import (
    RemoteStore,
)
from xylem_store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "here")
    for seed in (1, 2, 3):
        store.publish("m", small_draft(seed))
    return store


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"file://{tmp_path}/remote" if request.param == "file" else f"memory://{uuid.uuid4().hex}"
    )


@pytest.fixture
def remote(url: str) -> RemoteStore:
    return RemoteStore(url)


@pytest.fixture
def on_disk(tmp_path: Path) -> RemoteStore:
    return RemoteStore(f"file://{tmp_path}/remote")


@pytest.fixture
def there(tmp_path: Path) -> Store:
    there = Store(tmp_path / "there")
    there.prepare()
    return there
