"""What the database has of versions that are gone."""

from __future__ import annotations

from collections.abc import Container

from sqlalchemy import select

from service.db.engine import Database
from service.db.tables import VERSIONS


def forget_thresholds(database: Database, model: str, versions: Container[int]) -> bool:
    """Remove the thresholds of some versions; return whether there were any. Raises DatabaseUnavailable."""
    with database.read() as connection:
        query = select(VERSIONS.c.version).where(VERSIONS.c.model == model)
        there = [version for version in connection.execute(query).scalars() if version in versions]
    if not there:
        return False
    from service.thresholds.store.state import ThresholdDatabase  # compiled kernels: not before it is needed

    thresholds = ThresholdDatabase(database)
    for version in there:
        thresholds.delete(model, version)
    return True
