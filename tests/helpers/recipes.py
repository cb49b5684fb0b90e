"""Recipes of small models that learn, with their files."""

from pathlib import Path
from typing import Any

from tests.helpers.combined_models import NAMES
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.distinct_documents import distinct_documents
from xylem.workflows.recipe import Recipe


def recipe_in(home: Path, n: int = 340, **fields: Any) -> Recipe:
    """A recipe with documents of six concepts of seven, and their names in another file."""
    names = home / "names.csv"
    names.write_text("uri,label_en\n" + "".join(f"l{i},{name}\n" for i, name in enumerate(NAMES)))
    data = write_lines(home / "documents.jsonl", distinct_documents(n, 1))
    values = {
        "vocabulary": str(names),
        "language": "en",
        "sources": [{"file": str(data)}],
        "parameters": {"features.kind": "tfidf"},
        "beam_width": 5,
        "near": False,
    }
    return Recipe.from_json({**values, **fields})
