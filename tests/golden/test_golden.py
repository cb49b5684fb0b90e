"""R22: versions of every released schema are read, and answer as they did."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden.make_golden import DRAFTS, NEEDED, answers

from xylem_store.manifest import SCHEMA_VERSION
from xylem_store.store import Store

HERE = Path(__file__).resolve().parent
ARCHIVES = sorted(HERE.glob("schema-*/*.tar"))


@pytest.mark.parametrize("schema", range(1, SCHEMA_VERSION + 1))
def test_a_schema_has_its_golden_versions(schema: int) -> None:
    found = {path.stem for path in ARCHIVES if path.parent.name == f"schema-{schema}"}
    assert found - NEEDED.keys() == DRAFTS[schema].keys() - NEEDED.keys()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_version_is_read_answers_and_is_written_again_to_the_bit(
    archive: Any, tmp_path: Path
) -> None:
    store, again, before = Store(tmp_path), io.BytesIO(), archive.read_bytes()
    manifest = store.import_(io.BytesIO(before), "golden")
    store.export("golden", 1, again)
    assert again.getvalue().endswith(before[before.index(b"arrays/") :])
    schema = int(archive.parent.name.removeprefix("schema-"))
    assert manifest.schema_version == schema
    if archive.stem in NEEDED:
        pytest.importorskip(NEEDED[archive.stem])
    assert manifest.n_labels == DRAFTS[schema][archive.stem].labels.n_names
    expected = json.loads((archive.parent / "answers.json").read_text())[archive.stem]
    found = answers(store.open("golden"))
    assert (found["ptr"], found["labels"]) == (expected["ptr"], expected["labels"])
    assert found["scores"] == pytest.approx(expected["scores"], rel=1e-5)
