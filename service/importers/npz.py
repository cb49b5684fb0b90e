"""Sparse matrices as scipy.sparse.save_npz writes them without compression, read strictly.

An .npz file is a zip archive of .npy files. Nothing is allocated before its size was held against the
file's; nothing is unpickled.
"""

import io
import math
import struct
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store.arrays import HEADER_FAULTS, header_fields
from service.importers.files import ModelFile

HEADER_BYTES_MAX = 1024
"""The longest header of a .npy file."""

DTYPES = ("<i4", "<i8", "<f4", "<f8", "|S3")
"""The types of the arrays of a sparse matrix, the last one of its format's name."""


DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    EOFError,
    RuntimeError,
    OSError,
    OverflowError,
    struct.error,
)
"""What zipfile raises for an archive that is none."""


class SparseMatrix(NamedTuple):
    """A sparse matrix as its file has it, the arrays in one dimension but otherwise unchecked.

    indptr, indices  int32 or int64
    values           float32 or float64
    """

    indptr: NDArray[Any]
    indices: NDArray[Any]
    values: NDArray[Any]
    shape: tuple[int, ...]


def read_npz(file: ModelFile, layout: str) -> SparseMatrix:
    """Return the matrix in an .npz file; `layout` is csc or csr. Raises BadModel. Copies nothing."""
    members = _members(file, ("format", "shape", "indptr", "indices", "data"))
    arrays = {name: read_npy(file, name, data) for name, data in members.items()}
    found = arrays.pop("format").tobytes()
    file.expect(found == layout.encode(), f"a matrix of format {layout}", found)
    for name, kind in (("shape", "i"), ("indptr", "i"), ("indices", "i"), ("data", "f")):
        array = arrays[name]
        fits = array.ndim == 1 and array.dtype.kind == kind
        file.expect(fits, f"{name} to be in one dimension, of type {kind}", array.dtype.str)
    shape = tuple(arrays["shape"].tolist())
    return SparseMatrix(arrays["indptr"], arrays["indices"], arrays["data"], shape)


def _members(file: ModelFile, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the named members of the archive, their checksums checked."""
    try:
        with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
            infos = {name: archive.getinfo(f"{name}.npy") for name in names}
            stored = sum(info.file_size for info in infos.values())
            plain = all(info.compress_type == zipfile.ZIP_STORED for info in infos.values())
            file.expect(plain and stored <= len(file.data), "arrays without compression", "others")
            return {name: archive.read(info) for name, info in infos.items()}
    except KeyError as error:
        raise file.fault(f"the arrays {', '.join(names)} in it", f"no {error.args[0]}") from error
    except DAMAGE as error:
        raise file.fault("a whole .npz file", f"damage: {error}") from error


def read_npy(file: ModelFile, name: str, data: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a .npy file of format 1.0 (numpy's NEP 1), without a copy."""
    file.expect(data[:8] == b"\x93NUMPY\x01\x00", f"{name} to be a .npy file of format 1.0", data[:8])
    end = 10 + int.from_bytes(data[8:10], "little")
    file.expect(end <= min(len(data), HEADER_BYTES_MAX), f"a whole header of {name}", f"{len(data)} bytes")
    try:
        header = header_fields(data[10:end])
        dtype, order, shape = header["descr"], header["fortran_order"], header["shape"]
    except (*HEADER_FAULTS, KeyError) as error:
        raise file.fault(f"a header of {name}", f"{data[10:end]!r:.80}") from error
    file.expect(dtype in DTYPES and order is False, f"{name} to be numbers", f"{header!r:.80}")
    sizes = type(shape) is tuple and all(type(size) is int and size >= 0 for size in shape)
    file.expect(sizes and len(shape) <= 1, f"{name} to be in at most one dimension", f"{shape!r:.80}")
    n_bytes = np.dtype(dtype).itemsize * math.prod(shape)
    file.expect(n_bytes == len(data) - end, f"{n_bytes} bytes in {name}", len(data) - end)
    return np.frombuffer(data, dtype, offset=end).reshape(shape)
