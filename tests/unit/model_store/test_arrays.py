import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from model_store.arrays import (
    DESCRIPTORS,
    HEADER_BYTES_MAX,
    ArrayInfo,
    at,
    check_digest,
    file_name,
    header_of,
    map_array,
    take,
    write_array,
)
from model_store.errors import Corrupt
from model_store.fs import FileSystem, map_bytes, read_head
from model_store.store import Store
from tests.served_models import publish_model

FS = FileSystem()


def written(directory: Path, array: Any) -> ArrayInfo:
    (directory / "g.x.npy").unlink(missing_ok=True)
    return write_array(FS, directory, "g/x", array)


@settings(max_examples=60)
@given(
    array=st.sampled_from(sorted(DESCRIPTORS)).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    )
)
def test_what_is_written_is_mapped(array: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp()
    info = written(directory, array)
    found, mapped = map_array(FS, directory, "g/x", info)
    check_digest("g/x", mapped, info)
    np.testing.assert_array_equal(found, array)
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert not found.flags.writeable
    assert found.flags.c_contiguous
    assert found.size == 0 or found.ctypes.data % 64 == 0
    np.save(directory / "numpy.npy", array)
    assert (directory / "g.x.npy").read_bytes() == (directory / "numpy.npy").read_bytes()


def test_other_layouts_are_written_in_the_one_form(tmp_path: Path) -> None:
    plain = np.arange(12, dtype=np.int32).reshape(3, 4)
    forms = [plain, plain.astype(">i4"), np.asfortranarray(plain), np.repeat(plain, 2, axis=1)[:, ::2]]
    infos = {written(tmp_path, form) for form in forms}
    assert len(infos) == 1
    assert infos.pop().bytes == (tmp_path / "g.x.npy").stat().st_size


@pytest.mark.parametrize(
    "array", [np.array([None]), np.array([1j]), np.array([True]), np.zeros((1, 1, 1, 1))]
)
def test_types_and_shapes_outside_the_format_are_not_written(array: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="array g/x: expected int8"):
        write_array(FS, tmp_path, "g/x", array)


def test_a_map_outlives_the_file(tmp_path: Path) -> None:
    info = written(tmp_path, np.arange(100_000))
    found, mapped = map_array(FS, tmp_path, "g/x", info)
    (tmp_path / "g.x.npy").unlink()
    del mapped
    assert found.sum() == 4999950000


def test_files_are_for_reading_only(tmp_path: Path) -> None:
    written(tmp_path, np.arange(3))
    assert (tmp_path / "g.x.npy").stat().st_mode & 0o777 == 0o444


def test_file_names() -> None:
    assert file_name("features/names/utf8") == "features.names.utf8.npy"


GOOD = header_of("int32", (3,))


def padded(text: str, length: int = 118) -> bytes:
    return GOOD[:8] + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"


HEADERS = {
    "another magic": b"\x92" + GOOD[1:],
    "format 2.0": GOOD[:6] + b"\x02" + GOOD[7:],
    "length not of the alignment": GOOD[:8] + b"\x75\x00" + GOOD[10:],
    "length past the file": GOOD[:8] + b"\xf6\xff" + GOOD[10:],
    "length past the limit": padded(
        "{'descr': '<i4', 'fortran_order': False, 'shape': (3,)}", HEADER_BYTES_MAX + 64 - 10
    ),
    "another type": padded("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"),
    "big endian": padded("{'descr': '>i4', 'fortran_order': False, 'shape': (3,)}"),
    "object": padded("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}"),
    "fortran order": padded("{'descr': '<i4', 'fortran_order': True, 'shape': (3,)}"),
    "another shape": padded("{'descr': '<i4', 'fortran_order': False, 'shape': (4,)}"),
    "a float in the shape": padded("{'descr': '<i4', 'fortran_order': False, 'shape': (3.0,)}"),
    "a field more": padded("{'descr': '<i4', 'fortran_order': False, 'shape': (3,), 'x': 1}"),
    "a field less": padded("{'descr': '<i4', 'fortran_order': False}"),
    "another order": padded("{'shape': (3,), 'fortran_order': False, 'descr': '<i4'}"),
    "not ascii": GOOD[:20] + b"\xff" + GOOD[21:],
}


@pytest.mark.parametrize("what", HEADERS)
def test_each_defect_of_a_header_is_refused(what: str, tmp_path: Path) -> None:
    data = HEADERS[what] + np.arange(3, dtype=np.int32).tobytes()
    (tmp_path / "g.x.npy").write_bytes(data)
    with pytest.raises(Corrupt, match=r"g\.x\.npy: expected"):
        map_array(FS, tmp_path, "g/x", ArrayInfo("int32", (3,), len(data), ""))


@pytest.mark.parametrize("change", [{"bytes": 139}, {"bytes": 141}, {"shape": (4,)}, {"dtype": "int64"}])
def test_a_manifest_that_says_otherwise_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    info = written(tmp_path, np.arange(3, dtype=np.int32))
    assert info.bytes == 140
    with pytest.raises(Corrupt):
        map_array(FS, tmp_path, "g/x", info._replace(**change))


def test_length_and_shape_must_agree(tmp_path: Path) -> None:
    (tmp_path / "g.x.npy").write_bytes(GOOD + bytes(16))
    with pytest.raises(Corrupt, match="expected 140 bytes for its shape, found 144 bytes"):
        map_array(FS, tmp_path, "g/x", ArrayInfo("int32", (3,), len(GOOD) + 16, ""))


def test_a_digest_that_is_wrong(tmp_path: Path) -> None:
    info = written(tmp_path, np.arange(3))
    _, mapped = map_array(FS, tmp_path, "g/x", info)
    with pytest.raises(Corrupt, match="sha256 0000"):
        check_digest("g/x", mapped, info._replace(sha256="0" * 64))


ARRAYS = {"tree/parent": np.arange(6, dtype=np.int32).reshape(2, 3)}


@pytest.mark.parametrize("shape", [(2, 3), (None, 3), (2, None), (None, None)])
def test_an_array_that_fits_is_taken_without_a_copy_and_cannot_be_written(
    shape: tuple[int | None, ...],
) -> None:
    found = take(ARRAYS, "tree/parent", "int32", shape)
    assert np.shares_memory(found, ARRAYS["tree/parent"])
    assert ARRAYS["tree/parent"].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("int64", (2, 3)),
        ("uint32", (2, 3)),
        ("int32", (3, 2)),
        ("int32", (6,)),
        ("int32", (2, 3, 1)),
        ("int32", ()),
    ],
)
def test_another_type_or_shape_is_refused(dtype: str, shape: tuple[int | None, ...]) -> None:
    with pytest.raises(Corrupt, match="parent") as refused:
        take(ARRAYS, "tree/parent", dtype, shape)
    assert "int32[2, 3]" in str(refused.value)


