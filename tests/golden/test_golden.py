"""R22: versions of the schema are read, and answer as they did when they were written."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden.make_golden import DRAFTS, FOLDER, NEEDED, answers

from xylem_store.manifest import SCHEMA_VERSION
from xylem_store.store import Store

ARCHIVES = sorted(FOLDER.glob("*.tar"))


def test_every_golden_version_has_its_draft() -> None:
    names = {path.stem for path in ARCHIVES}
    assert names - NEEDED.keys() == DRAFTS.keys() - NEEDED.keys()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.stem)
def test_a_golden_version_answers_and_is_rewritten_to_the_bit(archive: Any, tmp_path: Path) -> None:
    store = Store(tmp_path)
    exported = io.BytesIO()
    golden = archive.read_bytes()
    manifest = store.import_(io.BytesIO(golden), "golden")
    store.export("golden", 1, exported)
    assert exported.getvalue().endswith(golden[golden.index(b"arrays/") :])
    assert manifest.schema_version == SCHEMA_VERSION
    if archive.stem in NEEDED:
        pytest.importorskip(NEEDED[archive.stem])
    assert manifest.n_labels == DRAFTS[archive.stem].labels.n_names
    expected = json.loads((FOLDER / "answers.json").read_text())[archive.stem]
    predictions = answers(store.open("golden"))
    assert (predictions["ptr"], predictions["labels"]) == (expected["ptr"], expected["labels"])
    assert predictions["scores"] == pytest.approx(expected["scores"], rel=1e-5)
