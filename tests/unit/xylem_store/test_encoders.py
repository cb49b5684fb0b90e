"""Encoders of a store: kept by content, shared with versions, and removed when nobody has them."""

import dataclasses
import errno
import io
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.combined_models import full_draft
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem_store.encoder_files import EncoderArrays, EncoderInfo
from xylem_store.errors import Conflict, Corrupt, EncoderNotFound, InvalidName
from xylem_store.staging import locked
from xylem_store.store import Store
from xylem_store.version import Draft


def encoder(seed: int = 0) -> EncoderArrays:
    """Arrays as an encoder has them; the store does not look into them."""
    rng = np.random.default_rng(seed)
    return EncoderArrays(*(rng.integers(0, 256, 3000).astype(np.uint8) for _ in range(3)))


def draft_with(arrays: EncoderArrays) -> Draft:
    draft = small_draft()
    return dataclasses.replace(draft, extra={**draft.extra, **arrays.by_name})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", fs=QuickFileSystem())


def encoder_file(store: Store, name: str = "m", version: int = 1) -> Path:
    return store.root / "models" / name / "versions" / str(version) / "arrays" / "encoder.model.npy"


def folders(store: Store) -> list[str]:
    """The contents of the store that encoders are kept by."""
    home = store.root / "encoders"
    return sorted(path.name for path in home.iterdir() if path.is_dir())


def test_an_encoder_is_stored_by_content_and_found_by_name(store: Store) -> None:
    arrays = encoder()
    info = store.encoders.add("tiny", arrays)
    assert info == store.encoders.info("tiny") and store.encoders.list() == [info]
    assert info.digest == arrays.digest and folders(store) == [info.digest]
    assert info.n_bytes == sum(128 + len(array) for array in arrays)
    opened = store.encoders.open("tiny")
    assert all((array == other).all() for array, other in zip(opened, arrays, strict=True))
    assert not any(array.flags.writeable for array in opened)
    other = store.encoders.add("twin", arrays)
    assert other == EncoderInfo("twin", info.arrays) and folders(store) == [info.digest]
    assert store.encoders.add("tiny", arrays) == info


def test_names_without_an_encoder_are_refused(store: Store) -> None:
    with pytest.raises(EncoderNotFound, match="expected an encoder of the store, found 'tiny'"):
        store.encoders.open("tiny")
    assert store.encoders.list() == []
    with pytest.raises(EncoderNotFound):
        store.encoders.remove("tiny")
    for name in ("../tiny", "Tiny", ""):
        with pytest.raises(InvalidName):
            store.encoders.add(name, encoder())
    assert not (store.root / "encoders").exists()


def test_a_name_keeps_its_content(store: Store) -> None:
    info = store.encoders.add("tiny", encoder(0))
    with pytest.raises(Conflict, match=rf"encoder tiny: expected the content {info.digest[:12]} "):
        store.encoders.add("tiny", encoder(1))
    assert store.encoders.info("tiny") == info and folders(store) == [info.digest]


def test_a_version_and_the_store_have_the_files_once(store: Store) -> None:
    arrays = encoder()
    info = store.encoders.add("tiny", arrays)
    for _ in range(2):
        store.publish("m", draft_with(arrays))
    pool = store.root / "encoders" / info.digest / "encoder.model.npy"
    assert pool.samefile(encoder_file(store)) and pool.samefile(encoder_file(store, version=2))
    assert store.encoders.info("tiny").n_versions == 2
    store.verify("m", 1)


def test_an_encoder_goes_with_its_last_version_and_its_name(store: Store) -> None:
    arrays = encoder()
    info = store.encoders.add("tiny", arrays)
    store.publish("m", draft_with(arrays))
    store.publish("m", small_draft())
    model = store.open("m", 1)
    store.delete("m", 1)
    store.collect()
    assert folders(store) == [info.digest], "it has a name"
    assert store.encoders.remove("tiny") == info
    assert folders(store) == []
    assert (model.arrays["encoder/model"] == arrays.model).all(), "it was open"


def test_a_name_may_go_while_versions_have_the_encoder(store: Store) -> None:
    info = store.encoders.add("tiny", encoder())
    store.publish("m", draft_with(encoder()))
    assert store.encoders.remove("tiny") == info._replace(n_versions=1)
    store.collect()
    assert folders(store) == [info.digest]
    store.verify("m", 1)
    assert store.encoders.add("other", encoder()).digest == info.digest
    assert store.encoders.list() == [EncoderInfo("other", info.arrays, 1)]


def test_without_a_name_it_stays_as_long_as_a_version(store: Store) -> None:
    store.publish("m", draft_with(encoder()))
    store.publish("m", small_draft())
    assert len(folders(store)) == 1 and store.encoders.list() == []
    store.collect()
    assert len(folders(store)) == 1
    store.delete("m", 1)
    store.collect()
    assert folders(store) == []


