"""A store tells every change."""

from pathlib import Path

import pytest

from model_store.errors import StoreUnreadable
from model_store.store import Store
from tests.alias_helpers import deny, split
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store", fs=QuickFileSystem())
    store.publish("m", DRAFT)
    return store


def test_every_change_is_seen(store: Store) -> None:
    seen = [store.generation()]
    assert store.generation() == seen[0]
    for change in (
        lambda: store.publish("m", DRAFT),
        lambda: store.promote("m", 1),
        lambda: store.promote("m", 1, "stable"),
        lambda: split(store, "m", (2, 500), alias="stable"),
        lambda: split(store, "m", alias="stable"),
        lambda: deny(store, "m", ["label::1"], "stable"),
        lambda: store.delete("m", 2),
        lambda: store.publish("n", DRAFT),
        lambda: store.delete_alias("m", "stable"),
    ):
        change()
        found = store.generation()
        assert found not in seen
        assert found == Store(store.root).generation()
        seen.append(found)


def test_a_store_that_is_not_there(tmp_path: Path, store: Store) -> None:
    before = store.generation()
    store.root.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnreadable, match="expected the directory of the models, found none"):
        store.generation()
    store.root.write_text("")
    with pytest.raises(StoreUnreadable, match="expected the directory of the models, found a file"):
        store.generation()
    store.root.unlink()
    (tmp_path / "elsewhere").rename(store.root)
    assert store.generation() == before


def test_an_empty_store_has_no_generation(tmp_path: Path) -> None:
    assert Store(tmp_path).generation() == ()
