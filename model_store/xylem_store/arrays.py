"""Arrays as .npy files: written in one canonical form, mapped after their headers were checked."""

import hashlib
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from xylem_store.compiled.decorators import kernel
from xylem_store.compiled.handles import I32, I64, kinds_of, read_only
from xylem_store.errors import Corrupt
from xylem_store.fs import FileSystem, Mapped, read_head, write_file

ALIGNMENT = 64  # bytes; the data of a file begin at a multiple
HEADER_BYTES_MAX = 1024  # the longest header of a file, including magic and length

# The most bytes of an array; far from where a product of sizes could overflow an int64.
ARRAY_BYTES_MAX = 1 << 46

DIMENSIONS_MAX = 3

# The types that an array may have, by name, and how a .npy header writes them.
DESCRIPTORS: dict[str, str] = {
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float32": "<f4",
    "float64": "<f8",
}

_MAGIC = b"\x93NUMPY\x01\x00"
PIECE_BYTES = 1 << 22

T = TypeVar("T")


class ArrayInfo(NamedTuple):
    """An array's entry in the manifest: type, shape, and the size and sha256 of its file."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    sha256: str


def file_name(name: str) -> str:
    """Return the file name of the array `name`, "group/name", in the directory of arrays."""
    return name.replace("/", ".") + ".npy"


def header_of(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the bytes before the data: format 1.0 of NEP 1, as written by NumPy 2."""
    text = f"{{'descr': '{DESCRIPTORS[dtype]}', 'fortran_order': False, 'shape': {shape}, }}"
    if shape:
        text += " " * (21 - len(str(shape[0])))  # room that NumPy leaves for a longer array
    length = 10 + len(text) + 1
    length += ALIGNMENT - length % ALIGNMENT
    return _MAGIC + (length - 10).to_bytes(2, "little") + text.ljust(length - 11).encode() + b"\n"


def write_array(fs: FileSystem, directory: Path, name: str, array: NDArray[Any]) -> ArrayInfo:
    """Write an array to its file in `directory`, synced, and return its entry for the manifest.

    Raises ValueError for a type or shape that the format does not have. Cost: a pass for the digest
    and one for the disk; no copy when the array is C-contiguous and little-endian.
    """
    write_file(fs, directory / file_name(name), _pieces_of(name, array))
    info = info_of(name, array)
    release(array)
    return info


def info_of(name: str, array: NDArray[Any]) -> ArrayInfo:
    """Return what `write_array` returns, without writing. Raises ValueError as it does."""
    digest = hashlib.sha256()
    for piece in _pieces_of(name, array):
        digest.update(piece)
    return ArrayInfo(
        array.dtype.name,
        array.shape,
        len(header_of(array.dtype.name, array.shape)) + array.nbytes,
        digest.hexdigest(),
    )


