"""Maps keep no descriptor, cannot be written to, and last as long as the last view of them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from model_store.fs import map_bytes, read_head
from model_store.store import Store
from tests.served_models import publish_model


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


def test_what_cannot_be_mapped_is_an_error_of_the_system(tmp_path: Path) -> None:
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
