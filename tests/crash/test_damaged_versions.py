"""R3: every flipped bit and every cut of any file of a version is refused with a type."""

import os
import random
from pathlib import Path

import pytest
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.modules import json_from
from tests.helpers.small_models import small_draft

from xylem_store.errors import Corrupt
from xylem_store.store import Store

sizes = pytest.mark.parametrize(
    "full", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["quick", "soak"]
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path, fs=QuickFileSystem())
    store.publish("m", small_draft(n_labels=3, n_features=40, n_trees=1))
    store.open("m")
    return store


def files_of(store: Store) -> list[Path]:
    home = store.root / "models" / "m"
    files = [path for path in (home / "versions" / "1").rglob("*") if path.is_file()]
    assert len(files) > 20
    return sorted([*files, home / "aliases" / "latest.json"])


def refused(store: Store, file: Path, damaged: bytes) -> bool:
    """Return whether opening refuses the version whose `file` holds other bytes."""
    whole = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(damaged)
    try:
        Store(store.root).open("m")
    except Corrupt as error:
        assert "m" in error.where
        return True
    else:
        return False
    finally:
        file.write_bytes(whole)


@sizes
def test_every_flipped_bit_and_every_cut(full: bool, store: Store) -> None:
    rng = random.Random(1)
    for file in files_of(store):
        whole = file.read_bytes()
        bits, lengths = range(8 * len(whole)), range(len(whole))
        for bit in bits if full else rng.sample(bits, 25):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            assert refused(store, file, bytes(damaged)), (file, bit)
        for length in lengths if full else [0, len(whole) - 1, *rng.choices(lengths, k=6)]:
            assert refused(store, file, whole[:length]), (file, length)
        assert refused(store, file, whole + b"\0"), file


@pytest.mark.parametrize("how", ["missing", "link", "directory", "pipe", "swapped"])
def test_other_things_than_files(how: str, store: Store) -> None:
    for file in files_of(store)[1:]:
        kept = file.with_suffix(".kept")
        file.rename(kept)
        if how == "link":
            file.symlink_to(kept)
        elif how == "directory":
            file.mkdir()
        elif how == "pipe":
            os.mkfifo(file)
        elif how == "swapped":
            file.write_bytes(b"{}")
        with pytest.raises(Corrupt):
            Store(store.root).open("m")
        file.rmdir() if how == "directory" else file.unlink(missing_ok=True)
        kept.rename(file)
    store.open("m")


def test_a_version_under_another_number_or_name_is_refused(store: Store) -> None:
    versions = store.root / "models" / "m" / "versions"
    (versions / "1").rename(versions / "2")
    with pytest.raises(Corrupt, match="expected m@2, found m@1"):
        store.open("m", 2)
    (store.root / "models" / "m").rename(store.root / "models" / "other")
    with pytest.raises(Corrupt, match="expected other@2, found m@1"):
        store.open("other", 2)


def test_files_damaged_after_a_check_are_checked_again(store: Store) -> None:
    file = store.root / "models/m/versions/1/arrays/ensemble.dense.npy"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.unlink()
    file.write_bytes(damaged)
    with pytest.raises(Corrupt, match="sha256"):
        store.open("m")
    with pytest.raises(Corrupt, match="sha256"):
        store.verify("m", 1)
    store.open("m", verify=False)


@pytest.mark.parametrize(
    ("rounds", "boundscheck"),
    [
        pytest.param(2_000, "0", id="quick"),
        pytest.param(100_000, "0", id="soak", marks=pytest.mark.soak),
        pytest.param(20_000, "1", id="soak-bounds", marks=pytest.mark.soak),
    ],
)
def test_never_a_signal(rounds: int, boundscheck: str, seed: int) -> None:
    outcome = json_from(
        "tests.helpers.hostile_versions", rounds, seed, NUMBA_BOUNDSCHECK=boundscheck
    )
    assert outcome["refused"] > rounds // 2
    assert outcome["served"] > rounds // 50
    assert outcome["slowest_seconds"] < 1
