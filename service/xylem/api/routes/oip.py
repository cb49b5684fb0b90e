"""The Open Inference Protocol, version 2, over REST, with its extension for binary data."""

from typing import Any

from fastapi import Request, Response

from xylem.api.door.admission import JSON, read_body
from xylem.api.door.responses import json_response
from xylem.api.routes.admins import AuditedRoute, RawRoute, of_seen_models, router_of
from xylem.api.routes.operations import ModelName, content, of_version, problems, takes, takes_json
from xylem.api.routes.requests import Wired, find_served, reply_in, who
from xylem.api.schemas.oip import (
    InferAnswer,
    ModelMetadata,
    ModelReady,
    RepositoryEntry,
    RepositoryIndexRequest,
    ServerLive,
    ServerMetadata,
    ServerReady,
    TensorMetadata,
)
from xylem.base import Unavailable
from xylem.serving import HEADER, INPUTS, OUTPUTS, TENSORS, InferRequest, parse_body
from xylem_store import code_version

router = router_of("inference", "predict", RawRoute)

about_router = router_of("inference", "predict")

health_router = router_of("inference")

index_router = router_of("inference", "admin")

repository_router = router_of("inference", "admin", AuditedRoute, "/v2/repository/models/{model}")

_TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a text editor"]}
_HEADER: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "integer", "minimum": 0},
    "description": "bytes of the body that are JSON, where binary data follow",
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The labels of each instance, in their order",
        "headers": {
            HEADER: {"schema": {"type": "integer"}, "description": "where binary data follow"}
        },
    }
}


@of_version(
    router,
    "POST",
    "infer",
    "Predict tensors with",
    {
        **takes(
            content(
                "application/json", InferRequest, {"inputs": [_TENSOR], "parameters": {"top_r": 3}}
            ),
            {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        ),
        "parameters": [_HEADER],
    },
    root="/v2",
    response_model=InferAnswer,
    responses={**_ANSWERS, **problems(409)},
)
async def infer(request: Request, services: Wired) -> Response:
    """Instances are a tensor of texts, one for each field of a text, or the three of sparse rows.

    The labels are returned as tensors.
    """
    return await reply_in(TENSORS, request, services)


@of_version(about_router, "GET", "", "Tensors of", {}, root="/v2", response_model=ModelMetadata)
async def model_metadata(request: Request, services: Wired) -> Response:
    """The tensors that a model takes, and those that it returns.

    It takes a tensor of texts or one for each field of a text, with a tensor of their vectors if it
    was trained with vectors, or the three tensors of sparse rows.
    """
    served = await find_served(request, services.live)
    info = services.live.models.get(served.name)
    featurizer = served.featurizer
    is_left_out = {"vectors": not featurizer.vector_numbers, "text": not featurizer.takes_texts}
    fields = [name for name in featurizer.fields.names if name not in INPUTS]
    types_by_input = {**INPUTS, **dict.fromkeys(fields, "BYTES")}
    return json_response(
        ModelMetadata(
            name=served.name,
            versions=list(map(str, [served.version] if info is None else sorted(info.versions))),
            platform="xylem",
            inputs=[
                _tensor(name, kind, [-1, featurizer.vector_numbers] if name == "vectors" else [-1])
                for name, kind in types_by_input.items()
                if not is_left_out.get(name)
            ],
            outputs=[
                _tensor(name, kind, [-1] if name in ("lengths", "exact") else [-1, -1])
                for name, kind in OUTPUTS.items()
            ],
        )
    )


def _tensor(name: str, datatype: str, shape: list[int]) -> TensorMetadata:
    return {"name": name, "datatype": datatype, "shape": shape}


@of_version(about_router, "GET", "ready", "Readiness of", {}, root="/v2", response_model=ModelReady)
async def model_ready(request: Request, services: Wired) -> Response:
    """Opens the version if it is not open.

    If it cannot answer, the problem in the answer says why.
    """
    return json_response(
        ModelReady(name=(await find_served(request, services.live)).name, ready=True)
    )


@about_router.get("/v2", summary="Name and version of the service")
@of_seen_models
async def server_metadata() -> ServerMetadata:
    """The name, the version and the extensions of the service."""
    return ServerMetadata(name="xylem", version=code_version(), extensions=["binary_tensor_data"])


@health_router.get("/v2/health/live", summary="Whether the process runs")
async def server_live() -> ServerLive:
    """Answers that the process runs, as /livez does."""
    return ServerLive(live=True)


@health_router.get(
    "/v2/health/ready", summary="Whether requests should be sent here", responses=problems(503)
)
async def server_ready(services: Wired) -> ServerReady:
    """The service is ready if /readyz answers that it is ready."""
    if not services.ready:
        raise Unavailable(
            "expected a service that is ready, found one that opens its models or stops"
        )
    return ServerReady(ready=True)


@index_router.post(
    "/v2/repository/index",
    summary="The versions of the store, and which of them are open",
    openapi_extra=takes_json(RepositoryIndexRequest, {"ready": True}),
)
@of_seen_models
async def repository_index(request: Request, services: Wired) -> list[RepositoryEntry]:
    """Every version of each model that the key may see; with `ready`, the open ones alone.

    A version that is not open may be opened by its next request.
    """
    services.live.refuse_before_first_look()
    # clients of the protocol ask for the index without a body, and so without its type
    body = await read_body(request, JSON | {b""})
    options = parse_body(body or b"{}", RepositoryIndexRequest, services.limits)
    live = services.live
    open_versions = live.open_versions()
    faults = {(failure.model, failure.ref): failure.detail for failure in live.status().failures}
    entries = []
    for model in sorted(filter(who(request).sees, live.models)):
        for version in live.models[model].versions:
            is_open = (model, version) in open_versions
            reason = faults.get((model, str(version)), "not loaded")
            if is_open or not options.ready:
                entries.append(
                    RepositoryEntry(
                        name=model,
                        version=str(version),
                        state="READY" if is_open else "UNAVAILABLE",
                        reason="" if is_open else reason,
                    )
                )
    return entries


@repository_router.post("/load", summary="Open a model in this process", responses=problems(503))
async def load_model(model: ModelName, services: Wired) -> Response:
    """Opens the versions that the model's aliases name. Parameters in the body are ignored."""
    await services.live.load(model)
    return Response()


@repository_router.post("/unload", summary="Close a model in this process")
async def unload_model(model: ModelName, services: Wired) -> Response:
    """Requests in flight are answered. The next request opens the model again."""
    await services.live.unload(model)
    return Response()
