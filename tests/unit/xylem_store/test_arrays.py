import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from tests.helpers.served_models import publish_model

from xylem_store import arrays
from xylem_store.errors import Corrupt
from xylem_store.fs import FileSystem, map_bytes, read_head
from xylem_store.store import Store

FS = FileSystem()


def written(directory: Path, array: Any) -> arrays.ArrayInfo:
    (directory / "g.x.npy").unlink(missing_ok=True)
    return arrays.write_array(FS, directory, "g/x", array)


@settings(max_examples=60)
@given(
    array=st.sampled_from(sorted(arrays.DESCRIPTORS)).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
        )
    )
)
def test_what_is_written_is_mapped(array: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp()
    info = written(directory, array)
    found, mapped = arrays.map_array(FS, directory, "g/x", info)
    arrays.check_digest("g/x", mapped, info)
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
    forms = [
        plain,
        plain.astype(">i4"),
        np.asfortranarray(plain),
        np.repeat(plain, 2, axis=1)[:, ::2],
    ]
    (info,) = {written(tmp_path, form) for form in forms}
    file = (tmp_path / "g.x.npy").stat()
    assert (info.bytes, file.st_mode & 0o777) == (file.st_size, 0o444)


@pytest.mark.parametrize(
    "array", [np.array([None]), np.array([1j]), np.array([True]), np.zeros((1, 1, 1, 1))]
)
def test_types_and_shapes_outside_the_format_are_not_written(array: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="array g/x: expected int8"):
        arrays.write_array(FS, tmp_path, "g/x", array)


GOOD = arrays.header_of("int32", (3,))


def padded(text: str, length: int = 118) -> bytes:
    return GOOD[:8] + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"


def dictionary(
    descr: str = "<i4", fortran_order: bool = False, shape: str = "(3,)", more: str = ""
) -> bytes:
    return padded(
        f"{{'descr': '{descr}', 'fortran_order': {fortran_order}, 'shape': {shape}{more}}}"
    )


HEADERS = {
    "another magic": b"\x92" + GOOD[1:],
    "format 2.0": GOOD[:6] + b"\x02" + GOOD[7:],
    "length not of the alignment": GOOD[:8] + b"\x75\x00" + GOOD[10:],
    "length past the file": GOOD[:8] + b"\xf6\xff" + GOOD[10:],
    "length past the limit": padded(GOOD[10:].decode().strip(), arrays.HEADER_BYTES_MAX + 64 - 10),
    "another type": dictionary("<f4"),
    "big endian": dictionary(">i4"),
    "object": dictionary("|O"),
    "fortran order": dictionary(fortran_order=True),
    "another shape": dictionary(shape="(4,)"),
    "a float in the shape": dictionary(shape="(3.0,)"),
    "a field more": dictionary(more=", 'x': 1"),
    "a field less": padded("{'descr': '<i4', 'fortran_order': False}"),
    "another order": padded("{'shape': (3,), 'fortran_order': False, 'descr': '<i4'}"),
    "not ascii": GOOD[:20] + b"\xff" + GOOD[21:],
}


@pytest.mark.parametrize("what", HEADERS)
def test_each_defect_of_a_header_is_refused(what: str, tmp_path: Path) -> None:
    data = HEADERS[what] + np.arange(3, dtype=np.int32).tobytes()
    (tmp_path / "g.x.npy").write_bytes(data)
    with pytest.raises(Corrupt, match=r"g\.x\.npy: expected"):
        arrays.map_array(FS, tmp_path, "g/x", arrays.ArrayInfo("int32", (3,), len(data), ""))


def test_what_the_manifest_says_of_an_array_must_be_right(tmp_path: Path) -> None:
    info = written(tmp_path, np.arange(3, dtype=np.int32))
    assert info.bytes == 140
    for change in ({"bytes": 139}, {"bytes": 141}, {"shape": (4,)}, {"dtype": "int64"}):
        with pytest.raises(Corrupt):
            arrays.map_array(FS, tmp_path, "g/x", info._replace(**change))
    _, mapped = arrays.map_array(FS, tmp_path, "g/x", info)
    with pytest.raises(Corrupt, match="sha256 0000"):
        arrays.check_digest("g/x", mapped, info._replace(sha256="0" * 64))
    (tmp_path / "longer.npy").write_bytes(GOOD + bytes(16))
    with pytest.raises(Corrupt, match="expected 140 bytes for its shape, found 144 bytes"):
        arrays.map_array(FS, tmp_path, "longer", info._replace(bytes=144))


ARRAYS = {"tree/parent": np.arange(6, dtype=np.int32).reshape(2, 3)}


@pytest.mark.parametrize("shape", [(2, 3), (None, 3), (2, None), (None, None)])
def test_an_array_that_fits_is_taken_without_a_copy_to_be_read(
    shape: tuple[int | None, ...],
) -> None:
    found = arrays.take(ARRAYS, "tree/parent", "int32", shape)
    assert np.shares_memory(found, ARRAYS["tree/parent"])
    assert ARRAYS["tree/parent"].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def map_file(path: Path) -> memoryview:
    with path.open("rb") as file:
        return map_bytes(file.fileno(), path.stat().st_size)


def test_the_bytes_of_a_file_without_a_descriptor(tmp_path: Path) -> None:
    file = tmp_path / "file"
    content = os.urandom(10_001)
    file.write_bytes(content)
    mapped = map_file(file)
    assert bytes(mapped) == read_head(mapped, 1 << 20) == content
    assert read_head(mapped, 100) == content[:100]
    assert is_mapped(file)
    with pytest.raises(TypeError):
        mapped[0] = 1
    assert not np.frombuffer(mapped, np.uint8).flags.writeable


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
    with Path("/dev/null").open("rb") as device, pytest.raises(OSError, match="No such device"):
        map_bytes(device.fileno(), 10)


def test_an_opened_version_keeps_no_descriptor(tmp_path: Path) -> None:
    publish_model(Store(tmp_path), "raw", "raw")
    model = Store(tmp_path).open("raw")
    assert len(model.arrays) > 10
    links = [
        link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
    ]  # not the one of the list
    assert not [link for link in links if str(link.readlink()).startswith(str(tmp_path))]
    assert is_mapped(tmp_path)
