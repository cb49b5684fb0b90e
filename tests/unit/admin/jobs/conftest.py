"""A queue of jobs, and a store whose jobs run in this process."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.job_places import Place, train_plainly
from tests.helpers.jobs_helpers import Desk, settings_for


@pytest.fixture
def desk(tmp_path: Path, database_url: str) -> Iterator[Desk]:
    made = Desk(settings_for(tmp_path), database_url)
    yield made
    made.database.close()


@pytest.fixture
def others(desk: Desk) -> Iterator[list[Desk]]:
    """The same as four other processes have it."""
    made = [Desk(desk.settings, desk.settings.database_url) for _ in range(4)]
    yield made
    for other in made:
        other.database.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store that has a version of model m, and its data. Not to be changed."""
    directory = tmp_path_factory.mktemp("trained")
    settings_for(directory)
    train_plainly(directory)
    return directory


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Iterator[Place]:
    for name in ("store", "data"):
        shutil.copytree(trained / name, tmp_path / name)
    made = Place(tmp_path)
    yield made
    made.desk.database.close()
