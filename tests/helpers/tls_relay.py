"""A relay on loopback that accepts TLS in front of a server, and its self-signed certificate."""

import asyncio
import contextlib
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for `localhost` and its key with openssl; return both files."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    options = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run([*command.split(), *options], check=True, capture_output=True)
    return certificate, key


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def relay(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """Relay connections to a port of this machine; yield the port that accepts TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    started: Future[tuple[int, Callable[[], object]]] = Future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        started.set_result(
            (server.sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(stop.set))
        )
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    listens_at, stop = started.result(60)
    try:
        yield listens_at
    finally:
        stop()
        thread.join()
