"""Figures of a queue of jobs."""

from prometheus_client import CollectorRegistry

from tests.helpers.jobs_helpers import Desk
from xylem.admin.jobs.figures import JobFigures


def figures(desk: Desk) -> dict[tuple[str, str, str], float]:
    """Each figure by its name, kind and state."""
    registry = CollectorRegistry()
    found = JobFigures(desk.database)
    registry.register(found)
    found.read()
    return {
        (sample.name, sample.labels["kind"], sample.labels["state"]): sample.value
        for family in registry.collect()
        for sample in family.samples
    }
