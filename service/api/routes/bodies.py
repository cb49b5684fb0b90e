"""Bodies of JSON that routes take as a parameter: `Annotated[RestoreRequest, json_body(RestoreRequest)]`."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Depends, Request

from service.api.door.admission import read_body
from service.api.routes.services import Wired
from service.serving.parse import parse_body
from service.serving.schemas.instances import RequestModel

M = TypeVar("M", bound=RequestModel)


def json_body(model: type[M]) -> Any:
    """Return the dependency that reads a request's body, whose fields have the limits of the settings.

    FastAPI would read it without them, and with no bound on its time.
    """

    async def read(request: Request, services: Wired) -> M:
        body = await read_body(request, services.limits)
        return await services.admin_work.read(parse_body, body, model, services.limits)

    return Depends(read)
