"""Errors of jobs, schedules and the files for them."""

from xylem.base import BadInput


class JobNotFound(BadInput, code="job-not-found"):
    """No job has this id, or its history is not kept any more."""


class ScheduleNotFound(BadInput, code="schedule-not-found"):
    """There is no schedule with this id."""


class JobConflict(BadInput, code="job-conflict"):
    """The state of a job does not allow what was requested."""


class IdempotencyConflict(BadInput, code="idempotency-conflict"):
    """An idempotency key that was used before, with another request."""


class DataNotFound(BadInput, code="data-not-found"):
    """There is no file of this name below the data directory."""
