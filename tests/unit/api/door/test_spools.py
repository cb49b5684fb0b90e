"""Answers that wait in a file for a client that does not read: all of them, in order, bounded."""

import asyncio
import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xylem.api.door import spools
from xylem.api.door.spools import Spool


@pytest.fixture(autouse=True)
def _stalls_soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spools, "STALLED_SECONDS", 0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class Client:
    """A client that reads while its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.read: list[bytes] = []

    async def send(self, message: Any) -> None:
        assert message["type"] == "http.response.body" and message["more_body"]
        await self.gate.wait()
        self.read.append(message["body"])


def files() -> list[str]:
    """Return the temporary files that this process has open; they have no name in the folder."""
    assert list(Path(tempfile.gettempdir()).glob("*")) == []
    names = []
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(file.readlink()))
    return [name for name in names if name.startswith(tempfile.gettempdir())]


async def until_no_file_is_open() -> None:
    """Wait until all temporary files are closed, which is a moment after `close`."""
    async with asyncio.timeout(60):
        while files():
            await asyncio.sleep(0.001)


def lines_of(n: int) -> list[bytes]:
    return [b"%d\n" % i * (1 + i % 50) for i in range(n)]


async def test_all_answers_come_in_order_however_the_client_reads(seed: int) -> None:
    random = np.random.default_rng(seed)
    lines = lines_of(300)
    client = Client()
    with closing(Spool(client.send, 3000)) as spool:
        sizes = set()

        async def read_now_and_then() -> None:
            await asyncio.sleep(0.05)
            while len(b"".join(client.read)) < len(b"".join(lines)):
                client.gate.set()
                await asyncio.sleep(float(random.choice([0, 0.001, 0.02])))
                client.gate.clear()
                await asyncio.sleep(float(random.choice([0, 0.05])))

        reading = asyncio.create_task(read_now_and_then())
        for part in lines:
            await spool.write(part)
            sizes.add(spool.n_bytes)
        await spool.flush()
        await reading
        assert b"".join(client.read) == b"".join(lines)
        assert 0 < max(sizes) <= 3000
        assert spool.n_bytes == 0
    await until_no_file_is_open()


async def test_a_client_that_reads_needs_no_file() -> None:
    client = Client()
    client.gate.set()
    with closing(Spool(client.send, 3000)) as spool:
        for part in lines_of(100):
            await spool.write(part)
            assert spool.n_bytes == 0
        assert files() == []
    assert client.read == lines_of(100)


@pytest.mark.parametrize("bytes_max", [0, 99, 100])
async def test_an_answer_at_the_bound_and_one_byte_more(bytes_max: int) -> None:
    """Beyond the bound `write` waits for the client, as it does without a file."""
    client = Client()
    with closing(Spool(client.send, bytes_max)) as spool:
        await spool.write(b"first")
        writing = asyncio.create_task(spool.write(bytes(100)))
        done, _ = await asyncio.wait([writing], timeout=1.0)
        assert bool(done) == (bytes_max == 100)
        assert spool.n_bytes == (100 if bytes_max == 100 else 0)
        client.gate.set()
        await writing
        await spool.flush()
    assert client.read == [b"first", bytes(100)]


@contextlib.contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond `n_bytes`: a write ends early, the next one fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("fault", ["no room", "some room", "no directory"])
async def test_a_full_disk_is_like_a_full_file(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if fault == "no directory":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    client = Client()
    lines = [b"first", bytes(1000), b"b" * 1000, b"c" * 1000]
    with closing(Spool(client.send, 1 << 20)) as spool:
        await spool.write(lines[0])
        with full_disk({"no room": 0, "some room": 1500}.get(fault, 1 << 30)):
            n_written = 1
            for part in lines[1:]:
                writing = asyncio.create_task(spool.write(part))
                if not (await asyncio.wait([writing], timeout=1.0))[0]:
                    break
                n_written += 1
        assert n_written == (2 if fault == "some room" else 1)
        client.gate.set()
        await writing
        for part in lines[n_written + 1 :]:
            await spool.write(part)
        await spool.flush()
    assert b"".join(client.read) == b"".join(lines)
    await until_no_file_is_open()


async def test_a_stream_that_ends_early_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a thread writes to the file meanwhile: it must not write to a file opened later."""
    client = Client()
    written = os.pwrite
    began, goes_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def write_slowly(*arguments: Any) -> int:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result()
        return written(*arguments)

    spool = Spool(client.send, 1 << 20)
    await spool.write(b"first")
    await spool.write(b"second")
    assert len(files()) == 1
    monkeypatch.setattr(os, "pwrite", write_slowly)
    writing = asyncio.create_task(spool.write(b"third"))
    await began.wait()
    writing.cancel()
    await asyncio.wait([writing])
    spool.close()
    assert len(files()) == 1
    goes_on.set()
    await until_no_file_is_open()
    assert client.read == []
