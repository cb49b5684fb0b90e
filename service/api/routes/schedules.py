"""/v1/admin/schedules: jobs that come by themselves."""

from typing import Annotated, Any

from service.api.routes.admins import AuditedRoute, router_of
from service.api.routes.requests import Wired, json_body
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


@router.post("", summary="Submit jobs automatically: by a cron line, or after a number of feedback rows")
async def create_schedule(
    body: Annotated[ScheduleRequest, json_body(ScheduleRequest, _EXAMPLE)], services: Wired
) -> ScheduleAnswer:
    """`job` is the body of such a job, and is checked at once. A model's alias has one schedule."""
    create = services.schedules.create_schedule
    found = await services.admin_work.run(create, body.kind, body.job, body.cron, body.rows)
    return ScheduleAnswer(**found)


@router.get("", summary="The schedules")
async def list_schedules(services: Wired) -> ScheduleList:
    """The oldest first: the time of the next run, the number of runs, and the last job."""
    found = await services.admin_work.run(services.schedules.schedules)
    return ScheduleList(schedules=[ScheduleAnswer(**one) for one in found])


@router.delete("/{schedule}", summary="Remove a schedule")
async def delete_schedule(schedule: str, services: Wired) -> ScheduleAnswer:
    """A job that it submitted continues."""
    return ScheduleAnswer(**await services.admin_work.run(services.schedules.delete_schedule, schedule))
