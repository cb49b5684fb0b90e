"""R22: versions of every released schema are read, and answer as they did."""

import io
import json
from pathlib import Path

import pytest

from model_store.manifest import SCHEMA_VERSION
from model_store.store import Store
from tests.golden.make_golden import DRAFTS, NEEDED, answers

HERE = Path(__file__).resolve().parent
ARCHIVES = sorted(HERE.glob("schema-*/*.tar"))


@pytest.mark.parametrize("schema", range(1, SCHEMA_VERSION + 1))
def test_a_schema_has_its_golden_versions(schema: int) -> None:
    found = {path.stem for path in ARCHIVES if path.parent.name == f"schema-{schema}"}
    assert found - NEEDED.keys() == DRAFTS[schema].keys() - NEEDED.keys()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_version_is_read(archive: Path, tmp_path: Path) -> None:
    if archive.stem in NEEDED:
        pytest.importorskip(NEEDED[archive.stem])
    store = Store(tmp_path)
    with archive.open("rb") as file:
        manifest = store.import_(file, "golden")
    model = store.open("golden")
    schema = int(archive.parent.name.removeprefix("schema-"))
    assert manifest.schema_version == schema
    assert manifest.n_labels == DRAFTS[schema][archive.stem].labels.n_names
    expected = json.loads((archive.parent / "answers.json").read_text())[archive.stem]
    found = answers(model)
    assert (found["ptr"], found["labels"]) == (expected["ptr"], expected["labels"])
    assert found["scores"] == pytest.approx(expected["scores"], rel=1e-5)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_its_arrays_are_written_again_to_the_bit(archive: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    with archive.open("rb") as file:
        store.import_(file, "golden")
    again = io.BytesIO()
    store.export("golden", 1, again)
    before = archive.read_bytes()
    arrays = before[before.index(b"arrays/") :]
    assert again.getvalue().endswith(arrays)
