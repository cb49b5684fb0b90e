"""Files for commands, and stores that a command has trained a model into."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.commands import answer, rows, xylem
from tests.helpers.datasets_helpers import write_lines


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with train.jsonl and test.jsonl."""
    directory = tmp_path_factory.mktemp("data")
    write_lines(directory / "train.jsonl", rows(240))
    write_lines(directory / "test.jsonl", rows(60, first=1000))
    return directory


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store that `xylem train` has published topics@1 to, and what the command answered."""
    store = tmp_path_factory.mktemp("trained") / "store"
    files = ("--data", data / "train.jsonl", "--valid", data / "test.jsonl")
    done = xylem("train", "label-tree", *files, "--model", "topics", "--store", store, "--json")
    return store, answer(done)


@pytest.fixture
def store(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of that store."""
    return Path(shutil.copytree(trained[0], tmp_path / "store"))
