"""/v1/admin/data: the files that jobs read."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from service.api.door.uploads import pieces
from service.api.routes.admins import AuditedRoute, needs
from service.api.routes.operations import problems, takes
from service.api.routes.services import Wired
from service.serving.schemas.jobs import UploadedFile, UploadedFileList

router = APIRouter(
    prefix="/v1/admin/data", tags=["jobs"], dependencies=[needs("admin")], route_class=AuditedRoute
)

_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "",
    operation_id="listData",
    summary="The files of the data directory",
    responses=problems(401, 403, 422, 503),
)
async def list_data(services: Wired) -> UploadedFileList:
    """Files below the service's data directory (`XYLEM_DATA_DIR`), by the names that jobs know them by."""
    found = await services.admin_work.run(services.jobs.data.list)
    return UploadedFileList(files=[UploadedFile(**one._asdict()) for one in found])


@router.put(
    "/{name:path}",
    operation_id="putData",
    summary="Upload a file, or replace one",
    responses=problems(401, 403, 408, 422, 503),
    openapi_extra=takes(_FILE),
)
async def put_data(name: str, request: Request, services: Wired) -> UploadedFile:
    """The body is the file, as it is. It is in its place once all has come; what breaks off leaves nothing.

    It may be as long as the limit `data_bytes_max`.
    """
    upload = await asyncio.to_thread(services.jobs.data.upload, name)
    with upload:
        async for piece in pieces(request, services.limits):
            await asyncio.to_thread(upload.write, piece)
        found = await asyncio.to_thread(upload.finish)
    return UploadedFile(**found._asdict())


@router.delete(
    "/{name:path}",
    operation_id="deleteData",
    summary="Remove a file",
    status_code=204,
    response_class=Response,
    responses=problems(401, 403, 404, 422, 503),
)
async def delete_data(name: str, services: Wired) -> Response:
    """A job that reads it fails, and says why."""
    await services.admin_work.run(services.jobs.data.delete, name)
    return Response(status_code=204)
