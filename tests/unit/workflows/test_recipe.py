"""A recipe is read from JSON and from a file, or refused with what is wrong in it."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.recipes import recipe_in

from xylem.base.errors import BadData, BadParameter
from xylem.workflows.recipe import Recipe


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"recipe": 2}, "expected a recipe of format 1, found 2: a newer release wrote it"),
        ({"sources": []}, "sources: expected at least 1 items, found 0"),
        ({"sources": [{"file": "x", "role": "judges"}]}, "sources.0.role: expected 'judge' or"),
        ({"colour": 1}, "colour"),
        ({"parameters": {"trees": 0}}, "trees: expected an integer"),
        ({"parameters": {"vectors.dims": 8}}, "features.encoder beside parameters of vectors, fo"),
        ({"reading": {"vector_column": "x"}}, "reading: expected only text_column"),
        ({"reading": {"text": "x"}}, "reading: expected only text_column"),
        ({"cron": "0 3 * * 0", "rows": 5}, "cron: expected cron or rows, found both"),
        ({"feedback_weight": -1}, "feedback_weight: expected a weight of 0"),
    ],
)
def test_a_recipe_with_a_fault_is_refused(fields: dict[str, Any], fault: str) -> None:
    values = {"vocabulary": "v.ttl", "sources": [{"file": "d.jsonl"}]}
    with pytest.raises(BadParameter, match=fault.replace("*", r"\*")):
        Recipe.from_json({**values, **fields})


def test_a_recipe_in_a_file_names_files_beside_it(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, feedback_days=30, reading={"label_separator": "|"})
    file = tmp_path / "recipe.toml"
    file.write_text(recipe.as_toml)
    assert Recipe.read(file) == recipe
    unpromoted = recipe_in(tmp_path, promotion=None)
    assert recipe_in(tmp_path, promotion="never") == unpromoted
    file.write_text(unpromoted.as_toml)
    assert Recipe.read(file) == unpromoted and 'promotion = "never"' in unpromoted.as_toml
    file.write_text('vocabulary = "v.ttl"\nsources = [{file = "sub/d.jsonl"}]\n')
    assert Recipe.read(file).files == [str(tmp_path / "v.ttl"), str(tmp_path / "sub/d.jsonl")]
    file.write_text("vocabulary =")
    with pytest.raises(BadData, match="expected TOML"):
        Recipe.read(file)
