"""`xylem encoders`: what is added, listed, shown, removed, and refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.tiny_encoders import DIMS, write_encoder
from tests.unit.cli.conftest import Cli


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders") / "store"


def test_an_encoder_is_added_listed_shown_and_removed(cli: Cli, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    assert "No encoders in" in cli.says("encoders", "list")
    added = cli.answers("encoders", "add", "tiny", folder)
    assert added == {
        "name": "tiny",
        "digest": added["digest"],
        "bytes": added["bytes"],
        "versions": 0,
        "dims": DIMS,
        "pooling": "mean",
    }
    listed = {name: added[name] for name in ("name", "digest", "bytes", "versions")}
    assert cli.answers("encoders", "list") == {"encoders": [listed]}
    shown = cli.answers("encoders", "show", "tiny")
    assert shown == {**listed, "dims": DIMS, "pooling": "mean"}
    assert added["digest"][:12] in cli.says("encoders", "list")
    assert added["digest"] in cli.says("encoders", "show", "tiny")
    assert "4 numbers a text, pooling mean" in cli.says("encoders", "add", "tiny", folder)
    assert cli.answers("encoders", "remove", "tiny") == listed


def test_what_cannot_be_used_is_refused_in_a_sentence(cli: Cli, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    cli.refuses(
        "pooling: expected mean, cls, output, found 'sum'",
        "encoders",
        "add",
        "tiny",
        folder,
        "--pooling",
        "sum",
    )
    (folder / "tokenizer.json").unlink()
    cli.refuses(
        f"{folder}: expected a sentence encoder with tokenizer.json, found none",
        "encoders",
        "add",
        "tiny",
        folder,
    )
    for command in ("show", "remove"):
        cli.refuses("expected an encoder of the store, found 'tiny'", "encoders", command, "tiny")


def test_a_missing_library_is_reported_with_how_to_get_it(
    cli: Cli, tmp_path: Path, hide_module: Callable[[str], None]
) -> None:
    hide_module("onnxruntime")
    cli.refuses(
        "running sentence encoders needs onnxruntime: pip install 'xylem-serve[encoder]'",
        "encoders",
        "add",
        "tiny",
        write_encoder(tmp_path),
    )