def _pieces_of(name: str, array: NDArray[Any]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an array's file.

    Raises ValueError for a type or shape that the format does not have.
    """
    dtype = array.dtype.name
    if dtype not in DESCRIPTORS or array.ndim > DIMENSIONS_MAX:
        raise ValueError(
            f"array {name}: expected {', '.join(DESCRIPTORS)}, found {array.dtype}[{array.ndim}d]"
        )
    data = np.ascontiguousarray(array, DESCRIPTORS[dtype]).reshape(array.shape)
    yield header_of(dtype, data.shape)
    raw = data.reshape(-1).view(np.uint8).data
    for start in range(0, len(raw), PIECE_BYTES):
        yield raw[start : start + PIECE_BYTES]


def map_array(
    fs: FileSystem, directory: Path, name: str, info: ArrayInfo
) -> tuple[NDArray[Any], Mapped]:
    """Return an array as a read-only view of its mapped file, and the map.

    Header and length are checked against the manifest's `info` before a byte of data is looked at;
    the data are not read. Raises Corrupt, naming the file, and OSError (FileNotFoundError) from the
    system.
    """
    where = file_name(name)
    mapped = fs.map(directory / where)
    if len(mapped.data) != info.bytes:
        raise Corrupt(where, f"{info.bytes} bytes", f"{len(mapped.data)} bytes")
    data = mapped.data  # `bytes` for an empty file, which cannot be mapped
    header = header_of(info.dtype, info.shape)
    head = data if isinstance(data, bytes) else read_head(data, len(header))
    if head != header:
        raise Corrupt(where, f"the header of {info.dtype}{list(info.shape)}", repr(head))
    offset = len(header)
    dtype = np.dtype(DESCRIPTORS[info.dtype])
    count = math.prod(info.shape)
    if offset + count * dtype.itemsize != info.bytes:
        raise Corrupt(
            where, f"{offset + count * dtype.itemsize} bytes for its shape", f"{info.bytes} bytes"
        )
    if count == 0:
        array: NDArray[Any] = np.empty(info.shape, dtype)
        array.flags.writeable = False
        return array, mapped
    return np.frombuffer(mapped.data, dtype, count, offset).reshape(info.shape), mapped


def check_digest(name: str, mapped: Mapped, info: ArrayInfo) -> None:
    """Raise Corrupt unless the file's bytes have the digest of the manifest; one pass over them."""
    digest = hashlib.sha256(mapped.data).hexdigest()
    if digest != info.sha256:
        raise Corrupt(file_name(name), f"sha256 {info.sha256}", digest)


def release(*arrays: Any) -> None:
    """Give back the memory that arrays in files take (`numpy.memmap`); others are left alone.

    The files keep the bytes, which are read again when they are used.
    """
    for array in arrays:
        while isinstance(array, np.ndarray):
            array = array.base
        if isinstance(array, mmap.mmap):
            array.madvise(mmap.MADV_DONTNEED)


def take(
    arrays: Mapping[str, NDArray[Any]], name: str, dtype: str, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """Return an array as a read-only view, after checking its type and the given sizes.

    shape  the expected sizes; None: any size

    Raises Corrupt if the array is missing or does not fit. Reads no data.
    """
    array = array_named(arrays, name)
    fits = array.ndim == len(shape) and all(
        size is None or size == length for size, length in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits or not array.flags.c_contiguous:
        sizes = ", ".join("*" if size is None else str(size) for size in shape)
        raise Corrupt(file_name(name), f"{dtype}[{sizes}]", f"{array.dtype}{list(array.shape)}")
    view = array.view()
    view.flags.writeable = False  # so kernels are compiled for one kind, and nothing is overwritten
    return view


def array_named(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """Return an array of a version. Raises Corrupt if it is missing."""
    if name not in arrays:
        raise Corrupt("manifest.json: arrays", f"an array {name}", "none")
    return arrays[name]


def has_group(arrays: Iterable[str], group: str) -> bool:
    """Return whether any array of a group, complete or not, is among these names."""
    return any(name.startswith(f"{group}/") for name in arrays)


def take_group(
    arrays: Mapping[str, NDArray[Any]], group: str, struct: Callable[..., T], **sizes: int | str
) -> T:
    """Return the arrays "group/field" as a struct for kernels; checks and raises as `take`.

    struct  its annotations give the types of the fields
    sizes   of the first dimension of a field, if it is known: a number, or the name of a field of
            the same size, or of one that has one element less ("field+1")
    """
    views = []
    for field, kind in kinds_of(struct).items():
        size = sizes.get(field)
        if isinstance(size, str):
            other, _, addend = size.partition("+")
            size = array_named(arrays, f"{group}/{other}").size + int(addend or 0)
        views.append(
            take(
                arrays,
                f"{group}/{field}",
                np.dtype(kind.dtype).name,
                (size, *(None,) * (kind.dims - 1)),
            )
        )
    return struct(*views)


def empty_group(struct: Callable[..., T], **arrays: NDArray[Any]) -> T:
    """Return a struct for kernels with these arrays and all others empty; all are read-only."""
    empty = {
        name: np.empty((0,) * kind.dims, kind.dtype)
        for name, kind in kinds_of(struct).items()
        if name not in arrays
    }
    return struct(**{name: read_only(array) for name, array in {**empty, **arrays}.items()})


def group_of(group: str, struct: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a struct by their names "group/field", as in `Draft.extra`."""
    return {f"{group}/{field}": array for field, array in struct._asdict().items()}


def check_lists(group: str, struct: Any, ptr_name: str, ids_name: str, n_ids: int) -> None:
    """Check lists of ids: each ascends and is distinct, and the offsets cover all ids.

    ptr_name  the field of offsets; list i is ids[ptr[i] : ptr[i + 1]]
    n_ids     every id is below it

    Raises Corrupt, naming array and index. Cost: one pass.
    """
    ptr = getattr(struct, ptr_name)
    ids = getattr(struct, ids_name)
    check_offsets(f"{group}/{ptr_name}", ptr, len(ids))
    if (index := _id_fault(ptr, ids, n_ids)) >= 0:
        raise Corrupt(
            element_name(f"{group}/{ids_name}", index),
            f"{ids_name} below {n_ids}, ascending in its list",
            int(ids[index]),
        )


def check_offsets(name: str, offsets: I64, last: int) -> None:
    """Raise Corrupt unless the array of this name, not empty, ascends from 0 to `last`."""
    if (index := offset_fault(offsets, last)) >= 0:
        raise Corrupt(
            element_name(name, index), f"ascending offsets from 0 to {last}", int(offsets[index])
        )


def check_all(name: str, fits: NDArray[np.bool_], expected: str, values: NDArray[Any]) -> None:
    """Raise Corrupt, naming the first index that does not fit, unless all values of an array fit.

    fits, values  of one shape; an array of more than one dimension is indexed as if it were flat
    """
    if not fits.all():
        index = int(fits.argmin())
        raise Corrupt(element_name(name, index), expected, values.reshape(-1)[index])


def offset_fault(offsets: NDArray[np.int64], last: int) -> int:
    """Return the first index at which offsets do not ascend from 0 to `last`, else -1.

    There is at least one offset.
    """
    is_bad = np.concatenate([offsets[:1] != 0, (offsets[1:] < offsets[:-1]) | (offsets[1:] > last)])
    is_bad[-1] |= offsets[-1] != last
    return int(is_bad.argmax()) if is_bad.any() else -1


@kernel
def _id_fault(ptr: I64, ids: I32, n_ids: int) -> int:
    """Return the first index of an id that is too large or does not ascend in its list, else -1."""
    for row in range(len(ptr) - 1):
        previous_id = -1
        for i in range(ptr[row], ptr[row + 1]):
            if ids[i] <= previous_id or ids[i] >= n_ids:
                return i
            previous_id = ids[i]
    return -1


def element_name(name: str, index: int) -> str:
    """Return the name of an element of an array in error messages: "file[index]"."""
    return f"{file_name(name)}[{index}]"
