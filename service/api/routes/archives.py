"""/v1/admin/models/{model}/archive: a version out as a tar, and in from one."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import IO

from fastapi import APIRouter, Request, Response

from model_store.errors import Corrupt
from service.api.door.pipe import ThreadPipe
from service.api.door.responses import ClosingStream
from service.api.door.uploads import pieces
from service.api.routes.admins import AuditedRoute, needs
from service.api.routes.operations import ModelName, answers, problems, query_parameters, takes
from service.api.routes.registry import cause_of
from service.api.routes.services import CATCH_UP_SECONDS, Wired
from service.base.errors import BadData, LimitExceeded, Unavailable
from service.registry.archives import export_to, import_from
from service.serving.parse import parse_query
from service.serving.schemas.registry import ArchiveQuery, ImportQuery, Published

router = APIRouter(
    prefix="/v1/admin/models/{model}/archive",
    tags=["registry"],
    dependencies=[needs("admin")],
    route_class=AuditedRoute,
)

_TAR = {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "",
    operation_id="exportModel",
    summary="A version as an archive",
    response_class=Response,
    responses={**answers(200, "A tar", _TAR), **problems(401, 403, 404, 422, 503)},
    openapi_extra=query_parameters(ArchiveQuery),
)
async def export(model: ModelName, request: Request, services: Wired) -> Response:
    """What `xylem models export` writes. All of it is verified before the first byte is sent."""
    query = parse_query(request.scope["query_string"], ArchiveQuery, services.limits)
    pipe = ThreadPipe()
    first = await pipe.start(services.archive_threads, export_to, services.store, model, query.version)
    name = f"{model}.tar"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return ClosingStream(_sent(first, pipe), pipe.close, headers, "application/x-tar")


async def _sent(first: bytes, pipe: ThreadPipe) -> AsyncIterator[bytes]:
    yield first
    async for piece in pipe:
        yield piece


@router.post(
    "",
    operation_id="importModel",
    summary="Publish the version in an archive",
    responses=problems(401, 403, 404, 408, 409, 422, 503),
    openapi_extra={**takes(_TAR), **query_parameters(ImportQuery)},
)
async def import_model(model: ModelName, request: Request, services: Wired) -> Published:
    """The body is what an export gave, of this service or another. It is verified wholly, then published as
    the next version of the model; what breaks off, or is damaged, publishes nothing.

    It may be as long as the limit `archive_bytes_max`.
    """
    query = parse_query(request.scope["query_string"], ImportQuery, services.limits)
    most = services.limits.archive_bytes_max
    loop = asyncio.get_running_loop()
    with _writing(), tempfile.TemporaryFile(dir=services.settings.store) as file:
        n_bytes = 0
        async for piece in pieces(request, services.limits):
            n_bytes += len(piece)
            if n_bytes > most:
                raise LimitExceeded(f"expected at most {most} bytes (limit archive_bytes_max), found more")
            await loop.run_in_executor(services.archive_threads, file.write, piece)
        file.seek(0)

        def publish(source: IO[bytes]) -> int:
            stated = services.registry, services.store, model, source, cause_of(request)
            try:
                return import_from(*stated, bytes_max=most, latest=query.latest).version
            except Corrupt as error:  # what was sent, and nothing of ours
                raise BadData(str(error)) from None

        version = await loop.run_in_executor(services.archive_threads, publish, file)
    await services.live.catch_up(CATCH_UP_SECONDS)
    return Published(model=model, version=version)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Give the errors of the file that a body goes to their type."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"archive: expected to write it, found {error.strerror}") from error
