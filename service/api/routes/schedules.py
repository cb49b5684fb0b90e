"""/v1/admin/schedules: jobs that come by themselves."""

from typing import Annotated, Any

from service.api.routes.admins import AuditedRoute, router_of
from service.api.routes.requests import json_body
from service.api.routes.services import Wired
from service.serving.schemas.jobs import ScheduleAnswer, ScheduleList, ScheduleRequest

router = router_of("jobs", "admin", AuditedRoute, "/v1/admin/schedules")

_EXAMPLE: dict[str, Any] = {
    "kind": "training",
    "cron": "0 3 * * 0",
    "job": {
        "model": "debtags",
        "trainer": "label-tree",
        "data": ["train.jsonl.gz", {"feedback": {"model": "debtags", "days": 90}}],
        "valid": {"feedback": 0.2},
        "promotion": {"alias": "latest", "if": [{"metric": "P@5", "least_change": 0.0}]},
    },
}


@router.post("", summary="Have jobs come by themselves: by a cron line, or when rows of feedback have come")
async def create_schedule(
    body: Annotated[ScheduleRequest, json_body(ScheduleRequest, _EXAMPLE)], services: Wired
) -> ScheduleAnswer:
    """`job` is checked at once, as the body of such a job. A model's alias has one schedule."""
    create = services.schedules.create_schedule
    found = await services.admin_work.run(create, body.kind, body.job, body.cron, body.rows)
    return ScheduleAnswer(**found)


@router.get("", summary="The schedules")
async def list_schedules(services: Wired) -> ScheduleList:
    """The oldest first: when they run next, how often they ran, and which job came last."""
    found = await services.admin_work.run(services.schedules.schedules)
    return ScheduleList(schedules=[ScheduleAnswer(**one) for one in found])


@router.delete("/{schedule}", summary="Remove a schedule")
async def delete_schedule(schedule: str, services: Wired) -> ScheduleAnswer:
    """A job that came of it goes on."""
    return ScheduleAnswer(**await services.admin_work.run(services.schedules.delete_schedule, schedule))
