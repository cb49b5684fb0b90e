"""/v1/admin/models: move and remove aliases, delete, export and import versions, and history."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Annotated, Any

from fastapi import Request, Response

from xylem.admin import Removal, history_facts, provenance
from xylem.api.door.admission import pieces
from xylem.api.door.responses import stream_of
from xylem.api.routes.admins import AuditedRoute, router_of
from xylem.api.routes.operations import ModelName, VersionPath, answers, takes, version_number
from xylem.api.routes.requests import CATCH_UP_SECONDS, Services, Wired, json_body, query_of, who
from xylem.api.schemas.registry import (
    AliasChanged,
    AliasMoved,
    ArchiveQuery,
    DeleteModelQuery,
    DeleteVersionQuery,
    History,
    HistoryQuery,
    ImportQuery,
    PromoteRequest,
    Provenance,
    Published,
    RollbackRequest,
)
from xylem.base import BadData, LimitExceeded, Unavailable
from xylem_store import AliasChange, Cause, Corrupt, spool_archive

router = router_of("registry", "admin", AuditedRoute, "/v1/admin/models/{model}")


def cause_of(request: Request, why: str = "") -> Cause:
    """Return the cause of a change: the name and id of the key, and the reason."""
    principal = who(request)
    return Cause(f"{principal.name} ({principal.key_id})", why)


async def _move(
    services: Services, call: Callable[..., AliasChange], *arguments: Any
) -> AliasMoved:
    return AliasMoved(**(await services.change(call, *arguments)).move())


@router.post("/promote", summary="Make an alias name a version")
async def promote(
    model: ModelName,
    body: Annotated[
        PromoteRequest,
        json_body(PromoteRequest, {"version": 3, "alias": "latest", "reason": "better"}),
    ],
    request: Request,
    services: Wired,
) -> AliasMoved:
    """The whole version is verified first.

    A damaged version, or one of another model, is refused.
    """
    return await _move(
        services,
        services.registry.promote,
        model,
        body.version,
        body.alias,
        cause_of(request, body.reason),
    )


@router.post("/rollback", summary="Move an alias back to a version that it named before")
async def rollback(
    model: ModelName,
    body: Annotated[RollbackRequest, json_body(RollbackRequest, {"alias": "latest", "to": None})],
    request: Request,
    services: Wired,
) -> AliasMoved:
    """Moves the alias one step back in its history, or to the version that you name."""
    return await _move(
        services,
        services.registry.rollback,
        model,
        body.alias,
        cause_of(request, body.reason),
        body.to,
    )


@router.delete("", summary="Delete a model")
async def delete_model(
    model: ModelName,
    query: Annotated[DeleteModelQuery, query_of(DeleteModelQuery)],
    request: Request,
    services: Wired,
) -> Removal:
    """Deletes its versions, aliases, thresholds and rows of feedback.

    `confirm` repeats the name of the model: `?confirm=NAME`.
    """
    return await services.change(
        partial(services.registry.delete_model, confirm=query.confirm),
        model,
        cause_of(request),
    )


@router.delete("/versions/{version}", summary="Delete a version")
async def delete_version(
    model: ModelName,
    version: VersionPath,
    query: Annotated[DeleteVersionQuery, query_of(DeleteVersionQuery)],
    request: Request,
    services: Wired,
) -> Removal:
    """The request is refused if an alias names the version.

    With `with_aliases=true` these aliases are removed, too, but never `latest`.
    """
    return await services.change(
        partial(services.registry.delete_version, with_aliases=query.with_aliases),
        model,
        version_number(version),
        cause_of(request),
    )


@router.delete("/aliases/{alias}", summary="Remove an alias")
async def delete_alias(
    model: ModelName, alias: str, request: Request, services: Wired
) -> AliasMoved:
    """The version that the alias names stays. `latest` cannot be removed."""
    return await _move(services, services.registry.delete_alias, model, alias, cause_of(request))


@router.get("/history", summary="History of the aliases of a model")
async def show_history(
    model: ModelName, query: Annotated[HistoryQuery, query_of(HistoryQuery)], services: Wired
) -> History:
    """The moves of the aliases, the newest first.

    Each tells who moved which alias, when, from which version to which, why, and by which job.
    """
    return History(
        model=model,
        changes=[
            AliasChanged(**history_facts(model, move))
            for move in (
                await services.admin_work.run(
                    services.registry.history, model, query.alias, query.before, query.limit
                )
            )
        ],
    )


@router.get("/versions/{version}/provenance", summary="Where a version came from")
async def show_provenance(model: ModelName, version: VersionPath, services: Wired) -> Provenance:
    """The origin of a version, and its later promotions.

    It has the data, the code, the parameters, the previous version, and the figures.
    """
    return Provenance(
        **await services.admin_work.run(provenance, services.store, model, version_number(version))
    )


_TAR = {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "/archive",
    summary="A version as an archive",
    response_class=Response,
    responses=answers(200, "A tar", _TAR),
)
async def export_model(
    model: ModelName, query: Annotated[ArchiveQuery, query_of(ArchiveQuery)], services: Wired
) -> Response:
    """The archive is the file that `xylem models export` writes.

    All of it is verified before the first byte is sent.
    """
    loop = asyncio.get_running_loop()

    def archive() -> Iterator[bytes]:
        yield from filter(
            None,
            map(
                bytes,
                services.store.archive(
                    model, services.store.resolve(model, query.version), label_info=True
                ),
            ),
        )

    return await stream_of(
        archive(),
        partial(loop.run_in_executor, services.archive_threads),
        "application/x-tar",
        {"content-disposition": f'attachment; filename="{model}.tar"'},
    )


@router.post("/archive", summary="Publish the version in an archive", openapi_extra=takes(_TAR))
async def import_model(
    model: ModelName,
    query: Annotated[ImportQuery, query_of(ImportQuery)],
    request: Request,
    services: Wired,
) -> Published:
    """The body is an export of this service or of another.

    All of it is verified, and then published as the next version of the model. A damaged or
    interrupted archive publishes nothing. It may be as long as the limit `archive_bytes_max`.
    """
    bytes_max = services.limits.archive_bytes_max
    loop = asyncio.get_running_loop()

    def publish(source: IO[bytes]) -> int:
        return services.registry.publish_archive(
            model, source, cause_of(request), latest=query.latest
        ).version

    try:
        with tempfile.TemporaryFile(dir=services.settings.store) as file:
            n_bytes = header_at = 0
            async for piece in pieces(request, services.limits):
                n_bytes += len(piece)
                if n_bytes > bytes_max:
                    raise LimitExceeded(
                        f"expected at most {bytes_max} bytes (limit archive_bytes_max), found more"
                    )
                header_at = await loop.run_in_executor(
                    services.archive_threads, spool_archive, file, piece, header_at
                )
            file.seek(0)
            version = await loop.run_in_executor(services.archive_threads, publish, file)
    except Corrupt as error:  # the archive that was sent is damaged, not the store
        raise BadData(str(error)) from None
    except OSError as error:
        raise Unavailable(f"archive: expected to write it, found {error.strerror}") from error
    await services.live.catch_up(CATCH_UP_SECONDS)
    return Published(model=model, version=version)