def test_a_missing_array_is_refused() -> None:
    with pytest.raises(Corrupt, match=r"an array tree/child_ptr, found none"):
        take(ARRAYS, "tree/child_ptr", "int32", (None,))


def test_an_array_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(Corrupt):
        take({"a": ARRAYS["tree/parent"].T}, "a", "int32", (3, 2))


def test_an_element_is_named_by_its_file() -> None:
    assert at("tree/parent", 7).endswith("parent.npy[7]")


def descriptors() -> set[str]:
    links = list(Path("/proc/self/fd").iterdir())
    return {str(link.readlink()) for link in links if link.is_symlink()}  # not the one that listed them


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def map_file(path: Path) -> memoryview:
    fd = os.open(path, os.O_RDONLY)
    try:
        return map_bytes(fd, path.stat().st_size)
    finally:
        os.close(fd)


def test_the_bytes_of_a_file_without_a_descriptor(tmp_path: Path) -> None:
    file = tmp_path / "file"
    content = os.urandom(10_001)
    file.write_bytes(content)
    mapped = map_file(file)
    assert bytes(mapped) == content
    assert read_head(mapped, 100) == content[:100]
    assert read_head(mapped, 1 << 20) == content
    assert is_mapped(file)


def test_a_map_cannot_be_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abcd")
    mapped = map_file(file)
    array = np.frombuffer(mapped, np.uint8)
    assert not array.flags.writeable
    with pytest.raises(TypeError):
        mapped[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_map_ends_with_its_last_view(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(200)))
    view = np.frombuffer(map_file(file), np.uint8)[100:]
    gc.collect()
    file.unlink()
    assert is_mapped(file)
    assert view.tolist() == list(range(100, 200))
    del view
    gc.collect()
    assert not is_mapped(file)


def test_what_cannot_be_mapped_is_an_error_of_the_system() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="No such device"):
            map_bytes(reading, 10)
    finally:
        os.close(reading)
        os.close(writing)


def test_an_opened_version_keeps_no_descriptor(tmp_path: Path) -> None:
    publish_model(Store(tmp_path), "raw", "raw")
    model = Store(tmp_path).open("raw")
    assert len(model.arrays) > 10
    assert not [name for name in descriptors() if name.startswith(str(tmp_path))]
    assert is_mapped(tmp_path)
