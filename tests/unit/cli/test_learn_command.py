"""Options of `xylem learn` that would be ignored are refused."""

from pathlib import Path

import pytest
from tests.conftest import Command

RECIPE = "--recipe cannot be used with options that a recipe has"
NEW = "expected --vocabulary and --data, with which a new recipe begins, found other options"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("--vocabulary v.ttl", NEW),
        ("--data d.jsonl", NEW),
        ("--titles t.jsonl --vocabulary v.ttl", NEW),
        ("--feedback-weight 2", NEW),
        ("--language fi", NEW),
        ("-p trees=3", NEW),
        ("--label-separator |", NEW),
        ("--recipe r.toml --language fi", RECIPE),
        ("--recipe r.toml --first-name", RECIPE),
        ("--recipe r.toml --encoding latin-1", RECIPE),
        ("--recipe r.toml -p trees=3", RECIPE),
        ("--recipe r.toml", "r.toml: expected a readable file, found: No such file"),
        ("--seed 3", "No such option"),
        ("", "m: expected a recipe, found none: xylem learn makes one"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    options: str, fault: str, tmp_path: Path, command: Command
) -> None:
    status, printed, err = command("learn", "m", *options.split(), "--store", tmp_path / "store")
    assert (status, printed) == (2, "") and fault in err, err
    assert not (tmp_path / "store" / "models").exists() or not any(
        (tmp_path / "store" / "models").iterdir()
    )
