"""What is remembered of verified versions: the newest, and no more than so many."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_store import reading as reading_module
from model_store.reading import VERIFIED_MAX, Verified
from model_store.store import Store
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft


def test_the_oldest_is_forgotten_and_asking_makes_new() -> None:
    seen = Verified()
    for key in range(VERIFIED_MAX):
        seen.add(key)
    assert seen.knows(0) and not seen.knows(VERIFIED_MAX)
    seen.add(VERIFIED_MAX)
    assert (seen.knows(0), seen.knows(1), seen.knows(2)) == (True, False, True)
    assert len(seen) == VERIFIED_MAX


def test_a_store_that_lives_long_remembers_so_many_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_module, "VERIFIED_MAX", 2)
    read: list[int] = []

    def counted(model: object, maps: object) -> None:
        read.append(model.manifest.version)  # type: ignore[attr-defined]

    monkeypatch.setattr(reading_module, "verify_version", counted)
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    draft = small_draft(n_labels=3, n_features=40, n_trees=1)
    for _ in range(3):
        store.publish("m", draft)
    for version in (1, 2, 1, 3, 1, 2):
        store.open("m", version)
    assert read == [1, 2, 3, 2]
