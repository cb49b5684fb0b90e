"""Files mapped read-only that keep no descriptor open.

Python's `mmap` keeps one for each map until 3.13 (`trackfd`). A version has twenty arrays, so that 60 models
would take up the 1,024 descriptors that a process usually has.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def map_bytes(fd: int, n_bytes: int) -> memoryview:
    """Return the first bytes of an open file, mapped read-only; `fd` may be closed.

    n_bytes is 1 at least, and no more than the file has. They are mapped until the last view of them is gone.
    Raises OSError.
    """
    address = _libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _FAILED:
        raise _error()
    mapped = (ctypes.c_ubyte * n_bytes).from_address(address)
    weakref.finalize(mapped, _libc.munmap, address, n_bytes).atexit = False
    return memoryview(mapped).cast("B").toreadonly()


def read_head(mapped: memoryview, n_bytes: int) -> bytes:
    """Return the first bytes of a map, without having the system read megabytes ahead of them."""
    array: Any = mapped.obj
    address = ctypes.addressof(array)
    _libc.madvise(address, len(mapped), mmap.MADV_RANDOM)
    head = bytes(mapped[:n_bytes])
    _libc.madvise(address, len(mapped), mmap.MADV_NORMAL)
    return head


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
