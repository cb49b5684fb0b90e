"""Archives: what goes out comes in, and nothing else does."""

import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem_store.archive import TRAILER_BYTES_MAX, spool_archive
from xylem_store.errors import Corrupt, StoreUnreadable, StoreUnwritable
from xylem_store.label_info import LabelInfo, Subject, build_label_info
from xylem_store.store import Store

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    store = Store(tmp_path_factory.mktemp("out"), fs=QuickFileSystem())
    store.publish("m", small_draft(n_labels=3, n_features=40, n_trees=1))
    return exported(store, "m")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "in", fs=QuickFileSystem())


def exported(store: Store, model: str, version: int = 1, **options: bool) -> bytes:
    file = io.BytesIO()
    store.export(model, version, file, **options)
    return file.getvalue()


def members(archive: bytes) -> list[Member]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]


def packed(found: list[Member], form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for info, data in found:
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def test_an_archive_is_a_tar_that_comes_in_again(archive: bytes, store: Store) -> None:
    first, second, *arrays = (info.name for info, _ in members(archive))
    assert (first, second, arrays) == ("manifest.json", "manifest.sha256", sorted(arrays))
    manifest = store.import_(io.BytesIO(archive), "other")
    assert (manifest.model, manifest.version) == ("other", 1)
    assert store.import_(io.BytesIO(packed(members(archive))), "other").version == 2
    assert len(exported(store, "other")) == len(archive)


def altered(**fields: object) -> Callable[[list[Member]], None]:
    """A change of the third member's head."""

    def change(found: list[Member]) -> None:
        for name, value in fields.items():
            setattr(found[2][0], name, value)

    return change


HOSTILE: dict[str, Callable[[list[Member]], None]] = {
    "absolute": altered(name="/tmp/evil"),
    "parent": altered(name="../../evil"),
    "within": altered(name="arrays/../../evil"),
    "dot": altered(name="./arrays/ensemble.block_ptr.npy"),
    "long name": altered(name="arrays/" + "x" * 300),
    "symbolic link": altered(type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "hard link": altered(type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "device": altered(type=tarfile.CHRTYPE, linkname="/etc/passwd"),
    "pipe": altered(type=tarfile.FIFOTYPE, linkname="/etc/passwd"),
    "directory": altered(type=tarfile.DIRTYPE, linkname="/etc/passwd"),
    "one less": lambda found: found.pop() and None,
    "one twice": lambda found: found.insert(2, found[2]),
    "one more": lambda found: found.append(found[-1]),
    "another order": lambda found: found.reverse(),
    "no manifest": lambda found: found.pop(0) and None,
    "nothing": lambda found: found.clear(),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_members_are_refused(
    what: str, archive: bytes, store: Store, tmp_path: Path
) -> None:
    found = members(archive)
    HOSTILE[what](found)
    with pytest.raises(Corrupt, match="archive"):
        store.import_(io.BytesIO(packed(found)), "m")
    assert list(tmp_path.iterdir()) == [store.root]
    assert [path.name for path in store.root.rglob("*") if path.is_file()] == []


def test_members_of_another_size_are_refused(archive: bytes, store: Store) -> None:
    for place, size in ((0, 1 << 40), (2, 1 << 40), (2, 1)):
        found = members(archive)
        head = b"".join(
            info.tobuf() + data + bytes(-len(data) % 512) for info, data in found[:place]
        )
        info = found[place][0]
        info.size = size
        with pytest.raises(Corrupt, match="archive"):
            store.import_(io.BytesIO(head + info.tobuf(tarfile.GNU_FORMAT) + bytes(2000)), "m")


def test_archives_of_other_formats(archive: bytes, store: Store) -> None:
    found = members(archive)
    store.import_(io.BytesIO(packed(found, tarfile.USTAR_FORMAT)), "m")
    found[2][0].pax_headers = {"comment": "x" * 1000}
    with pytest.raises(Corrupt, match="archive"):
        store.import_(io.BytesIO(packed(found, tarfile.PAX_FORMAT)), "m")


def test_cut_and_flipped_archives_are_refused(archive: bytes, store: Store) -> None:
    rng = random.Random(3)
    for _ in range(60):
        with pytest.raises(Corrupt):
            store.import_(io.BytesIO(archive[: rng.randrange(len(archive) - 1023)]), "m")
    whole = members(archive)
    told = [i for i in range(len(archive)) if archive[i]]
    for _ in range(150):
        damaged = bytearray(archive)
        damaged[rng.choice(told)] ^= 1 << rng.randrange(8)
        try:
            version = store.import_(io.BytesIO(bytes(damaged)), "m").version
        except Corrupt:
            continue
        again = members(exported(store, "m", version))
        # a blank of a header's checksum: nothing that is told was changed
        assert [data for _, data in again[2:]] == [data for _, data in whole[2:]]


def test_little_may_stand_behind_an_archive(archive: bytes, store: Store) -> None:
    for n_bytes in (1, TRAILER_BYTES_MAX):
        store.import_(io.BytesIO(archive + bytes(n_bytes)), "m")
    endless = io.BytesIO(archive + bytes(TRAILER_BYTES_MAX + (8 << 20)))
    with pytest.raises(Corrupt, match="expected at most 10240 bytes behind its end, found more"):
        store.import_(endless, "m")
    assert endless.tell() <= len(archive) + TRAILER_BYTES_MAX + 1
    assert list(store.versions("m")) == [1, 2]


@pytest.mark.parametrize("n_bytes", [1, 511, 512, 4_096, 1 << 20])
def test_an_archive_is_spooled_to_its_end(archive: bytes, n_bytes: int) -> None:
    def spooled(data: bytes) -> bytes:
        file, header_at = io.BytesIO(), 0
        for begin in range(0, len(data), n_bytes):
            header_at = spool_archive(file, data[begin : begin + n_bytes], header_at)
        return file.getvalue()

    whole = archive + bytes(TRAILER_BYTES_MAX)
    assert spooled(whole) == whole
    assert spooled(archive[:-700]) == archive[:-700]
    with pytest.raises(Corrupt, match="bytes behind its end, found more"):
        spooled(whole + b"x")
    with pytest.raises(Corrupt, match="expected a tar header of a file"):
        spooled(b"no tar" * 1_000)


def test_a_header_of_a_size_below_zero_ends_a_spool(archive: bytes) -> None:
    header = tarfile.TarInfo("manifest.json")
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 11 + b"\x00"  # -256, as GNU writes what is no octal number
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    with pytest.raises(Corrupt, match="expected the file a file"):
        spool_archive(io.BytesIO(), bytes(block), 0)


def test_an_archive_read_in_small_pieces(archive: bytes, store: Store) -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 1000))

    assert store.import_(Trickle(archive), "m").version == 1


def test_an_archive_that_cannot_be_read(store: Store) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("no more")

    with pytest.raises(StoreUnreadable, match="no more"):
        store.import_(Failing(), "m")


def test_no_space_for_an_archive(archive: bytes, tmp_path: Path) -> None:
    class Full(QuickFileSystem):
        def free_bytes(self, path: Path) -> int:
            return 10

    store = Store(tmp_path / "in", fs=Full())
    with pytest.raises(StoreUnwritable, match="bytes of space, found 10 bytes free"):
        store.import_(io.BytesIO(archive), "m")
    assert not list((store.root / "staging").iterdir())


def test_a_damaged_version_is_not_exported(archive: bytes, store: Store) -> None:
    store.import_(io.BytesIO(archive), "m")
    file = store.root / "models/m/versions/1/arrays/labels.utf8.npy"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"X")
    out = io.BytesIO()
    with pytest.raises(Corrupt):
        store.export("m", 1, out)
    assert out.getvalue() == b""


@pytest.fixture(scope="module")
def labelled(archive: bytes, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The archive of a version whose model has label info."""
    store = Store(tmp_path_factory.mktemp("labelled"), fs=QuickFileSystem())
    store.import_(io.BytesIO(archive), "m")
    store.put_label_info("m", info_of("dog"))
    return exported(store, "m", label_info=True)


def info_of(name: str) -> LabelInfo:
    return build_label_info([Subject("label::1", None, {"en": name}), Subject("label::2", "2", {})])


def test_label_info_goes_to_a_model_that_has_none(
    archive: bytes, labelled: bytes, store: Store
) -> None:
    assert [info.name for info, _ in members(labelled)][-1] == "label_info"
    assert members(labelled)[:-1][0][1] == members(archive)[0][1]
    store.import_(io.BytesIO(labelled), "m")
    assert store.label_info_head("m") == info_of("dog").head
    store.put_label_info("m", info_of("hound"))
    store.import_(io.BytesIO(labelled), "m")
    assert store.label_info_head("m") == info_of("hound").head
    store.import_(io.BytesIO(packed(members(labelled))), "again")
    assert store.label_info_head("again") == info_of("dog").head
    assert len(exported(store, "again")) == len(archive)


@pytest.mark.parametrize("fault", ["cut", "damaged", "another", "longer", "twice"])
def test_label_info_that_is_not_whole_is_refused(labelled: bytes, store: Store, fault: str) -> None:
    found = members(labelled)
    info, data = found[-1]
    if fault == "cut":
        bad = labelled[: labelled.rindex(b"label::2")]
    else:
        data = {"damaged": data.replace(b"dog", b"god"), "longer": data + b"x" * 64}.get(
            fault, data
        )
        info.name, info.size = "names" if fault == "another" else info.name, len(data)
        bad = packed([*found[:-1], (info, data), *([(info, data)] if fault == "twice" else [])])
    with pytest.raises(Corrupt):
        store.import_(io.BytesIO(bad), "m")
    assert store.versions("m") == ()


def test_a_mirrored_version_has_no_label_info(
    labelled: bytes, store: Store, archive: bytes
) -> None:
    digest = store.import_(io.BytesIO(archive), "m").digest
    with pytest.raises(Corrupt, match="an end after the last array"):
        Store(store.root.parent / "there").mirror(io.BytesIO(labelled), "m", 1, digest)