def test_imported_and_mirrored_versions_share_too(store: Store, tmp_path: Path) -> None:
    arrays = encoder()
    manifest = store.publish("m", draft_with(arrays))
    tar = io.BytesIO(b"".join(bytes(piece) for piece in store.archive("m", 1)))
    other = Store(tmp_path / "other", fs=QuickFileSystem())
    other.encoders.add("tiny", arrays)
    other.import_(tar, "imported")
    tar.seek(0)
    other.mirror(tar, "m", 1, manifest.digest)
    assert encoder_file(other, "imported").samefile(encoder_file(other))
    assert other.encoders.info("tiny").n_versions == 2
    other.verify("m", 1)


def test_members_of_a_combined_version_share_too(store: Store) -> None:
    draft = full_draft()
    arrays = {f"member0/{name}": array for name, array in encoder().by_name.items()}
    info = store.encoders.add("tiny", encoder())
    store.publish("m", dataclasses.replace(draft, extra={**draft.extra, **arrays}))
    assert store.encoders.info("tiny").n_versions == 1
    file = encoder_file(store).with_name("member0.encoder.model.npy")
    assert file.samefile(store.root / "encoders" / info.digest / "encoder.model.npy")


@pytest.mark.parametrize("reason", [errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV])
def test_a_file_system_without_links_has_copies(tmp_path: Path, reason: int) -> None:
    class WithoutLinks(QuickFileSystem):
        def link(self, source: Path, target: Path) -> None:
            raise OSError(reason, os.strerror(reason))

    store = Store(tmp_path / "store", fs=WithoutLinks())
    info = store.encoders.add("tiny", encoder())
    store.publish("m", draft_with(encoder()))
    store.verify("m", 1)
    assert store.encoders.list() == [info]


def test_damaged_files_of_the_store_are_not_shared(store: Store) -> None:
    arrays = encoder()
    info = store.encoders.add("tiny", arrays)
    pool = store.root / "encoders" / info.digest / "encoder.model.npy"
    _overwrite(pool, pool.read_bytes()[:-1] + b"\x00")
    with pytest.raises(Corrupt, match=r"encoder tiny: encoder.model.npy: expected sha256"):
        store.encoders.open("tiny")
    store.publish("m", draft_with(arrays))
    store.verify("m", 1)


def test_missing_and_damaged_files_are_refused(store: Store) -> None:
    info = store.encoders.add("tiny", encoder())
    (store.root / "encoders" / info.digest / "encoder.tokenizer.npy").unlink()
    with pytest.raises(Corrupt, match=r"encoder.tokenizer.npy: expected a file, found none: add"):
        store.encoders.open("tiny")
    document = store.root / "encoders" / "tiny.json"
    _overwrite(document, document.read_bytes()[:-1])
    for call in (store.encoders.list, lambda: store.encoders.open("tiny")):
        with pytest.raises(Corrupt, match="encoder tiny: expected a last line with the sha256"):
            call()
    store.publish("m", small_draft())
    assert folders(store) == [info.digest], "nobody knows which content the name leads to"


def test_another_content_of_a_version_is_refused(store: Store) -> None:
    store.publish("m", draft_with(encoder()))
    file = encoder_file(store)
    _overwrite(file, file.read_bytes()[:-1] + b"\x00")
    with pytest.raises(Corrupt, match=r"m@1: encoder.model.npy: expected sha256"):
        Store(store.root).open("m", 1)


def test_unused_files_stay_while_an_encoder_is_added(store: Store) -> None:
    store.publish("m", draft_with(encoder()))
    with locked(QuickFileSystem(), store.root / "encoders"):
        store.delete_model("m")
        store.collect()
        assert len(folders(store)) == 1
    store.collect()
    assert folders(store) == []


def test_a_document_with_other_arrays_is_refused(store: Store) -> None:
    info = store.encoders.add("tiny", encoder())
    renamed = {name.replace("config", "other"): value for name, value in info.arrays.items()}
    document = store.root / "encoders" / "tiny.json"
    _overwrite(document, EncoderInfo("tiny", renamed).render())
    with pytest.raises(Corrupt, match="encoder tiny: expected the arrays encoder/config, "):
        store.encoders.list()


def _overwrite(file: Path, content: bytes) -> None:
    """Replace the bytes of a file, whatever its mode, with all of its names."""
    file.chmod(0o644)
    file.write_bytes(content)


def _publish(root: Path, n: int) -> None:
    store = Store(root)
    for _ in range(n):
        store.publish("m", draft_with(encoder()))
        store.encoders.add("tiny", encoder())


def test_writers_in_other_processes_share_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_publish, args=(tmp_path / "store", 4)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    store = Store(tmp_path / "store")
    (info,) = store.encoders.list()
    assert folders(store) == [info.digest] and info.n_versions == 12
    names = {encoder_file(store, version=n).stat().st_ino for n in store.versions("m")}
    assert len(names) == 1
