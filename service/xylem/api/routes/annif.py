"""The REST API of Annif, /v1/projects: its clients get subjects for texts (docs/annif.md)."""

import asyncio
import contextlib
from typing import Any

from fastapi import Request, Response

from xylem.api.door.admission import JSON, check_media, read_body
from xylem.api.door.responses import json_response
from xylem.api.routes.admins import RawRoute, of_seen_models, router_of, row_sender
from xylem.api.routes.models import cached_manifest
from xylem.api.routes.operations import content, query_parameters, takes, takes_json
from xylem.api.routes.requests import Wired, find_version, reply_in, who
from xylem.api.schemas.annif import Project, Projects
from xylem.serving import (
    BATCH_SUGGESTIONS,
    DEFAULT_ALIAS,
    SUGGESTIONS,
    DocumentSuggestions,
    LearnDocuments,
    ServedVersion,
    SuggestBatchRequest,
    SuggestForm,
    Suggestions,
    SuggestOptions,
    events_of,
    languages_of,
    refuse_rejected,
)
from xylem_store import AliasNotFound, Store, StoreError, is_alias, is_version

router = router_of("annif", "predict", RawRoute)
learn_router = router_of("annif", "feedback", RawRoute)

_PROJECT_PATH = "/v1/projects/{project_id}"
_PATH: dict[str, Any] = {
    "name": "project_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "NAME: the version that the alias latest of this model names; or "
    "NAME@ALIAS, NAME@VERSION",
}
_FORM = content(
    next(iter(SUGGESTIONS.media)).decode(), SuggestForm, {"text": "a text editor", "limit": 5}
)


@router.get("/v1/projects", summary="The models, as Annif's projects", response_model=Projects)
@of_seen_models
async def list_projects(request: Request, services: Wired) -> Response:
    """Each alias is a project: NAME is `latest` of a model, NAME@ALIAS another alias."""
    live = services.live
    live.refuse_before_first_look()
    entries = [
        (model, name, alias.version, live.resident(model, name))
        for (model, name), alias in sorted(live.aliases.items())
        if who(request).sees(model)
    ]

    def projects() -> list[Project]:
        summaries = []
        for entry in entries:
            with contextlib.suppress(StoreError):  # /readyz reports the error
                summaries.append(_project(services.store, *entry))
        return summaries

    return json_response(Projects(projects=await asyncio.to_thread(projects)))


@router.get(
    _PROJECT_PATH,
    summary="A model, as a project of Annif",
    response_model=Project,
    openapi_extra={"parameters": [_PATH]},
)
async def show_project(request: Request, services: Wired) -> Response:
    """Returns the fields that clients of Annif read before they ask for suggestions."""
    reference = _reference(request)
    served = await find_version(request, services.live, *reference)
    return json_response(
        await asyncio.to_thread(_project, services.store, *reference, served.version, served)
    )


@router.post(
    f"{_PROJECT_PATH}/suggest",
    summary="Suggest subjects for a text",
    response_model=Suggestions,
    openapi_extra={**takes(_FORM), "parameters": [_PATH]},
)
async def suggest(request: Request, services: Wired) -> Response:
    """The fields of the form are Annif's. Unknown fields, and `metadata_...`, are ignored."""
    return await reply_in(SUGGESTIONS, request, services, *_reference(request))


@router.post(
    f"{_PROJECT_PATH}/suggest-batch",
    summary="Suggest subjects for several texts",
    response_model=list[DocumentSuggestions],
    openapi_extra={
        **takes_json(SuggestBatchRequest, {"documents": [{"text": "a text editor"}]}),
        "parameters": [_PATH, *query_parameters(SuggestOptions)["parameters"]],
    },
)
async def suggest_batch(request: Request, services: Wired) -> Response:
    """Takes up to 32 documents. The answers are in their order.

    The options are in the query string.
    """
    return await reply_in(BATCH_SUGGESTIONS, request, services, *_reference(request))


@learn_router.post(
    f"{_PROJECT_PATH}/learn",
    summary="Learn from documents whose subjects are known",
    status_code=204,
    response_class=Response,
    openapi_extra={
        **takes_json(
            LearnDocuments, [{"text": "a text editor", "subjects": [{"uri": "role::program"}]}]
        ),
        "parameters": [_PATH],
    },
)
async def learn(request: Request, services: Wired) -> Response:
    """Each document is an event of feedback: it moves the thresholds.

    Where rows of feedback are stored, it is also stored as one.
    """
    check_media(request.scope, JSON)
    served = await find_version(request, services.live, *_reference(request))
    body = await read_body(request)
    verdicts = await services.desk.count_values(
        await services.threshold_work.run(events_of, body, served, services.limits),
        served,
        sender=row_sender(request, services, served.name),
        may_wait=False,
    )
    sender = who(request)
    sender.meter.charge(0, len(verdicts))
    services.ring.usage.add(
        sender.key_id, served.name, n_rows=len(verdicts), n_characters=len(body)
    )
    refuse_rejected(verdicts)
    return Response(status_code=204)


def _reference(request: Request) -> tuple[str, str]:
    """Return the model, and the version's number or alias, that the project id in a path names.

    Raises AliasNotFound.
    """
    model, separator, ref = request.path_params["project_id"].partition("@")
    if separator and not (is_alias(ref) or is_version(ref)):
        raise AliasNotFound(
            f"project: expected NAME, NAME@ALIAS or NAME@VERSION, found {ref[:80]!r}"
        )
    return model, ref or DEFAULT_ALIAS


def _project(
    store: Store, model: str, ref: str, version: int, served: ServedVersion | None
) -> Project:
    """Return the description of a project, as Annif writes it.

    Its id for the alias `latest` is the model's name.

    Reads the disk. Raises the store's errors.
    """
    manifest = cached_manifest(store, model, version)
    project_id = model if ref == DEFAULT_ALIAS else f"{model}@{ref}"
    languages, default = languages_of(None if served is None else served.info.current)
    return {
        "project_id": project_id,
        "name": project_id,
        "language": default,
        "backend": {"backend_id": manifest.trainer.name},
        "vocab": {
            "vocab_id": model,
            "languages": sorted(languages),
            "size": manifest.n_labels,
            "loaded": True,
        },
        "vocab_language": default,
        "is_trained": True,
        "modification_time": manifest.created_at,
    }
