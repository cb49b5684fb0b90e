"""Worker processes ask each other for their figures: over real sockets, whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from service.api.door import neighbours
from service.api.door.neighbours import Neighbours, WorkerPlace, join_pages, new_name

PAGE = b"# HELP a Figure.\n# TYPE a gauge\na 1.0\n" * 20


def returning(page: bytes) -> Callable[[bool], Awaitable[bytes]]:
    async def own_page(is_openmetrics: bool) -> bytes:
        return page

    return own_page


@contextlib.asynccontextmanager
async def two_workers(page: bytes) -> AsyncIterator[tuple[Neighbours, WorkerPlace]]:
    """A worker that asks, and the place of another one that answers with `page`."""
    name = new_name()
    asking = Neighbours(WorkerPlace(name, 0, 2), returning(b"ours"))
    place = WorkerPlace(name, 1, 2)
    answering = Neighbours(place, returning(page))
    await answering.start()
    try:
        yield asking, place
    finally:
        answering.close()


def test_the_page_of_another_worker_comes_whole() -> None:
    async def main() -> None:
        for page in (PAGE, b"x" * (1 << 20)):
            async with two_workers(page) as (asking, _):
                assert await asking.pages(is_openmetrics=False) == [b"ours", page]

    asyncio.run(main())


@pytest.mark.parametrize("n_bytes", [0, 1, 8, 100, len(PAGE)])
def test_a_worker_that_dies_while_it_answers_has_not_answered(n_bytes: int) -> None:
    """What it has sent by then could pass for a page of fewer figures."""

    async def main() -> None:
        async with two_workers(PAGE) as (_, place):
            reader, writer = await asyncio.open_unix_connection(place.socket_name(1))
            writer.write(b"p")
            sent = (await reader.read())[:n_bytes]
            writer.close()

        async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(sent)
            writer.close()

        dying = WorkerPlace(new_name(), 1, 2)
        server = await asyncio.start_unix_server(die, dying.socket_name(1))
        asking = Neighbours(WorkerPlace(dying.name, 0, 2), returning(b"ours"))
        pages = await asking.pages(is_openmetrics=False)
        server.close()
        assert pages == [b"ours", None]

    asyncio.run(main())


def test_a_page_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "PAGE_BYTES_MAX", len(PAGE) - 1)

    async def main() -> None:
        async with two_workers(PAGE) as (asking, _):
            assert await asking.pages(is_openmetrics=False) == [b"ours", None]

    asyncio.run(main())


def test_a_worker_that_is_not_there_is_told_as_down() -> None:
    async def main() -> list[bytes | None]:
        return await Neighbours(WorkerPlace(new_name(), 0, 2), returning(PAGE)).pages(is_openmetrics=False)

    pages = asyncio.run(main())
    assert pages == [PAGE, None]
    assert b'xylem_worker_up{worker="1"} 0.0\n' in join_pages(pages)


def test_a_worker_without_a_socket_serves_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Another process may have the name, and some sandboxes have no such sockets."""

    async def main() -> None:
        async with two_workers(PAGE) as (asking, place):
            late = Neighbours(place, returning(b"late"))
            await late.start()
            assert await late.pages(is_openmetrics=False) == [None, b"late"]
            late.close()
            assert await asking.pages(is_openmetrics=False) == [b"ours", PAGE]

    asyncio.run(main())
    assert '"event":"figures_not_shared"' in capsys.readouterr().err
