"""The OpenAPI document: FastAPI's document, and the parts that FastAPI cannot derive from routes.

Some routes read their bodies or write their answers themselves: they name the models of their
bodies and answers, and the schemas of these models are added here. A schema that names a limit gets
the value of the limit.
"""

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from xylem.api.routes.operations import COMPONENTS, problems
from xylem.api.schemas.feedback import FeedbackLine
from xylem.api.schemas.oip import InferAnswer
from xylem.api.schemas.predict import BatchAnswerLine, ProblemDetails
from xylem.base import Limits
from xylem.serving import LIMIT_KEY, PROBLEMS, BatchLine, FeedbackRequest
from xylem_store import code_version

TAGS = {
    "predict": "Labels of instances: a request, or lines streamed both ways",
    "inference": "The Open Inference Protocol, version 2: instances and labels as tensors",
    "annif": "Annif's REST API: projects that suggest subjects for texts",
    "feedback": "True labels, from which thresholds learn",
    "thresholds": "Thresholds in force, and the counts behind them",
    "models": "The models of the store",
    "jobs": "Work that takes long: training, tuning, batches; and the files for it",
    "registry": "Aliases and versions: promote, roll back, delete, import, export, and their "
    "history",
    "keys": "Keys, and the audit log of admins",
    "service": "State, figures and this document",
}

# Models that operations name, besides those that are passed to `content`.
MODELS: dict[str, Any] = {
    "InferAnswer": InferAnswer,
    "BatchLine": BatchLine,
    "BatchAnswerLine": BatchAnswerLine,
    "FeedbackRequest": FeedbackRequest,
    "FeedbackLine": FeedbackLine,
    "Problem": ProblemDetails,
}

_LIMIT_KEYWORDS = {
    "integer": "maximum",
    "array": "maxItems",
    "object": "maxProperties",
    "string": "maxLength",  # counts characters: a text has no more of them than bytes
}
# schemas of the errors of FastAPI's own validation: this service answers with problems instead
_FRAMEWORK_SCHEMAS = ("HTTPValidationError", "ValidationError")


def openapi_document(app: FastAPI, limits: Limits, root_path: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of an app.

    limits     the limits in force, whose values are in the schemas
    root_path  the prefix under which a proxy shows the service
    """
    document = get_openapi(
        title="Xylem",
        version=code_version(),
        description="Online prediction for label spaces of thousands to millions of labels.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        tags=[{"name": name, "description": description} for name, description in TAGS.items()],
        routes=app.routes,
        servers=[{"url": root_path}] if root_path else None,
    )
    # imported only now, because the trainers are imported with it
    from xylem.admin import REQUEST_MODELS, parameter_schemas

    schemas = document["components"]["schemas"]
    for name, model in {
        **COMPONENTS,
        **MODELS,
        **{job_model.__name__: job_model for job_model in REQUEST_MODELS},
    }.items():
        schema = TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[name] = {**schema, "title": name}
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "A key of `xylem keys create`"}
    }
    for name in _FRAMEWORK_SCHEMAS:
        schemas.pop(name, None)
    keyed = {
        route.unique_id
        for route in app.routes
        if isinstance(route, APIRoute) and route.dependencies
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needs_key = operation["operationId"] in keyed
            responses = operation["responses"]
            for status in [
                status
                for status, response in responses.items()
                if _FRAMEWORK_SCHEMAS[0] in str(response)
            ]:
                del responses[status]
            responses |= _refusals(path, method, operation, needs_key=needs_key)
            if needs_key:
                operation["security"] = [{"key": []}]
    for field in (
        field for schema in schemas.values() for field in schema.get("properties", {}).values()
    ):
        default = field.pop("default", None)
        if default is not None:  # else openapi-typescript makes it required
            description = f"{field.get('description', '')} ({json.dumps(default)} if left out)"
            field["description"] = description.strip()
    _fill_limits(document, limits)
    document["x-problems"] = {code: problem._asdict() for code, problem in PROBLEMS.items()}
    document["x-parameters"] = parameter_schemas()
    return document


def _refusals(
    path: str, method: str, operation: dict[str, Any], *, needs_key: bool
) -> dict[str, Any]:
    """Return the problems that an operation may answer with, as its path, body and query tell.

    needs_key  whether the operation needs a key

    The operation itself names further problems.
    """
    takes_body = "requestBody" in operation
    takes_query = any(parameter["in"] == "query" for parameter in operation.get("parameters", ()))
    changes = path.startswith("/v1/admin") and method != "get"
    statuses = [
        *(400, 431),  # may be answered before a route is found
        *((401, 403, 429, 503) if needs_key else ()),
        *((404,) if "{" in path else ()),
        *((408, 413, 415) if takes_body else ()),
        *((422,) if takes_body or takes_query or changes else ()),
        *((409,) if changes else ()),
    ]
    return {str(status): response for status, response in problems(*statuses).items()}


def _fill_limits(value: Any, limits: Limits) -> None:
    """Set the value of the limit in each schema that names a limit, in place."""
    if isinstance(value, dict):
        limit = value.get(LIMIT_KEY)
        if isinstance(limit, str) and value.get("type") in _LIMIT_KEYWORDS:
            value[_LIMIT_KEYWORDS[value["type"]]] = getattr(limits, limit)
    for part in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        _fill_limits(part, limits)
